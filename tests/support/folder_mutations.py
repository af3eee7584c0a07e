"""Folders of models as no `save` writes them: by accident, or by a stranger who puts every checksum
right.

`mutations` says how folders are damaged; `try_many` damages and uses them by the command line, in
this process. As a script: ``python folder_mutations.py FOLDER_OF_MODELS WORKING_FOLDER HOW_MANY
SEED``.
"""

import contextlib
import faulthandler
import hashlib
import io
import json
import math
import os
import random
import shutil
import socket
import struct
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from discreet.models.storage import read_folder
from discreet.privacy.release.hash_chain import STATED, digest

NAMES = ("model.json", "factors.safetensors", "ledger.json", "README.md")
VALUES = [
    *[None, True, False, 0, 1, -1, 2, 7, 10**9, 10**18, 2**63, -(2**63) - 1, 10**400],
    *[0.0, -0.0, 0.5, -1.5, 1e-300, 1e300, 1e38, 5e-324, float("nan"), float("inf"), float("-inf")],
    *[
        "",
        "x",
        "7",
        "nan",
        "Infinity",
        "secure",
        "none",
        "../x",
        "\x1b[2J",
        "\ud800",
        "é" * 300,
        "0" * 64,
    ],
    *[
        [],
        {},
        [[]],
        [None],
        [1, 2],
        [5, 1],
        ["a"],
        {"a": 1},
        {"type": "tuple", "value": [1, [2]]},
        [[1.0] * 3] * 3,
    ],
]
TYPES = [
    "BOOL",
    "U8",
    "I8",
    "F8_E4M3",
    "U16",
    "I16",
    "F16",
    "BF16",
    "U32",
    "I32",
    "F32",
    "U64",
    "I64",
    "F64",
    "C64",
]


# ------------------------------------------------------------ putting checksums right


def put_right(folder, document=None):
    """Rewrite model.json with checksums that fit what lies there, as a stranger would."""
    file = folder / "model.json"
    document = json.loads(file.read_text(encoding="utf-8")) if document is None else document
    sums = document.get("sha256") if isinstance(document, dict) else None
    if isinstance(sums, dict):
        for name in sums:
            if isinstance(name, str) and (folder / Path(name).name).is_file():
                sums[name] = hashlib.sha256((folder / Path(name).name).read_bytes()).hexdigest()
        document.pop("checksum", None)
        document = {"checksum": read_folder.checksum(document)} | document
    text = json.dumps(document, ensure_ascii=False)
    file.write_bytes(text.encode("utf-8", "backslashreplace"))


def chained(ledger):
    """The ledger with a chain of hashes that holds, as far as it can be made."""
    header = {
        k: ledger.get(k)
        for k in ("format", "library", "neighboring", "accountant", "noise", "plan")
    }
    last = digest("", header)
    records = [*ledger["assumptions"], *ledger["entries"]]
    for record in sorted(records, key=lambda shown: shown["sequence"]):
        content = {name: value for name, value in record.items() if name != "hash"}
        last = record["hash"] = digest(last, content)
    return ledger | {
        "head": last,
        "seal": digest(last, {name: ledger.get(name) for name in STATED}),
    }


# ------------------------------------------------------------ kinds of damage


def places(value, path=()):
    """The path of every part of a JSON document; of long lists, of some entries."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for at in {0, 1, len(value) - 1} & set(range(len(value))):
            yield from places(value[at], (*path, at))


def changed(document, path, rng):
    """The document with something else at that path."""
    if not path:
        return rng.choice(VALUES)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    last = path[-1]
    how = rng.random()
    if how < 0.15:
        del inner[last]
    elif how < 0.25 and isinstance(inner, dict):
        inner["surprise"] = rng.choice(VALUES)
    elif how < 0.35 and isinstance(inner[last], list):
        inner[last] = inner[last] * 2 if rng.random() < 0.5 else inner[last][:-1]
    elif how < 0.5 and isinstance(inner[last], (int, float)) and not isinstance(inner[last], bool):
        inner[last] = inner[last] * rng.choice([-1, 0.5, 2, 1e6, 1e-6, 1e30]) + rng.choice(
            [0, 1, -1]
        )
    else:
        inner[last] = rng.choice(VALUES)
    return document


def edit_model(folder, rng, path=None):
    document = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    path = rng.choice(
        [place for place in places(document) if place[:1] not in (("checksum",), ("sha256",))]
    )
    document = changed(document, path, rng)
    put_right(folder, document)


def edit_ledger(folder, rng):
    file = folder / "ledger.json"
    if not file.exists():
        return edit_model(folder, rng)
    ledger = json.loads(file.read_text(encoding="utf-8"))
    for _ in range(rng.choice([1, 1, 2])):
        if isinstance(ledger, dict):
            ledger = changed(ledger, rng.choice(list(places(ledger))), rng)
    if rng.random() < 0.8:
        # nobody could put that right
        with contextlib.suppress(TypeError, ValueError, LookupError, AttributeError):
            ledger = chained(ledger)
    file.write_bytes(json.dumps(ledger).encode("utf-8", "backslashreplace"))
    put_right(folder)


def edit_promise(folder, rng):
    """What the model promises, and not what was paid for it."""
    document = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    parameters = document["parameters"]
    name = rng.choice(
        [name for name in ("epsilon", "delta", "neighboring", "noise") if name in parameters]
        or ["x"]
    )
    other = {"neighboring": ["replace-one", "add-remove"], "noise": ["secure", "seeded"]}
    parameters[name] = rng.choice(other.get(name, [0.01, 0.1, 3.0, 1e-9, 1e5, 1e-4]))
    put_right(folder, document)


def edit_arrays(folder, rng):
    file = folder / "factors.safetensors"
    content = file.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header, body = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    name = rng.choice(["item_factors", "item_biases"])
    kind = rng.choice(
        ["dtype", "shape", "values", "values", "offsets", "names", "bytes", "header", "integers"]
    )
    n, r = header["item_factors"]["shape"]
    arrays = {"item_factors": np.zeros((n, r), np.float32), "item_biases": np.zeros(n, np.float32)}
    if kind == "dtype":
        header[name]["dtype"] = rng.choice([*TYPES, "nonsense", None, 3, []])
    elif kind == "shape":
        shapes = [
            [],
            [n],
            [n, r, 1],
            [r, n],
            [n + 1, r],
            [n, 10**12],
            [-n, -r],
            [0, 0],
            [2**62, 4],
            "x",
            [None, r],
        ]
        header[name]["shape"] = rng.choice(
            [*shapes, [n, r + 1], [float(n), r], [True, n * r], None]
        )
    elif kind == "offsets":
        header[name]["data_offsets"] = rng.choice(
            [[0, 0], [4, 0], [0, 10**15], [-4, 4], [0], "x", [0.5, 1], [None] * 2]
        )
    elif kind == "names":
        header["other" if rng.random() < 0.5 else name + " "] = header.pop(name)
    elif kind == "values":
        array = arrays[name]
        array[...] = rng.choice([np.nan, np.inf, -np.inf, 3e38, 1e30, 1e-40, 0.0, 7.0])
        if rng.random() < 0.5 and array.size:
            array.flat[rng.randrange(array.size)] = rng.choice([np.nan, np.inf, 3e38])
    elif kind == "integers":
        dtype = rng.choice(
            [np.int8, np.int32, np.int64, np.uint8, np.uint64, np.bool_, np.float16, np.float64]
        )
        arrays[name] = arrays[name].astype(dtype)
    elif kind == "bytes":
        body = body[: rng.randrange(len(body) + 1)] + bytes(rng.randrange(64))
    if kind in ("values", "integers"):
        from safetensors.numpy import save

        file.write_bytes(save({key: np.ascontiguousarray(value) for key, value in arrays.items()}))
    else:
        text = json.dumps(header).encode()
        size = len(text)
        if kind == "header":
            size = rng.choice([0, 1, len(text) - 1, len(text) + 1, 2**20 + 1, 2**40, 2**64 - 1])
            text = rng.choice([text, b"[" * 100_000, b"{}", b"", b"\xff\xfe", text[::-1]])
        file.write_bytes(struct.pack("<Q", size) + text + bytes(body))
    put_right(folder)


def edit_bytes(folder, rng):
    """An accident: one file with other bytes, and checksums as they were, or a stranger's work."""
    file = folder / rng.choice([name for name in NAMES if (folder / name).exists()])
    content = bytearray(file.read_bytes())
    how = rng.choice(["flip", "cut", "empty", "append", "zeros", "noise"])
    if how == "flip":
        for _ in range(rng.choice([1, 3, 20])):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif how == "noise":
        content = bytearray(rng.randbytes(rng.randrange(400)))
    else:
        half = content[: rng.randrange(len(content))]
        content = {
            "cut": half,
            "empty": b"",
            "append": content + rng.randbytes(9),
            "zeros": bytes(len(content)),
        }[how]
    file.write_bytes(content)
    if file.name != "model.json" and rng.random() < 0.5:
        put_right(folder)


def strange_json(folder, rng):
    """Documents that are nested, or grow, without end."""
    file = folder / rng.choice(
        [name for name in ("model.json", "ledger.json") if (folder / name).exists()]
    )
    deep = rng.choice([40, 900, 20_000, 300_000])
    texts = [
        b"[" * deep,
        b"[" * deep + b"]" * deep,
        b'{"a":' * deep + b"1" + b"}" * deep,
        b"1" * 5000,
        b"[" + b"1e999," * 1000 + b"1]",
        b'{"format": ' + b"9" * 5000 + b"}",
        b"NaN",
        b"-Infinity",
        b'"' + b"\\ud800" * 1000 + b'"',
        b'{"sha256": {"' + b"a" * 5000 + b'": ""}, "format": 2, "class": "ALS"}',
        b'{"format": 2, "class": [], "sha256": {}}',
        b"[{},{},{}]" * 3,
    ]
    if rng.random() < 0.5:
        file.write_bytes(rng.choice(texts))
    else:
        document = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        inner = None
        for _ in range(min(deep, 200)):
            inner = [inner] if rng.random() < 0.5 else {"type": "tuple", "value": [inner]}
        at = rng.choice(["state", "parameters", "item_ids", "titles", "rating_range"])
        document[at] = [inner] if at in ("item_ids", "titles") else {"x": inner}
        return put_right(folder, document)
    if file.name != "model.json":
        put_right(folder)


def no_regular_file(folder, rng):
    file = folder / rng.choice([name for name in NAMES if (folder / name).exists()])
    content = file.read_bytes()
    file.unlink()
    kind = rng.choice(
        [
            "folder",
            "pipe",
            "loop",
            "dangling",
            "zero",
            "null",
            "same",
            "socket",
            "missing",
            "huge",
            "tty",
        ]
    )
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "same":  # a link to the same content is as good as the file
        (folder.parent / "elsewhere").write_bytes(content)
        file.symlink_to(folder.parent / "elsewhere")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            here = os.getcwd()
            os.chdir(folder)  # the names of sockets are short
            made.bind(file.name)
            os.chdir(here)
    elif kind == "huge":
        file.touch()
        os.truncate(file, 1 << 43)
    elif kind != "missing":
        target = {
            "loop": file,
            "dangling": folder / "nowhere",
            "zero": "/dev/zero",
            "null": "/dev/null",
            "tty": "/dev/tty",
        }
        file.symlink_to(target[kind])


def listed_files(folder, rng):
    document = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    names = [
        "../model/README.md",
        "/etc/passwd",
        "",
        ".",
        "..",
        "model.json",
        "earlier-ledger-0123456789abcdef.json",
    ]
    document["sha256"][rng.choice([*names, "notes.txt", "a/b", "\x00", "x" * 5000])] = rng.choice(
        ["", "0" * 64, None, 3]
    )
    if rng.random() < 0.3:
        document["sha256"].pop(rng.choice(list(document["sha256"])))
    document.pop("checksum")
    document = {"checksum": read_folder.checksum(document)} | document
    (folder / "model.json").write_text(json.dumps(document))


def whole_folder(folder, rng):
    """The place itself is something else."""
    kind = rng.choice(["file", "pipe", "loop", "empty", "link"])
    aside = folder.with_name("aside")
    folder.rename(aside)
    if kind == "file":
        folder.write_bytes(b"{}")
    elif kind == "pipe":
        os.mkfifo(folder)
    elif kind == "loop":
        folder.symlink_to(folder)
    elif kind == "empty":
        folder.mkdir()
    else:
        folder.symlink_to(aside)


KINDS = {
    edit_model: 10,
    edit_ledger: 6,
    edit_promise: 2,
    edit_arrays: 6,
    edit_bytes: 4,
    strange_json: 3,
    no_regular_file: 3,
    listed_files: 2,
    whole_folder: 1,
}


def mutations(count, seed):
    """So many ways to damage a folder, the same ones for the same seed."""
    rng = random.Random(seed)
    for at in range(count):
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        yield f"{kind.__name__} {seed}/{at}", kind, random.Random(rng.randrange(2**60))


def damaged(original, place, kind, rng):
    """A damaged copy of a folder; None where this damage is none that can be done to it."""
    folder = place / "model"
    for left in (folder, place / "aside", place / "elsewhere"):
        if left.is_symlink() or left.is_file() or (left.exists() and not left.is_dir()):
            left.unlink()
        elif left.exists():
            shutil.rmtree(left)
    shutil.copytree(original, folder)
    kind(folder, rng)
    return folder


# ------------------------------------------------------------ trying them


def commands(folder, item, place):
    """What people do with a folder that they were given."""
    return [
        ["recommend", folder, "--history", item, "--json"],
        ["similar", folder, item, "--json"],
        ["recommend", folder, "--history", item],
        ["budget", folder, "--json"],
        ["report", folder, "--out", place / "report.html"],
    ]


def outcome(args):
    """Exit code, what was printed, and what was said of errors, in this process."""
    from discreet.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(arg) for arg in args])
        except SystemExit as left:
            return left.code, out.getvalue(), err.getvalue()
    raise AssertionError("main returns to nobody")


def complaint(args, code, out, err):
    """What is wrong with an outcome; nothing if it is one sentence and code 2, or a success
    with sound results.
    """
    told = [line for line in err.splitlines() if not line.startswith("discreet: WARNING")]
    if code == 2:
        fine = (
            len(told) == 1 and told[0].startswith("discreet: ") and len(told[0]) < 700 and not out
        )
        return None if fine else f"code 2 without one sentence: {err[-800:]!r}"
    if code != 0:
        return f"code {code}: {err[-800:]}"
    if args[0] in ("recommend", "similar") and args[-1] == "--json":
        lists = [value for value in json.loads(out).values() if isinstance(value, list)]
        scores = [row["score"] for rows in lists for row in rows if "score" in row]
        if not all(isinstance(score, (int, float)) and math.isfinite(score) for score in scores):
            return f"scores are {scores}"
    return None


def try_many(originals, place, count, seed, seconds=60):
    """Damage folders and use them; returns how often each code came out, and what was wrong."""
    counts, took, wrong = Counter(), Counter(), []
    originals = sorted(originals)
    for at, (name, kind, rng) in enumerate(mutations(count, seed)):
        original = originals[at % len(originals)]
        item = json.loads((original / "model.json").read_text(encoding="utf-8"))["item_ids"][0]
        folder = damaged(original, place, kind, rng)
        usual = commands(folder, item, place)
        # the last two take their time
        chosen = usual[3 + at // 25 % 2] if at % 25 == 24 else usual[rng.randrange(3)]
        # what hangs ends with a code of its own
        faulthandler.dump_traceback_later(seconds, exit=True)
        begin = time.perf_counter()
        code, out, err = outcome(chosen)
        took[chosen[0]] += time.perf_counter() - begin
        faulthandler.cancel_dump_traceback_later()
        counts[code, kind.__name__] += 1
        if problem := complaint(chosen, code, out, err):
            wrong.append(f"{original.name}, {name}, {chosen[0]}: {problem}")
    return counts, took, wrong


def main():
    originals, place, count, seed = (
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        int(sys.argv[3]),
        int(sys.argv[4]),
    )
    counts, took, wrong = try_many([*originals.iterdir()], place, count, seed)
    codes = Counter()
    for (code, _), often in counts.items():
        codes[code] += often
    kinds = {f"{kind} -> {code}": often for (code, kind), often in sorted(counts.items(), key=str)}
    print(json.dumps({"codes": codes, "kinds": kinds, "seconds": took, "wrong": wrong}, indent=1))


if __name__ == "__main__":
    main()

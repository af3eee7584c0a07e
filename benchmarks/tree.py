"""Measure the source tree: size, names, cycles, and how far one training walks through it.

    python benchmarks/tree.py                 (this clone)
    python benchmarks/tree.py --src OTHER/src (another checkout, by the same rules)

Counts are of the installed package only. A function is *named by a participle* if the first word of
its name is one (`PARTICIPLE`) or its whole name is a preposition or a pronoun (`FRAGMENTS`).
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
ROOT = Path(__file__).resolve().parents[1]
DELTAS = ("DELTA", "DEFAULT_DELTA")  # constants that hold the default of δ
FRAGMENTS = {
    "of",
    "from",
    "to",
    "at",
    "in",
    "by",
    "with",
    "for",
    "as",
    "it",
    "they",
    "them",
    "those",
    "this",
    "that",
    "everybody",
    "somebody",
    "nobody",
    "whoever",
    "none",
    "both",
    "all",
    "here",
    "there",
    "now",
    "then",
}
IRREGULAR = {
    "told",
    "said",
    "shown",
    "made",
    "kept",
    "given",
    "taken",
    "found",
    "known",
    "meant",
    "drawn",
    "fold_in_rule",
    "bought",
    "sold",
    "paid",
    "left",
    "held",
    "built",
    "sent",
    "seen",
    "written",
    "broken",
    "spent",
    "begun",
    "chosen",
    "thrown",
    "cut_short",
    "lost",
    "grown",
    "sorted_",
    "hidden",
    "gone",
    "fallen",
    "brought",
    "caught",
    "worn",
    "spoken",
    "stuck",
    "bound",
    "wound",
    "laid",
    "fed",
    "met",
    "led",
}
# words that end in -ed or -ing and are nouns, adjectives or verbs of the field
NOT_PARTICIPLES = {
    "seed",
    "need",
    "feed",
    "speed",
    "exceed",
    "embed",
    "shed",
    "bed",
    "red",
    "rating",
    "ratings",
    "string",
    "strings",
    "setting",
    "settings",
    "thing",
    "things",
    "ranking",
    "sampling",
    "padding",
    "warning",
    "heading",
    "king",
    "spacing",
    "mapping",
    "closing",
    "embedding",
    "clipping",
    "centering",
    "tuning",
    "auditing",
    "binding",
    "proceed",
    "succeed",
    "indeed",
    "bring",
    "ring",
    "sing",
    "spring",
    "sibling",
    "ceiling",
    "during",
    "nothing",
    "something",
    "everything",
    "training",
    "accounting",
    "billing",
    "building",
    "encoding",
    "weighting",
    "timing",
    "unweighted",
    "weighted",
    "signed",
    "unsigned",
    "sealed",
    "matching",
}


def is_participle(name: str) -> bool:
    """Whether a function's name begins with a participle, or is a fragment."""
    plain = name.strip("_")
    if plain in FRAGMENTS:
        return True
    first = plain.split("_")[0]
    if first in NOT_PARTICIPLES:
        return False
    return first in IRREGULAR or bool(re.fullmatch(r"[a-z]{2,}(ed|ing)", first))


def modules(src: Path) -> list[Path]:
    return sorted((src / "discreet").rglob("*.py"))


def definitions(src: Path) -> Iterator[tuple[Path, Definition]]:
    for file in modules(src):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield file, node


def count_names(src: Path) -> dict[str, object]:
    functions = []
    classes: Counter[str] = Counter()
    for _, node in definitions(src):
        if isinstance(node, ast.ClassDef):
            classes[node.name] += 1
        elif not (node.name.startswith("__") and node.name.endswith("__")):
            functions.append(node.name)
    participles = [name for name in functions if is_participle(name)]
    twice = sorted(name for name, n in classes.items() if n > 1)
    return {
        "functions": len(functions),
        "participles": len(participles),
        "participle share": round(len(participles) / len(functions), 4),
        "classes defined twice": twice,
    }


def find_delta_defaults(src: Path) -> list[str]:
    """Places where a default of δ is written as a number."""
    found = []
    for file in modules(src):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            pairs: list[tuple[str, ast.expr | None]] = []
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                named = [*node.args.posonlyargs, *node.args.args]
                defaults = [None] * (len(named) - len(node.args.defaults)) + list(
                    node.args.defaults
                )
                pairs += [(a.arg, d) for a, d in zip(named, defaults, strict=True)]
                pairs += [
                    (a.arg, d)
                    for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                ]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                pairs.append((node.target.id, node.value))
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in DELTAS:
                pairs.append(("delta", node.value))
            for name, value in pairs:
                number = value.value if isinstance(value, ast.Constant) else None
                if (
                    name.lower().endswith("delta")
                    and isinstance(number, float)
                    and 0 < number < 1e-3
                ):
                    found.append(f"{file.relative_to(src)}: {name}")
    return found


def find_cycles(src: Path) -> list[str]:
    """Sub-packages of `privacy`, and packages of the whole, that import each other (at module
    level).
    """
    edges: set[tuple[str, str]] = set()
    for file in modules(src):
        own = file.relative_to(src).with_suffix("").parts
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                other = tuple(name.split("."))
                if other[0] != "discreet" or len(other) < 2:
                    continue
                for depth in (2, 3):
                    a, b = own[:depth], other[:depth]
                    below = a[:-1] == b[:-1] and a != b and len(a) == len(b) == depth
                    folder = (src / Path(*a)).is_dir() and (src / Path(*b)).is_dir()
                    if below and folder:
                        edges.add((".".join(a), ".".join(b)))
    return sorted(f"{a} <-> {b}" for a, b in edges if a < b and (b, a) in edges)


WALK = """
import sys, json, os, tempfile
root = sys.argv[1] + os.sep
codes = set()
def watch(frame, event, arg):
    if event == "call":
        codes.add(frame.f_code)
import threading
from discreet.cli import main
sys.setprofile(watch)
threading.setprofile(watch)
try:
    main(sys.argv[2:])
except SystemExit as left:
    sys.setprofile(None)
    assert not left.code, left.code
OPTIMIZED = 1  # set for functions, not for bodies of classes, which run once on import
inside = [c for c in codes if c.co_filename.startswith(root) and c.co_flags & OPTIMIZED]
seen = {(c.co_filename, c.co_qualname, c.co_firstlineno) for c in inside}
unnamed = ("<module>", "<genexpr>", "<lambda>", "comp>")
named = {s for s in seen if not any(part in s[1] for part in unnamed)}
files = {s[0] for s in named}
print(json.dumps({"files": len(files), "functions": len(named)}))
"""


def walk(src: Path, goal: str) -> dict[str, int]:
    """Files and functions that one ``discreet train cinema`` enters."""
    out = Path(os.environ.get("TMPDIR", "/tmp")) / f"walk-{os.getpid()}-{goal}"
    words = [
        "train",
        "cinema",
        "--scale",
        "0.1",
        "--epsilon",
        "5",
        "--goal",
        goal,
        "--out",
        str(out),
    ]
    call = [sys.executable, "-c", WALK, str(src / "discreet"), *words]
    env = os.environ | {"PYTHONPATH": str(src)}
    warm = [sys.executable, "-m", "discreet", *words[:-1], str(out) + "-warm"]
    # what numba compiles is no walk
    subprocess.run(warm, capture_output=True, env=env, cwd="/tmp", check=True)
    done = subprocess.run(call, capture_output=True, text=True, env=env, cwd="/tmp")
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def measure(src: Path, walks: bool) -> dict[str, object]:
    lines = [
        line for file in modules(src) for line in file.read_text(encoding="utf-8").splitlines()
    ]
    found: dict[str, object] = {"modules": len(modules(src)), "lines": len(lines)}
    found["lines over 100"] = sum(len(line) > 100 for line in lines)
    found |= count_names(src)
    delta = find_delta_defaults(src)
    found["places of delta's default"] = len(delta)
    found["import cycles"] = find_cycles(src)
    if walks:
        found["train, ranking"] = walk(src, "ranking")
        found["train, rating"] = walk(src, "rating")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--src", type=Path, default=ROOT / "src")
    parser.add_argument(
        "--names", action="store_true", help="list functions that are named by a participle"
    )
    parser.add_argument("--no-walk", action="store_true")
    given = parser.parse_args()
    src = given.src.resolve()
    if given.names:
        for file, node in definitions(src):
            if not isinstance(node, ast.ClassDef) and is_participle(node.name):
                print(f"{file.relative_to(src)}:{node.lineno}:{node.name}")
        return
    print(json.dumps(measure(src, not given.no_walk), indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()

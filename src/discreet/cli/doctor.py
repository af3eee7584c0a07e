"""``discreet doctor``: what this installation has, how fast it starts, and whether it computes
the right numbers.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import discreet
from discreet._numba import on_compile
from discreet.cli.app import command
from discreet.cli.output import Output
from discreet.errors import DataError

REQUIRED = (
    "numpy",
    "scipy",
    "numba",
    "llvmlite",
    "threadpoolctl",
    "pyarrow",
    "narwhals",
    "cryptography",
    "safetensors",
    "typer",
    "rich",
)
EXTRAS = {
    "accounting": ("dp-accounting",),
    "frames": ("pandas", "polars"),
    "hub": ("huggingface-hub",),
    "onnx": ("onnx",),
    "plot": ("matplotlib",),
    "postgres": ("psycopg",),
    "bench": ("implicit", "psutil"),
    "serve": ("fastapi", "uvicorn", "httptools"),
}
TOLERANCE = {"float32": 2e-3, "float64": 1e-8}


@command("discreet doctor", "discreet doctor --warm")
def doctor(
    out: Output,
    warm: Annotated[
        bool,
        typer.Option(
            "--warm",
            help="Only compile what the default models need, for example in a container image.",
        ),
    ] = False,
) -> None:
    """Check this installation: versions, processor, threads, folders, and every kernel against its
    reference implementation.

    The exit code is 1 if a check fails. A folder that cannot be written, for example, is only a
    note. With --warm the code for training, evaluating and recommending is compiled and cached, so
    that later runs on the same kind of processor start without compiling.
    """
    if warm:
        _warm(out)
        return
    with out.progress("Checking") as progress:
        steps: dict[str, Callable[[], dict[str, Any]]] = {
            "versions": _versions,
            "processor": _processor,
            "folders": _folders,
            "kernels": _kernels,
            "model": _model,
        }
        found: dict[str, dict[str, Any]] = {}
        problems: list[str] = []
        notes: list[str] = []
        for done, (name, check) in enumerate(steps.items()):
            progress(done, len(steps), name)
            try:
                found[name] = check()
                problems += found[name].pop("problems", [])
                notes += found[name].pop("notes", [])
            except Exception as error:
                # a broken installation can fail in any way, and the rest is still of interest
                problems.append(f"{name}: {type(error).__name__}: {error}")
    _show(found, problems, notes, out)
    out.result(
        {"command": "doctor", "ok": not problems, "problems": problems, "notes": notes, **found}
    )
    if problems:
        raise typer.Exit(1)


def _warm(out: Output) -> None:
    """Train, evaluate and recommend on a few simulated users, and report what was compiled."""
    from discreet.cli.warm_up import warm_up

    names: list[str] = []
    start = time.perf_counter()
    with out.progress("Warming up") as progress, on_compile(lambda _, name: names.append(name)):
        warm_up(progress)
    seconds = time.perf_counter() - start
    place = _folders()
    for note in place["notes"]:
        out.note(note)
    where = (
        f"kept in {place['compiled']}"
        if place["compiled"]
        else "not kept: no folder can be written"
    )
    out.say(f"Compiled {len(names)} functions in {seconds:.1f} s, {where}")
    out.result(
        {
            "command": "doctor",
            "warm": True,
            "compiled": names,
            "seconds": seconds,
            "folder": place["compiled"],
        }
    )


def _versions() -> dict[str, Any]:
    problems = (
        []
        if sys.version_info >= (3, 11)
        else [f"Python {platform.python_version()} is older than 3.11"]
    )
    required = {name: _version(name) for name in REQUIRED}
    problems += [
        f"{name} is not installed: pip install {name}"
        for name, there in required.items()
        if there is None
    ]
    extras = {extra: {name: _version(name) for name in names} for extra, names in EXTRAS.items()}
    return {
        "discreet": discreet.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "required": required,
        "extras": extras,
        "problems": problems,
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> dict[str, Any]:
    import llvmlite.binding as llvm

    from discreet.kernels import simd, thread_count
    from discreet.kernels.threads import available_cores

    features = llvm.get_host_cpu_features()
    has = [name for name in ("avx512f", "avx2", "fma", "neon", "sve") if features.get(name)]
    return {
        "name": llvm.get_host_cpu_name(),
        "machine": platform.machine(),
        "features": has,
        "kernels": simd.describe(),
        "cores": available_cores(),
        "threads": thread_count(),
    }


def _folders() -> dict[str, Any]:
    from discreet.data.download import cache_folder
    from discreet.kernels.cholesky import solve_one

    notes = []
    try:
        data: str | None = str(cache_folder())
    except DataError as error:
        data = None
        notes.append(str(error))
    compiled = solve_one.stats.cache_path  # None where there is no folder for it
    if data is not None and not _writable(Path(data)):
        notes.append(
            f"the folder for data sets, {data}, cannot be written: set DISCREET_CACHE to"
            " download any"
        )
    if compiled is None or not _writable(Path(compiled)):
        notes.append(
            "compiled code cannot be kept, so every start compiles again: "
            "set NUMBA_CACHE_DIR to a folder that can be written"
        )
    return {"data": data, "compiled": compiled, "notes": notes}


def _writable(folder: Path) -> bool:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK)


def _kernels() -> dict[str, Any]:
    """Largest difference of each kernel from its numpy reference, relative to the largest value."""
    import numpy as np

    from discreet.kernels import (
        pack_grams,
        reference,
        solve_psd,
        solve_rows,
        solve_spd,
        sum_rows,
        top_k,
    )

    checks = []
    seconds = {}
    for dtype in ("float32", "float64"):
        rng = np.random.default_rng(0)
        counts = rng.integers(0, 60, 50)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        indices = np.concatenate(
            [np.sort(rng.choice(90, c, replace=False)) for c in counts]
        ).astype(np.int32)
        values, Y = (rng.standard_normal(shape).astype(dtype) for shape in (len(indices), (90, 13)))
        ridge = np.full(50, 2.0)
        start = time.perf_counter()
        X = solve_rows(indptr, indices, values, Y, ridge)
        seconds[f"first call, {dtype}"] = time.perf_counter() - start
        start = time.perf_counter()
        solve_rows(indptr, indices, values, Y, ridge)
        seconds[f"second call, {dtype}"] = time.perf_counter() - start
        A = pack_grams(indptr, indices, np.ones_like(values), Y)
        b = sum_rows(indptr, indices, values, Y)
        A_twin, b_twin = reference.gram_rows(indptr, indices, values, Y)
        definite = A_twin + 2 * np.eye(13, dtype=dtype)
        noisy = A_twin - 3 * np.eye(13, dtype=dtype)
        pairs = {
            "solve_rows": (X, reference.solve_rows(indptr, indices, values, Y, ridge)),
            "pack_grams": (A, A_twin[:, *np.triu_indices(13)]),
            "sum_rows": (b, b_twin),
            "solve_spd": (solve_spd(definite.copy(), b)[0], reference.solve_spd(definite, b)),
            "solve_psd": (solve_psd(noisy.copy(), b, ridge), reference.solve_psd(noisy, b, ridge)),
            "top_k": (top_k(X, Y, Y[:, 0], 7)[1], reference.top_k(X, Y, Y[:, 0], 7)[1]),
        }
        for name, (ours, twin) in pairs.items():
            # rankings are always in single precision
            allowed = TOLERANCE["float32" if name == "top_k" else dtype]
            error = float(np.abs(ours - twin).max() / np.abs(twin).max())
            checks.append({"kernel": name, "dtype": dtype, "error": error, "ok": error <= allowed})
    problems = [
        f"the kernel {c['kernel']} ({c['dtype']}) differs from its reference by {c['error']:.1e}: "
        "please report it, and set DISCREET_KERNELS=plain meanwhile"
        for c in checks
        if not c["ok"]
    ]
    return {"checks": checks, "seconds": seconds, "problems": problems}


def _model() -> dict[str, Any]:
    """Train, save and load a small model; its recommendations must stay the same."""
    import numpy as np

    from discreet.data.cinema import example_history, make_cinema
    from discreet.models.als import ALS
    from discreet.models.storage.save_load import load

    model = ALS(8, iterations=3).fit(make_cinema(scale=0.01))
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model"))
        again = load(Path(folder, "model"))
    history = example_history()
    same = all(
        np.array_equal(a, b)
        for a, b in zip(model.recommend(history), again.recommend(history), strict=True)
    )
    problems = [] if same else ["a saved model recommends other items when loaded"]
    return {"same_after_loading": same, "problems": problems}


def _show(found: dict[str, Any], problems: list[str], notes: list[str], out: Output) -> None:
    if "versions" in found:
        versions = found["versions"]
        out.say(
            f"discreet {versions['discreet']}, Python {versions['python']}, {versions['platform']}",
            style="bold",
        )
        needed = ", ".join(
            f"{name} {version or 'MISSING'}" for name, version in versions["required"].items()
        )
        out.say(f"Packages:  {needed}")
        for extra, packages in versions["extras"].items():
            there = ", ".join(
                f"{name} {version or 'not installed'}" for name, version in packages.items()
            )
            out.say(f"Extra {extra}:  {there}")
    if "processor" in found:
        p = found["processor"]
        out.say(
            f"Processor:  {p['name']} ({p['machine']};"
            f" {', '.join(p['features']) or 'no vector extensions known'})"
        )
        out.say(f"Kernels:  {p['kernels']};  threads: {p['threads']} of {p['cores']} cores")
    if "folders" in found:
        out.say(f"Data sets in:  {found['folders']['data'] or 'no folder'}")
        out.say(f"Compiled code in:  {found['folders']['compiled'] or 'memory only'}")
    if "kernels" in found:
        rows = [
            [c["kernel"], c["dtype"], f"{c['error']:.1e}", "ok" if c["ok"] else "WRONG"]
            for c in found["kernels"]["checks"]
        ]
        out.say()
        title = "Kernels against their numpy references"
        out.table(["kernel", "type", "off by", ""], rows, title=title, flush_left=[0, 1, 3])
        times = ", ".join(
            f"{name} {seconds:.2f} s" for name, seconds in found["kernels"]["seconds"].items()
        )
        out.say(f"Times:  {times}")
    if found.get("model", {}).get("same_after_loading"):
        out.say("A model was trained, saved and loaded, and recommends the same.")
    for note in notes:
        out.say(f"Note: {note}", style="bold")
    for problem in problems:
        out.say(f"PROBLEM: {problem}", style="bold red")
    if not problems:
        out.say("Everything is in order.", style="bold green")

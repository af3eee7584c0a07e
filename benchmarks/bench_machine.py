"""What a measurement ran on: the machine, the code and the load, for the line above every table
of benchmarks.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from discreet.data.ratings import Ratings
from discreet.kernels import thread_count
from discreet.kernels.simd import describe
from discreet.kernels.threads import blas_threads
from discreet.version import __version__


def conditions(quick: bool) -> dict[str, Any]:
    """Date, processor, versions, commit, load and matrix-product speed, now."""
    import numba

    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "threads": thread_count(),
        "vector": describe(),
        "python": platform.python_version(),
        "numba": numba.__version__,
        "code": code(),
        "load": round(os.getloadavg()[0], 1),  # before anything of ours runs
        "gflops": matrix_rate(),
        "quick": quick,
    }


def sentence(found: dict[str, Any]) -> str:
    """The conditions as one line of Markdown."""
    quick = (
        ", quick (a twentieth of the data, so the ratios are not those of the full size)"
        if found["quick"]
        else ""
    )
    peak = f", peak memory {found['peak_gigabytes']:.2f} GB" if "peak_gigabytes" in found else ""
    return (
        f"*Measured on {found['date']}{quick}: {found['code']}, load {found['load']:.1f} before it,"
        f" {found['threads']} threads ({found['processor']}, {found['vector']} kernels), Python"
        f" {found['python']}, numba {found['numba']}, matrix products at {found['gflops']:.0f}"
        f" GFLOP/s (float32, all threads){peak}.*"
    )


def matrix_rate() -> float:
    """GFLOP/s of float32 matrix products on all threads, now."""
    A = np.ones((3072, 3072), np.float32)
    best = np.inf
    with blas_threads():
        for _ in range(4):
            start = time.perf_counter()
            A @ A
            best = min(best, time.perf_counter() - start)
    return float(2 * len(A) ** 3 / best / 1e9)


def peak_gigabytes() -> float:
    """The most memory that this process, or one that it started, has held."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    most = max(
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return most * unit / 1e9


def twin(quick: bool) -> Ratings:
    """The simulated MovieLens 20M, the shape that sweeps and rankings are measured on."""
    from discreet.data.datasets import load_dataset

    return load_dataset("twin-ml20m", scale=0.05 if quick else 1.0)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(
                line.split(":")[1].strip() for line in file if line.startswith("model name")
            )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def code() -> str:
    """The commit that is measured, and whether the code differs from it; the version where
    there is no repository.
    """
    folder = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        commit = git("rev-parse", "--short", "HEAD")
        edited = git("status", "--porcelain", "--", "..")
    except (OSError, subprocess.CalledProcessError):
        return f"discreet {__version__}"
    return f"commit {commit} with changes" if edited else f"commit {commit}"

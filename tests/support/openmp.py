"""The OpenMP library that `implicit` is linked with: checking for it, and installing it.

``python tests/support/openmp.py`` makes sure that `implicit` can be imported; ``make test`` calls
it. Its wheel does not carry libgomp, and a minimal Debian does not have it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PACKAGE = "libgomp1"


def can_import() -> bool:
    """Whether a fresh process can import `implicit`."""
    return (
        subprocess.run([sys.executable, "-c", "import implicit"], capture_output=True).returncode
        == 0
    )


def install() -> None:
    """Install the library where it is missing; raise RuntimeError where that fails."""
    if can_import():
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise RuntimeError(f"install {PACKAGE}: not root, or no apt-get")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=quiet, timeout=300, capture_output=True)
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", PACKAGE]
    done = subprocess.run(command, env=quiet, timeout=600, capture_output=True, text=True)
    if not can_import():
        raise RuntimeError((done.stderr.strip().splitlines() or ["apt-get failed"])[-1])


if __name__ == "__main__":
    try:
        install()
        print("OpenMP for the tests against implicit: found")
    except (RuntimeError, OSError, subprocess.SubprocessError) as problem:
        print(f"implicit cannot be imported ({problem}): the tests against it will fail")

"""Java for the tests of the Spark engine: finding one, and installing one.

``python tests/support/java.py`` makes sure that there is one; ``make test`` calls it. Where none
can be had, the tests that need it are skipped, or fail with CI=true.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

LEAST = 17
PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")


def find() -> str | None:
    """The program of a Java that Spark can use, or None."""
    home = os.environ.get("JAVA_HOME")
    for program in ([os.path.join(home, "bin", "java")] if home else []) + [
        shutil.which("java") or ""
    ]:
        if program and version(program) >= LEAST:
            return program
    return None


def version(program: str) -> int:
    """Its major version, 0 where it does not start."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found and done.returncode == 0 else 0


def install() -> str:
    """A working Java; raises RuntimeError where there is none to be had."""
    if (found := find()) is not None:
        return found
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise RuntimeError("not root, or no apt-get")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=quiet, timeout=300, capture_output=True)
    reason = ""
    for name in PACKAGES:
        done = subprocess.run(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", name],
            env=quiet,
            timeout=900,
            capture_output=True,
            text=True,
        )
        if (found := find()) is not None:
            return found
        reason = (done.stderr.strip().splitlines() or ["apt-get failed"])[-1]
    raise RuntimeError(reason)


if __name__ == "__main__":
    try:
        print(f"Java for the tests: {install()}")
    except (RuntimeError, OSError, subprocess.SubprocessError) as problem:
        print(
            f"No Java for the tests of the Spark engine ({problem}): they will be skipped, or fail"
            " where CI=true"
        )

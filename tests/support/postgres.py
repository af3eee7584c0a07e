"""A PostgreSQL server for the tests of the budget store: finding one, installing one, starting one.

``python tests/support/postgres.py`` makes sure that its programs are there; ``make test`` calls it.
Where they cannot be had, the tests that need them are skipped, or fail with CI=true. Each test
process starts a server of its own in a temporary folder, on a free port of 127.0.0.1 and with a
password; servers that are installed or running are not touched.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PASSWORD = "pass word/%41"  # has what must be encoded in a URL
ENCODED = "pass%20word%2F%2541"
USER = "teller"
START_SECONDS = 60


def find() -> Path | None:
    """The folder of initdb and postgres, or None; Debian has them outside the path."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            return folder
    return None


def install() -> Path:
    """The programs' folder; raises RuntimeError where there is none to be had."""
    if (found := find()) is not None:
        return found
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise RuntimeError("not root, or no apt-get")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=quiet, timeout=300, capture_output=True)
    done = subprocess.run(
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "postgresql"],
        env=quiet,
        timeout=900,
        capture_output=True,
        text=True,
    )
    if (found := find()) is not None:
        return found
    raise RuntimeError((done.stderr.strip().splitlines() or ["apt-get failed"])[-1])


@contextmanager
def server(*settings: str) -> Iterator[str]:
    """Run a server and yield its URL, without a database and with the password."""
    programs = find()
    assert programs is not None
    # it refuses to run as root; the package has made a user for it
    user = {"user": "postgres", "group": "postgres", "extra_groups": []}
    other = user if os.geteuid() == 0 else {}
    # not pytest's folder, which other users cannot enter
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        if other:
            shutil.chown(folder, "postgres", "postgres")
        data = Path(folder, "data")
        secret = Path(folder, "password")
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        make = [programs / "initdb", "-D", data, "-U", USER, "--auth=scram-sha-256", "-E", "UTF8"]
        make += [f"--pwfile={secret}", "--data-checksums", "--locale=C"]
        subprocess.run(make, check=True, capture_output=True, cwd=folder, timeout=120, **other)
        port = _free_port()
        start = [programs / "postgres", "-D", data, "-p", str(port), "-k", folder]
        start += ["-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=16MB"]
        for setting in settings:
            start += ["-c", setting]
        with open(Path(folder, "log"), "w") as log:
            process = subprocess.Popen(start, stdout=log, stderr=log, cwd=folder, **other)
        try:
            url = f"postgresql://{USER}:{ENCODED}@127.0.0.1:{port}"
            _wait(url, process, Path(folder, "log"))
            yield url
        finally:
            process.send_signal(signal.SIGINT)  # do not wait for clients
            process.wait(60)


def new_database(url: str) -> str:
    """Make an empty database and return its URL."""
    import psycopg

    name = f"d{time.time_ns()}"
    with psycopg.connect(f"{url}/postgres", autocommit=True) as base:
        base.execute(f"CREATE DATABASE {name}")
    return f"{url}/{name}"


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    end = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(f"{url}/postgres").close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"PostgreSQL does not start:\n{log.read_text()}") from None
            time.sleep(0.1)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    try:
        print(f"PostgreSQL for the tests: {install()}")
    except (RuntimeError, OSError, subprocess.SubprocessError) as problem:
        print(
            f"No PostgreSQL for the tests of the budget store ({problem}): they will be skipped, or"
            " fail where CI=true"
        )

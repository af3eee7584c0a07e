"""Run the steps of the Dockerfile in a chroot, and ask the service that comes out of it.

For machines without a container engine. Needs root and a Debian root with python3-venv as the base
image (its Python may differ from that of the image)::

    debootstrap --include=python3-venv,ca-certificates bookworm ROOT http://deb.debian.org/debian
    unshare --mount python packaging/check_dockerfile.py ROOT WORK MODEL

Copies of ROOT, one per stage, go to WORK. The service runs as the image does: as its user, on a
read-only file system with a /tmp, and with the saved MODEL at /model.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CONTEXT = Path(__file__).resolve().parents[1]
#: Passed on to the steps: where certificates are, and how pip reaches its index.
PASSED_ON = ("SSL_CERT_FILE", "PIP_CERT", "PIP_INDEX_URL", "HTTPS_PROXY", "https_proxy")


def read_instructions(file: Path) -> list[tuple[str, str]]:
    """Return (instruction, arguments), with continued lines joined."""
    text = re.sub(r"^#.*\n", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [tuple(line.split(None, 1)) for line in lines if line.strip()]  # type: ignore[misc]


def run(root: Path, words: list[str], stage: dict[str, Any], **more: Any) -> Any:
    """Start a program in a stage, with its environment, folder and user."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}

    def enter() -> None:
        os.chroot(root)
        os.chdir(stage["folder"])
        if stage["user"]:
            os.setgid(stage["user"])
            os.setuid(stage["user"])

    return subprocess.Popen(words, preexec_fn=enter, env=passed | stage["env"], **more)


def build(base: Path, work: Path) -> tuple[Path, dict[str, Any]]:
    """Run all instructions; return the root of the last stage and what was declared of it."""
    stages: dict[str, Path] = {}
    stage: dict[str, Any] = {}
    root = work
    for name, rest in read_instructions(CONTEXT / "Dockerfile"):
        words = shlex.split(rest)
        print(name, rest, flush=True)
        if name == "FROM":
            label = words[2] if len(words) > 2 else "last"
            root = stages[label] = work / label
            work.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(root, ignore_errors=True)
            subprocess.run(["cp", "-a", str(base), str(root)], check=True)
            (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
            shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
            if os.path.exists(os.environ.get("SSL_CERT_FILE", "")):
                certificates = os.environ["SSL_CERT_FILE"]
                shutil.copy(certificates, root / certificates.lstrip("/"))
            path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
            stage = {"env": {"PATH": path}, "folder": "/", "user": 0}
        elif name == "WORKDIR":
            stage["folder"] = rest
            (root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "ENV":
            for pair in words:
                key, value = pair.split("=", 1)
                stage["env"][key] = value.replace("$PATH", stage["env"]["PATH"])
        elif name == "COPY":
            source = CONTEXT
            if words[0].startswith("--from="):
                source = stages[words.pop(0).removeprefix("--from=")]
            *files, to = words
            target = root / os.path.join(stage["folder"], to).lstrip("/")
            for file in files:
                found = source / file.lstrip("/")
                place = target if found.is_dir() else target / found.name
                subprocess.run(["cp", "-aT", str(found), str(place)], check=True)
        elif name == "RUN":
            if run(root, ["/bin/sh", "-c", rest], stage).wait() != 0:
                raise SystemExit(f"failed: RUN {rest}")
        elif name == "USER":
            stage["user"] = int(rest)
        elif name in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
            stage[name] = json.loads(rest[rest.index("[") :])
        elif name != "EXPOSE":
            raise SystemExit(f"unknown instruction {name}")
    return root, stage


def serve(root: Path, stage: dict[str, Any], model: Path) -> None:
    """Start the image's command on a read-only file system, and run its health check."""
    (root / "model").mkdir(exist_ok=True)
    for mount in (
        ["--bind", str(root), str(root)],
        ["--bind", str(model), str(root / "model")],
        ["-t", "tmpfs", "tmpfs", str(root / "tmp")],
        ["-o", "remount,bind,ro", str(root)],
    ):
        subprocess.run(["mount", *mount], check=True)
    service = run(root, stage["ENTRYPOINT"] + stage["CMD"], stage)
    try:
        for _ in range(60):
            time.sleep(1)
            if run(root, stage["HEALTHCHECK"], stage, stderr=subprocess.DEVNULL).wait() == 0:
                break
        else:
            raise SystemExit("the service is not healthy after a minute")
        code = (
            "import json, urllib.request as u; r = u.Request('http://127.0.0.1:8000/v1/recommend',"
            " json.dumps({'history': [], 'n': 3}).encode(), {'content-type': 'application/json'});"
            " print(u.urlopen(r, timeout=5).read().decode())"
        )
        if run(root, ["python", "-c", code], stage).wait() != 0:
            raise SystemExit("the service does not answer")
        written = run(root, ["touch", "/opt/x"], stage, stderr=subprocess.DEVNULL).wait()
        print("user", stage["user"], "- file system is read-only:", written != 0)
    finally:
        service.terminate()
        print("exit code after SIGTERM:", service.wait(30))


if __name__ == "__main__":
    base_root, work_folder, saved = (Path(word).resolve() for word in sys.argv[1:])
    serve(*build(base_root, work_folder), saved)

"""A headless Chromium for the tests: finding one, installing one, and talking to it.

``python tests/support/chromium.py`` makes sure that there is one; ``make test`` calls it. In this
order:

1. ``DISCREET_BROWSER``, or a Chromium or Chrome that is installed already;
2. the distribution's package, where we are root and there is ``apt-get``;
3. the Chromium that the npm package @sparticuz/chromium carries, unpacked into ``.venv`` (no root,
   no node needed).

It is driven over a pipe by Chromium's own DevTools protocol, so no driver is needed either. Pages
are checked for accessibility by axe-core, from npm as well (MPL-2.0; it is not part of the wheel).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import platform
import select
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve()
UNPACKED = HERE.parents[2] / ".venv" / "chromium"
NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
PACKAGE = "https://registry.npmjs.org/@sparticuz/chromium/-/chromium-153.0.0.tgz"
SHA512 = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
AXE = HERE.parents[2] / ".venv" / "axe-core" / "axe.min.js"
AXE_PACKAGE = "https://registry.npmjs.org/axe-core/-/axe-core-4.14.0.tgz"
AXE_SHA512 = (
    "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ=="
)
#: Rules of axe-core: WCAG 2.0 to 2.2, levels A and AA, and what its authors recommend besides.
AXE_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


# ------------------------------------------------------------ having one


def find() -> str | None:
    """The program of a browser that starts, or None."""
    given = os.environ.get("DISCREET_BROWSER")
    if given:
        return given if works(given) else None
    for name in (*NAMES, str(UNPACKED / "chromium")):
        program = shutil.which(name)
        if program and works(program):
            return program
    return None


def works(program: str) -> bool:
    """Whether it is there, is a browser and not a stub (Ubuntu's asks for snap), and finds its
    libraries.
    """
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, timeout=30, env=environment(program)
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and b"Chrom" in done.stdout


def environment(program: str) -> dict[str, str]:
    """With the libraries that came with the unpacked one."""
    mine = dict(os.environ)
    if Path(program).parent == UNPACKED:
        mine["LD_LIBRARY_PATH"] = f"{UNPACKED / 'lib'}:{mine.get('LD_LIBRARY_PATH', '')}"
    return mine


def install() -> str:
    """A working browser; raises RuntimeError with all reasons where there is none to be had."""
    reasons = []
    for how in (_by_apt, _by_npm):
        if (found := find()) is not None:
            return found
        try:
            how()
        except (
            OSError,
            RuntimeError,
            ValueError,
            subprocess.SubprocessError,
            tarfile.TarError,
        ) as error:
            reasons.append(f"{how.__name__[4:]}: {error}")
    if (found := find()) is not None:
        return found
    raise RuntimeError("; ".join(reasons) or "what was installed does not start")


def _by_apt() -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise RuntimeError("not root, or no apt-get")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=quiet, timeout=300, capture_output=True)
    # the first is smaller; older distributions have the second
    for name in ("chromium-headless-shell", "chromium"):
        done = subprocess.run(
            [
                "apt-get",
                "install",
                "-y",
                "-qq",
                "--no-install-recommends",
                name,
                "fonts-dejavu-core",
            ],
            env=quiet,
            timeout=900,
            capture_output=True,
            text=True,
        )
        if done.returncode == 0 and find() is not None:
            return
    raise RuntimeError((done.stderr.strip().splitlines() or ["apt-get failed"])[-1])


def _by_npm() -> None:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise RuntimeError(
            f"the package holds none for {platform.system()} on {platform.machine()}"
        )
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "brotli"],
        check=True,
        capture_output=True,
        timeout=300,
    )
    import brotli  # type: ignore[import-not-found]

    packed = _fetch(PACKAGE, SHA512)
    aside = Path(tempfile.mkdtemp(dir=UNPACKED.parent, prefix=".chromium-"))
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as package:
            parts = {
                Path(member.name).name: brotli.decompress(package.extractfile(member).read())  # type: ignore[union-attr]
                for member in package.getmembers()
                if member.name.endswith(".br")
            }
        (aside / "chromium").write_bytes(parts["chromium.br"])
        (aside / "chromium").chmod(0o755)
        for name, where in (("al2023.tar.br", aside), ("swiftshader.tar.br", aside)):
            if name in parts:
                with tarfile.open(fileobj=io.BytesIO(parts[name])) as more:
                    more.extractall(where, filter="data")
        shutil.rmtree(UNPACKED, ignore_errors=True)
        aside.rename(UNPACKED)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _fetch(package: str, sha512: str) -> bytes:
    """Download a package from npm, and check that it is the one known."""
    with urllib.request.urlopen(package, timeout=120) as answer:
        packed = bytes(answer.read())
    if base64.b64encode(hashlib.sha512(packed).digest()).decode() != sha512:
        raise RuntimeError("the package from npm is not the one known")
    return packed


def install_axe() -> Path:
    """Unpack the script of axe-core into ``.venv``, unless it is there."""
    if not AXE.exists():
        with tarfile.open(fileobj=io.BytesIO(_fetch(AXE_PACKAGE, AXE_SHA512))) as package:
            script = package.extractfile("package/axe.min.js").read()  # type: ignore[union-attr]
        AXE.parent.mkdir(exist_ok=True)
        AXE.write_bytes(script)
    return AXE


# ------------------------------------------------------------ using one


class Browser:
    """One running Chromium; `page` gives an empty page in it."""

    def __init__(self, program: str, profile: Path) -> None:
        ours, theirs = os.pipe(), os.pipe()  # commands go out on one, answers come in on the other

        def as_3_and_4() -> None:
            # moved out of the way first: either may be 3 or 4 already
            reading, writing = os.dup(ours[0]), os.dup(theirs[1])
            while reading in (3, 4) or writing in (3, 4):
                reading, writing = os.dup(reading), os.dup(writing)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        words = [
            "--headless",
            "--remote-debugging-pipe",
            "--no-first-run",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--force-color-profile=srgb",
            f"--user-data-dir={profile}",
        ]
        if os.geteuid() == 0:
            words.append("--no-sandbox")  # Chromium refuses to be root inside its sandbox
        self._process = subprocess.Popen(
            [program, *words, "about:blank"],
            preexec_fn=as_3_and_4,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(program),
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._out, self._in = ours[1], theirs[0]
        self._left, self._number = b"", 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; what happens meanwhile goes to `events`."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        wanted = self._number
        while True:
            answer = self._read(60)
            if answer.get("id") == wanted:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])
            self.events.append(answer)

    def wait(self, method: str, session: str, seconds: float = 20) -> dict[str, Any]:
        """The next event of that kind, which may have come already."""
        end = time.monotonic() + seconds
        while True:
            for at, event in enumerate(self.events):
                if event.get("method") == method and event.get("sessionId") == session:
                    return self.events.pop(at)["params"]
            self.events.append(self._read(end - time.monotonic()))

    def _read(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser did not answer")
            more = os.read(self._in, 1 << 16)
            if not more:
                raise RuntimeError("the browser has gone")
            self._left += more
        line, _, self._left = self._left.partition(b"\0")
        return dict(json.loads(line))

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.call("Browser.close")
        os.close(self._out)
        os.close(self._in)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @contextlib.contextmanager
    def page(
        self, width: int, height: int = 900, *, scheme: str = "light", phone: bool = False
    ) -> Iterator[Page]:
        """A page of that size."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for part in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{part}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        page.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        try:
            yield page
        finally:
            self.call("Target.closeTarget", targetId=target)
            self.events = [event for event in self.events if event.get("sessionId") != session]


class Page:
    """A page: what it shows, what it says, what it asks for."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def open(self, where: Path | str) -> None:
        """Open a file or an address."""
        url = where if isinstance(where, str) else where.resolve().as_uri()
        self.call("Page.navigate", url=url)
        self._browser.wait("Page.loadEventFired", self._session)
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
        )

    def evaluate(self, script: str) -> Any:
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors, warnings and log lines of the page."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self._events() if event["method"] in kinds]

    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        found = [
            event["params"]["request"]["url"]
            for event in self._events()
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in found if url != "about:blank"]

    def accessibility_problems(self) -> list[str]:
        """Return what axe-core finds: the rule, and the elements that break it."""
        try:
            script = install_axe().read_text(encoding="utf-8")
        except (OSError, RuntimeError) as problem:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"no axe-core ({problem}): run python tests/support/chromium.py")
        self.evaluate(script + ";0")
        return list(
            self.evaluate(
                f"axe.run(document, {{runOnly: {json.dumps(AXE_RULES)}}}).then(found =>"
                " found.violations.map(rule => rule.id + ': ' + rule.nodes.map(node =>"
                " node.html).join(', ')))"
            )
        )

    def focused(self) -> str:
        """Return the key of the control that has the focus, or its id."""
        return str(
            self.evaluate("document.activeElement.dataset.key || document.activeElement.id || ''")
        )

    def point(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        number, text = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, "")}.get(key, (0, ""))
        more = {"windowsVirtualKeyCode": number} if number else {}
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **more, **typed)

    def screenshot(self, file: Path, whole: bool = True) -> None:
        found = self.call("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        file.write_bytes(base64.b64decode(found["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF")["data"])

    def _events(self) -> list[dict[str, Any]]:
        self.evaluate("1")  # everything before this has arrived
        return [event for event in self._browser.events if event.get("sessionId") == self._session]


if __name__ == "__main__":
    try:
        print(f"Browser for the tests: {install()}, with {install_axe()}")
    except (RuntimeError, OSError) as problem:
        print(
            f"No browser for the tests of pages ({problem}): they will be skipped, or fail"
            " where CI=true"
        )

"""A real browser for the page, which the tests of the report know how to find."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from support import chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    """A running headless Chromium. ``make test`` installs one; see tests/support/chromium.py."""
    program = chromium.find()
    if program is None:
        message = (
            "no Chromium found: run python tests/support/chromium.py, or set DISCREET_BROWSER to"
            " the program"
        )
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    running = chromium.Browser(program, tmp_path_factory.mktemp("profile"))
    yield running
    running.close()

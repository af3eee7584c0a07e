"""Every planted fault is caught by the tests that docs/planted-faults.md names. Run this file to
write its table.
"""

import re
from pathlib import Path

import pytest

from support.fault_helpers import FAULTS, planted

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/planted-faults.md"


class Failures:
    """A plugin that keeps what tests failed of."""

    def __init__(self):
        self.messages = []

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.messages.append(f"{report.when}: {report.longrepr.reprcrash.message}")


def locate(test):
    """Return the path of a test that is named by its file alone."""
    file, _, name = test.partition("::")
    found = [HERE / file, *HERE.glob(f"*/{file}")]
    return f"{next(path for path in found if path.exists())}::{name}"


def run(tests):
    """What the first of these tests to fail says, in this process; nothing if all pass."""
    options = [
        "-q",
        "-x",
        "--no-header",
        "--no-summary",
        "--tb=short",
        "--disable-plugin-autoload",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:unraisableexception",  # collects garbage ten times a run, in a process full of tests
    ]
    failures = Failures()
    code = int(pytest.main([*options, *map(locate, tests)], plugins=[failures]))
    assert code == bool(failures.messages), f"pytest ended with {code}"  # others: nothing ran
    return "".join(failures.messages)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught_by_each_test_named_for_it(fault):
    with planted(fault):
        for test in FAULTS[fault].caught_by:
            # by an assertion, and not because the change does not even run
            assert re.match(r"call: (AssertionError|assert |Failed: DID NOT RAISE)", run([test])), (
                test
            )


def test_without_faults_the_same_tests_pass():
    """One of each file here, run as above; the suite runs all of them by themselves."""
    tests = sorted({test for fault in FAULTS.values() for test in fault.caught_by})
    one_of_each = {test.partition("::")[0]: test for test in tests}
    assert run(one_of_each.values()) == ""


def test_a_planted_fault_is_gone_afterwards():
    from discreet.privacy.statistics import bounds
    from discreet.privacy.users import steps

    before = bounds.clip_rows
    with planted("vectors are not clipped"):
        assert bounds.clip_rows is steps.clip_rows is not before
    assert bounds.clip_rows is steps.clip_rows is before


def table():
    """The table of docs/planted-faults.md."""
    from test_audit import AUDITED

    lines = ["| fault | in | caught by | audit |", "|---|---|---|---|"]
    for name, fault in FAULTS.items():
        tests = "<br>".join(
            f"`{test.rpartition('/')[2].replace('.py::', '::')}`" for test in fault.caught_by
        )
        audited = "flags it" if name in AUDITED else ""
        lines.append(f"| {name} | `{fault.where.replace(':', '.')}` | {tests} | {audited} |")
    return "\n".join(lines)


def test_the_page_lists_exactly_these_faults_and_tests():
    page = PAGE.read_text(encoding="utf-8")
    before, found, after = page.partition(table())
    assert found
    assert before.endswith("\n\n")
    assert after == "\n" or after.startswith("\n\n"), (
        "the table is followed by what is no row of it"
    )
    # nor do rows, or halves of them, stand anywhere else
    assert "| fault " not in before + after
    assert not [line for line in (before + after).splitlines() if "::test_" in line and "|" in line]


def write_table():
    """Put the table on the page, in the place of the one that is there."""
    page = PAGE.read_text(encoding="utf-8")
    found = re.search(r"^\| fault \|.*?\n(?=\n|\Z)", page, flags=re.DOTALL | re.MULTILINE)
    assert found
    PAGE.write_text(page.replace(found.group(), table() + "\n"), encoding="utf-8")


if __name__ == "__main__":
    write_table()

"""What the pages say about the tests is true."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_test_named_in_the_errata_exists_and_every_erratum_has_a_paragraph():
    text = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    code = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")
    )
    named = set(re.findall(r"`(test_\w+)`", text))
    assert len(named) > 15
    assert sorted(name for name in named if f"def {name}(" not in code) == []
    assert set(re.findall(r"def (test_erratum_\w+)\(", code)) <= named
    assert [int(number) for number in re.findall(r"^\*\*(\d+)\. ", text, re.MULTILINE)] == list(
        range(1, 14)
    )


def test_pages_link_to_pages_that_exist():
    for page in (ROOT / "docs").glob("*.md"):
        for target in re.findall(r"\]\(([\w-]+\.md)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).is_file(), f"{page.name} links to {target}"


def test_pages_name_files_that_exist():
    """Files move, and pages that name them should follow; what a reader is to write is called
    your_something.
    """
    for page in (ROOT / "docs").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"`((?:tests|src|research|benchmarks)/[\w/]+\.py)`", text)
        named += [
            f"src/discreet/{file}"
            for file in re.findall(r"`((?:models|privacy)/[\w/]+\.py)`", text)
        ]
        missing = [file for file in named if "your_" not in file and not (ROOT / file).is_file()]
        assert missing == [], page.name


def test_the_map_of_the_architecture_names_every_module_below_the_command_line():
    """Whoever adds a file says in one word on the map what it is for."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = set(re.findall(r"\w+", text.split("```")[1]))
    rooms = ("models", "engines", "privacy", "evaluation", "kernels", "data")
    files = [file for room in rooms for file in (ROOT / "src" / "discreet" / room).rglob("*.py")]
    inner = {"blocks", "spark"}  # engines of several files are one word on the map
    names = {
        file.stem for file in files if file.stem != "__init__" and file.parent.name not in inner
    }
    assert len(names) > 80
    assert sorted(names - drawn) == [], "name them in the map of docs/architecture.md"

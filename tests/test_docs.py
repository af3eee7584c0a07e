"""Check what the pages say about tests, files and words, and how they are written."""

import importlib
import operator
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
GENERATED = {"audits", "benchmarks", "leaderboard", "planted-faults"}
HANDWRITTEN = [page for page in sorted(DOCS.glob("*.md")) if page.stem not in GENERATED]
NEWCOMERS = ["index", "get-started", "choose-epsilon", "data", "deploy", "faq", "erasure"]
MOST_WORDS = 22_500  # tokens with a letter or digit: rules of tables are no words
MOST_IN_CONTRIBUTING = 900  # it is read before a first change
MOST_IN_A_SENTENCE = 35
MOST_IN_A_CELL = 40


def prose(page: Path) -> str:
    """Return the text of a page without front matter, code, headings and link targets."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"`[^`]*`", "`code`", text)
    return "\n".join(line for line in text.splitlines() if not line.startswith(("#", "$$")))


def sentences(text: str) -> list[str]:
    """Split prose without tables into sentences: at full stops, paragraphs and list items."""
    text = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    blocks = re.split(r"\n\s*\n|\n\s*(?:[-*>]|\d+\.) ", text)
    return [
        " ".join(part.split())
        for block in blocks
        for part in re.split(r"(?<=[.:;?!])\s+(?=[\[\"“*`(A-Z])", block)
        if part.strip()
    ]


def test_errata_have_paragraphs_and_existing_tests():
    text = (DOCS / "errata.md").read_text(encoding="utf-8")
    code = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")
    )
    named = set(re.findall(r"`(test_\w+)`", text))
    assert len(named) > 15
    assert sorted(name for name in named if f"def {name}(" not in code) == []
    assert set(re.findall(r"def (test_erratum_\w+)\(", code)) <= named
    numbers = [int(number) for number in re.findall(r"^\*\*(\d+)\. ", text, re.MULTILINE)]
    assert sorted(numbers) == list(range(1, 15))


def test_pages_name_files_that_exist():
    """A file named your_something is what a reader is to write."""
    for page in HANDWRITTEN:
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"`((?:tests|src|research|benchmarks)/[\w/]+\.py)`", text)
        named += [
            f"src/discreet/{file}"
            for file in re.findall(r"`((?:models|privacy|cli)/[\w/]+\.py)`", text)
        ]
        missing = [file for file in named if "your_" not in file and not (ROOT / file).is_file()]
        assert missing == [], page.name


def test_the_source_names_pages_that_exist():
    for folder in ("src", "research", "benchmarks", "tests"):
        for file in (ROOT / folder).rglob("*.py"):
            for name in re.findall(r"docs/([\w/-]+\.md)", file.read_text(encoding="utf-8")):
                assert (DOCS / name).is_file(), f"{file.relative_to(ROOT)} names docs/{name}"


def test_the_architecture_names_every_package():
    text = (DOCS / "contributing.md").read_text(encoding="utf-8")
    packages = [file.parent for file in (ROOT / "src" / "discreet").glob("*/__init__.py")]
    assert [p.name for p in packages if f"`src/discreet/{p.name}`" not in text] == []


def table_rows(page: Path, heading: str) -> dict[str, list[str]]:
    """Return the code in each row of the table under a heading, by the row's first cell."""
    section = page.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return {line.split("|")[1].strip(): re.findall(r"`([^`]+)`", line) for line in lines}


WHERE_TO_ADD = table_rows(DOCS / "contributing.md", "Where to add what")


@pytest.mark.parametrize("row", WHERE_TO_ADD)
def test_each_row_of_where_to_add_what_leads_to_code(row):
    """Its files exist, and each of its names can be imported from one of them."""
    paths = [code for code in WHERE_TO_ADD[row] if "/" in code]
    names = [code for code in WHERE_TO_ADD[row] if "/" not in code]
    assert names
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    modules = [
        importlib.import_module(path[4:-3].replace("/", ".").removesuffix(".__init__"))
        for path in paths
        if path.startswith("src/") and path.endswith(".py")
    ]
    for name in names:
        found = [module for module in modules if _has(module, name)]
        assert found, f"{name} is in none of {paths}"


def _has(module: object, name: str) -> bool:
    """Check whether the dotted name can be read from the module."""
    try:
        operator.attrgetter(name)(module)
    except AttributeError:
        return False
    return True


def test_contributing_is_short_and_names_files_and_folders_that_exist():
    """A file named your_something is what a reader is to write."""
    text = (DOCS / "contributing.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|tests|docs|examples|research|benchmarks)(?:/[\w/.-]*)?)`", text)
    assert len(named) > 30
    assert [path for path in named if "your_" not in path and not (ROOT / path).exists()] == []
    assert len(text.split()) <= MOST_IN_CONTRIBUTING


def test_handwritten_pages_are_few_and_short():
    words = {
        page.stem: len(re.findall(r"\S*\w\S*", page.read_text(encoding="utf-8")))
        for page in HANDWRITTEN
    }
    assert len(words) <= 24
    assert sum(words.values()) <= MOST_WORDS, words


@pytest.mark.parametrize("page", [*HANDWRITTEN, ROOT / "README.md"], ids=lambda page: page.stem)
def test_pages_have_no_pronoun_subjects_and_no_metaphors(page):
    """The words that the naming rules retire."""
    words = "nobody somebody everybody whoever beside besides twin twins coin coins crowd drown"
    retired = rf"\b(?:{words.replace(' ', '|')})\b"
    found = re.findall(retired, prose(page), re.IGNORECASE)
    assert found == []


@pytest.mark.parametrize("name", NEWCOMERS)
def test_sentences_on_newcomers_pages_are_short(name):
    long = [
        sentence
        for sentence in sentences(prose(DOCS / f"{name}.md"))
        if len(sentence.split()) > MOST_IN_A_SENTENCE
    ]
    assert long == []


def test_cells_of_the_papers_are_short():
    for line in (DOCS / "papers.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            long = [c for c in line.strip("|").split("|") if len(c.split()) > MOST_IN_A_CELL]
            assert long == []


def test_the_numbers_of_choose_epsilon_are_those_measured():
    import json

    from research import expectations

    text = (DOCS / "choose-epsilon.md").read_text(encoding="utf-8")
    found = json.loads(expectations.MEASURED.read_text(encoding="utf-8"))
    assert expectations.tables(found) in text, "run python -m research.expectations write"

"""Run the examples, which docs/contributing.md names."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples" / "extending").glob("*.py"))
PAGE = ROOT / "docs" / "contributing.md"


@pytest.fixture
def registries():
    """What examples register is forgotten afterwards."""
    from discreet.models.algorithm import ALGORITHMS
    from discreet.privacy.statistics.base import STATISTICS

    before = [(registry, dict(registry)) for registry in (ALGORITHMS, STATISTICS)]
    yield
    for registry, content in before:
        registry.clear()
        registry.update(content)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, registries, capsys):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    assert capsys.readouterr().out.strip()


def test_the_page_names_every_example():
    text = PAGE.read_text(encoding="utf-8")
    for path in EXAMPLES:
        assert path.relative_to(ROOT).as_posix() in text

"""The figure and the table of the README are what `python benchmarks/readme.py` writes from the
measured numbers.
"""

import importlib.util
import shutil
from html import unescape
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
AGAIN = "run python benchmarks/readme.py: the numbers in docs/ are others now"


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("readme", ROOT / "benchmarks" / "readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_shows_the_measured_numbers(maker):
    drawn = unescape((ROOT / "docs" / "pictures" / "quality.svg").read_text(encoding="utf-8"))
    assert maker.described(maker.curves()) in drawn, AGAIN


def test_the_table_has_the_measured_numbers(maker):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "\n".join(maker.compared()) in text, AGAIN


def test_other_numbers_make_another_picture_and_another_table(maker, monkeypatch, tmp_path):
    folder = tmp_path / "results"
    shutil.copytree(maker.RESULTS, folder)
    page = folder / "beyond-ranking.md"
    old = f"{maker.curves()['ml-1m']['private'][1.0]:.4f}"
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace(f"| {old} ±", "| 0.9999 ±"), encoding="utf-8")
    before = maker.compared()
    monkeypatch.setattr(maker, "RESULTS", folder)
    assert maker.curves()["ml-1m"]["private"][1.0] == 0.9999
    assert maker.compared() != before
    maker.draw(tmp_path / "q.svg")
    assert "0.9999" not in maker.described({})
    assert maker.described(maker.curves()) in unescape(
        (tmp_path / "q.svg").read_text(encoding="utf-8")
    )

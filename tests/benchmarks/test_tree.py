"""The source tree keeps the names of the field: see benchmarks/tree.py for the rules."""

from pathlib import Path

import pytest

from benchmarks import tree

SRC = Path(__file__).resolve().parents[2] / "src"


def test_functions_are_not_named_by_participles():
    found = tree.count_names(SRC)
    assert found["participle share"] <= 0.01


def test_a_class_name_means_one_class():
    assert tree.count_names(SRC)["classes defined twice"] == []


def test_packages_do_not_import_each_other():
    assert tree.find_cycles(SRC) == []


@pytest.mark.parametrize(
    ("name", "participle"),
    [
        ("shown", True),
        ("_parsed", True),
        ("of", True),
        ("parse_id", False),
        ("ratings", False),
        ("seed", False),
    ],
)
def test_what_counts_as_a_participle(name, participle):
    assert tree.is_participle(name) is participle

"""Messages on a command line name its options, never the parameters of Python that they stand
for.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import discreet
from discreet.cli.messages import for_shell

# parameters of the readers of data that have an option of the command line
OPTIONS = [
    "user",
    "item",
    "rating",
    "timestamp",
    "header",
    "separator",
    "duplicates",
    "unknown_items",
    "items",
    "folder",
    "allow_large_delta",
]
ERRORS = {"ConfigError", "DataError", "RowError"}


def find_messages():
    """Every literal message of an error that reading data can end in, with its place."""
    root = Path(discreet.__file__).parent
    for file in sorted([*(root / "data").glob("*.py"), *(root / "engines").rglob("*.py")]):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id in ERRORS
            ):
                parts = [
                    part
                    for given in call.args
                    for part in ast.walk(given)
                    if isinstance(part, ast.Constant)
                ]
                yield f"{file.name}:{call.lineno}", "".join(str(part.value) for part in parts)


def test_messages_of_reading_data_name_options():
    left = re.compile(rf"\b({'|'.join(OPTIONS)})=")
    messages = list(find_messages())
    assert len(messages) > 50
    assert [place for place, text in messages if left.search(for_shell(text))] == []


@pytest.mark.parametrize(
    ("python", "shell"),
    [
        (
            "say with folder= where sealed blocks may be",
            "say with --keep where sealed blocks may be",
        ),
        ('pass unknown_items="drop" to leave', "pass --unknown-items drop to leave"),
        ('duplicates="mean" is', "--duplicates mean is"),
        ("duplicates='last' keeps", "--duplicates last keeps"),
        ("pass --try, such as --try factors=16,32", "pass --try, such as --try factors=16,32"),
        ("factors is -3, but must be above 0", "--factors is -3, but must be above 0"),
        (
            "DPMF has no parameter item_features: it has factors, rating_range",
            "DPMF has no parameter --item-features: it has factors, rating_range",
        ),
        ("or pass allow_large_delta=True.", "or pass --allow-large-delta."),
        ("distribution='foo': choose", "--distribution foo: choose"),
        ("choose smaller n_valid and n_test", "choose a smaller --test-users"),
        (
            "Pass epsilon and rating_range to open one.",
            "To open one, run discreet timeline open with --epsilon and --rating-range.",
        ),
    ],
)
def test_parameters_become_options(python, shell):
    assert for_shell(python) == shell


def test_too_little_memory_on_sealed_data_says_what_to_do_and_no_number():
    said = for_shell("the users' gram could not be computed (MemoryError)")
    assert said.endswith(
        "could not be computed: there is not enough memory. Use fewer factors, or --engine blocks"
    )

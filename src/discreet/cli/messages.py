"""What the library says, made fit for a shell: parameters become options, and nothing in it can
steer a terminal.
"""

from __future__ import annotations

import re

_RULES = [
    (r"\b(user|item)=(\d+)\b", r"--\1 \2"),
    (r"\b(user|item|rating|timestamp)='([^']*)'", r"--\1 '\2'"),
    (r"\b(rating|timestamp)=False", r"--\1 none"),
    (r"\b(user|item|rating|timestamp)=(\.\.\.|<column name>)", r"--\1 COLUMN"),
    (r"\b(user|item|rating|timestamp)=(?=[\s,;:.]|$)", r"--\1"),
    (r"(--user COLUMN) when reading", r"\1"),
    (r"\breplace=True\b", "--replace"),
    (r"\btrust_user_column=True\b", "--trust-user-column"),
    (r"\brating_range\b(?!=)", "--rating-range"),
    (r"\brandom_state\b=?", "--random-state"),
    (r"\bheader=False", "--no-header"),
    (r"\bheader=True", "--header"),
    (r"\bseparator='([^']*)'", r"--separator '\1'"),
    (r"\bseparator=(?=[\s,;:.]|$)", "--separator"),
    (r"\bduplicates=['\"]?(\w+)['\"]?", r"--duplicates \1"),
    (r"\bunknown_items=['\"]drop['\"]", "--unknown-items drop"),
    (r"\ballow_large_delta=True\b", "--allow-large-delta"),
    (r"\bfolder=(?=[\s,;:.]|$)", "--keep"),
    (r"\bunknown='(skip|drop)'", "--skip-unknown"),
    (r"\bgoal='(\w+)'", r"--goal \1"),
    (r"\bitems=(?=[\s,;:.]|$)", "--items"),
    (r"\brelevant=(?=[\s,;:.]|$)", "--relevant"),
    (r"\brating_range=(?=[\s,;:.]|$)", "--rating-range"),
    (r"\b(epsilon|delta|neighboring|noise|accountant)='?([\w.+-]+)'?", r"--\1 \2"),
    (r"\bpath=(\.\.\.)?(?=[\s,;:.)]|$)", "--path"),
    (r" \(MemoryError\)$", ": there is not enough memory. Use fewer factors, or --engine blocks"),
]

_USAGE = [
    (r"Value error, ", ""),
    (r"Input should be a valid integer.*", "should be a whole number"),
    (r"Input should be a valid number.*", "should be a number"),
    (r"Input should be", "should be"),
    (r"^Invalid value for ", ""),
    (r"\. Did you mean", ": did you mean"),
]


# control characters but tab and end of line, and those that turn the direction of writing
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Text that somebody else may have written, such as a title, as a terminal may have it."""
    return _STEERING.sub("\ufffd", text)


def format_count(n: int, what: str) -> str:
    """``1 user``, ``20,000 users``."""
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def usage_words(message: str) -> str:
    """typer's message about a wrong call, as the beginning of a sentence."""
    for pattern, replacement in _USAGE:
        message = re.sub(pattern, replacement, message)
    message = message.rstrip(".")
    return message[:1].lower() + message[1:]


def for_shell(message: str) -> str:
    """The same message with ``name=value`` written as ``--name value`` where that is an option."""
    for pattern, replacement in _RULES:
        message = re.sub(pattern, replacement, message)
    return message

"""Messages for the terminal: parameter names become options, control characters are replaced."""

from __future__ import annotations

import re

#: Parameters of Python that have an option of the same name, such as ``--rating-range``.
_WORDS = """
    user item rating timestamp header separator duplicates unknown_items items relevant
    rating_range goal factors iterations regularization item_features random_state epsilon delta
    neighboring noise accountant allow_large_delta trust_user_column replace normalize_ids
    missing distribution encoding dates public_ratings public_confirmed_by features
"""
_OPTIONS = re.findall(r"\w+", _WORDS)
#: Parameters whose option has another name.
_OTHER_NAMES = {"folder": "--keep", "unknown": "--skip-unknown", "path": "--path"}
_NAMES = {name: "--" + name.replace("_", "-") for name in _OPTIONS} | _OTHER_NAMES
_ANY = "|".join(sorted(_NAMES, key=len, reverse=True))
#: ``name=value``, ``name='a value'`` and ``name=`` at the end of a clause. What follows
#: --try and --set stays as it is typed.
_ASSIGNED = re.compile(
    rf"(?<!--try )(?<!--set )\b({_ANY})="
    r"(?:'([^']*)'|\"([^\"]*)\"|(<column name>|\.\.\.|[\w+-]+(?:\.\d+)?))?(?!\()"
)
#: Names with an underscore are never plain English, so they are replaced without ``=`` as well.
_ALONE = re.compile(rf"(?<![\w-])('?)({'|'.join(n for n in _NAMES if '_' in n)})\1(?![\w=])")
#: Model parameters without underscore at the beginning of a message: ``factors is -3, but must …``.
_FIRST = re.compile(
    r"^(factors|iterations|regularization|goal|epsilon|delta|noise|features|memory|scale)"
    r"(?= is .*but must| is for | names columns )"
)
_OUT_OF_MEMORY = ": there is not enough memory. Use fewer factors, or --engine blocks"

#: Advice that only applies in Python, and what to do on the command line instead.
_PYTHON_ONLY = [
    (r"(\buser=(?:\.\.\.|0)) when reading", r"\1"),
    (r"a folder that save\(\) wrote", "a folder that discreet train wrote"),
    (r"for training without privacy use the class ALS", "pass --not-private instead"),
    (
        r"To train without privacy, use the class ALS",
        "To train without privacy, pass --not-private",
    ),
    (r"read_catalog\(path, item=\.\.\., title=\.\.\.\)", "--items-id COLUMN --items-title COLUMN"),
    (r"read_catalog\(path, item=\.\.\.\)", "--items-id COLUMN"),
    (r"Remove it from space\b", "Remove it from --try"),
    (r"Pass the path of a key file as key", "Pass --key FILE"),
    (r"choose smaller n_valid and n_test", "choose a smaller --test-users"),
    (r"'one run'", "'one-run'"),
    (r"^similarities(?= has | is | must |: )", "--item-similarities"),
    (r"^text (?=has |must |is )", "--text "),
    (r"\bin text (?=has |holds )", "in --text "),
    (r"\bLeave it out of (text|features)(?=[.:;])", r"Leave it out of --\1"),
    (r"\bname it in text\.", "name it in --text."),
    (
        r"Pass epsilon and rating_range to open one",
        "To open one, run discreet timeline open with --epsilon and --rating-range",
    ),
]

_USAGE = [
    (r"Value error, ", ""),
    (r"Input should be a valid integer.*", "should be a whole number"),
    (r"Input should be a valid number.*", "should be a number"),
    (r"Input should be", "should be"),
    (r"^Invalid value for ", ""),
    (r"\. Did you mean", ": did you mean"),
]


# control characters except tab and line feed, and those that change the text direction
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Replace control characters in untrusted text, such as a title, before printing it."""
    return _STEERING.sub("\ufffd", text)


def format_count(n: int, what: str) -> str:
    """Return ``1 user``, ``20,000 users``."""
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def usage_words(message: str) -> str:
    """Rewrite typer's message about a wrong call as the beginning of a sentence."""
    for pattern, replacement in _USAGE:
        message = re.sub(pattern, replacement, message)
    message = message.rstrip(".")
    return message[:1].lower() + message[1:]


def for_shell(message: str) -> str:
    """Rewrite ``name=value`` as ``--name value``, and parameter names as options."""
    for pattern, replacement in _PYTHON_ONLY:
        message = re.sub(pattern, replacement, message)
    message = _ASSIGNED.sub(_as_option, message)
    message = _FIRST.sub(lambda match: "--" + match[1], message)
    # a list of what a model has is one of parameters, to be given with --set
    message, listed, parameters = message.partition(": it has ")
    message = _ALONE.sub(lambda match: _NAMES[match[2]], message) + listed + parameters
    return re.sub(r" \(MemoryError\)$", _OUT_OF_MEMORY, message)


def _as_option(match: re.Match[str]) -> str:
    """Return the option for one ``name=value``."""
    name, quoted, double, bare = match.groups()
    option = _NAMES[name]
    value = next((v for v in (quoted, double, bare) if v is not None), "")
    if name in _OTHER_NAMES or value in ("", "True"):
        return option
    if value == "False":
        return f"--no-{option[2:]}" if name == "header" else f"{option} none"
    if value in ("...", "<column name>"):
        return f"{option} COLUMN"
    return (
        f"{option} '{value}'"
        if quoted is not None and not re.fullmatch(r"[\w.-]+", value)
        else f"{option} {value}"
    )

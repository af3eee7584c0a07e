"""How the code reads, as far as a machine can tell: STYLE rules that no linter has."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [
    file
    for folder in ("src", "examples", "benchmarks", "research")
    for file in sorted((ROOT / folder).rglob("*.py"))
]


def nested_conditionals(tree: ast.AST) -> Iterator[ast.AST]:
    """``a if b else c if d else e``, wherever the second one stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            inside = [inner for child in ast.iter_child_nodes(node) for inner in ast.walk(child)]
            if any(isinstance(inner, ast.IfExp) for inner in inside):
                yield node


def unrelated_assignments(tree: ast.AST) -> Iterator[ast.Assign]:
    """``a, b = f(x), g(y)``: two thoughts in one statement.

    Allowed are swaps and other updates at once (``low, high = high, 2 * high``), parts of one thing
    (``a.x, a.y``), and the same done to several (``f(x), f(y)``).
    """
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Tuple)
            and isinstance(node.targets[0], ast.Tuple)
        ):
            values = node.value.elts
            if not (at_once(node.targets[0], values) or of_one_thing(values) or alike(values)):
                yield node


def at_once(targets: ast.Tuple, values: list[ast.expr]) -> bool:
    assigned = {ast.unparse(target) for target in targets.elts}
    return any(
        ast.unparse(part) in assigned
        for value in values
        for part in ast.walk(value)
        if _readable(part)
    )


def of_one_thing(values: list[ast.expr]) -> bool:
    return (
        all(isinstance(value, (ast.Attribute, ast.Subscript)) for value in values)
        and len(set(map(root, values))) == 1
    )


def alike(values: list[ast.expr]) -> bool:
    plain = any(
        isinstance(value, (ast.Name, ast.Constant, ast.List, ast.Dict, ast.Set)) for value in values
    )
    return not plain and len({ast.dump(shape(value)) for value in values}) == 1


def shape(node: ast.AST) -> ast.AST:
    """The expression without its names and numbers, but with the functions and methods that it
    calls.
    """

    class Blank(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.AST:
            return ast.Constant(None)

        def visit_Constant(self, number: ast.Constant) -> ast.AST:
            return ast.Constant(None)

        def visit_Call(self, call: ast.Call) -> ast.AST:
            called = (
                call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
            )
            given = [
                self.visit(part)
                for part in (*call.args, *(keyword.value for keyword in call.keywords))
            ]
            return ast.Tuple([ast.Constant(called), *given])

    return Blank().visit(ast.parse(ast.unparse(node), mode="eval").body)


def root(node: ast.expr) -> str:
    """What a chain of attributes, items and slices begins with."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return ast.unparse(node)


def _readable(part: ast.AST) -> bool:
    return isinstance(part, (ast.Name, ast.Attribute, ast.Subscript))


@pytest.mark.parametrize(
    "found", [nested_conditionals, unrelated_assignments], ids=["conditionals", "assignments"]
)
def test_one_statement_is_one_thought(found):
    places = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for file in FILES
        for node in found(_tree(file))
    ]
    assert not places, "\n" + "\n".join(places)


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("a, b = f(x), g(y)", True),
        ("a, b = 0, 1", True),
        ("self.a, self.b = a, b", True),
        ("low, high = high, 2 * high", False),
        ("a, b = c.x, c.y", False),
        ("a, b = f(x), f(y)", False),
        ("a, b = x[k], x[k + 1]", False),
        ("a, b = f(x)", False),
    ],
)
def test_what_is_unrelated(text, bad):
    assert bool(list(unrelated_assignments(ast.parse(text)))) == bad


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("a if b else (c if d else e)", True),
        ("f(a if b else c) if d else e", True),
        ("a if b else c", False),
    ],
)
def test_what_is_nested(text, bad):
    assert bool(list(nested_conditionals(ast.parse(text)))) == bad


def test_nothing_is_exempt_from_formatting():
    marks = ("# fmt: " + "skip", "# fmt: " + "off")
    everywhere = [*FILES, *sorted((ROOT / "tests").rglob("*.py"))]
    assert not [file for file in everywhere if any(mark in file.read_text() for mark in marks)]


def test_one_place_multiplies_a_noise_multiplier_by_a_sensitivity():
    """The conformance kit does so once more, because it checks that place."""

    def multiplied(tree: ast.AST) -> Iterator[ast.AST]:
        for node in ast.walk(tree):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                text = ast.unparse(node)
                if "multiplier" in text and "sensitivity" in text:
                    yield node

    found = {
        file.relative_to(ROOT / "src/discreet").as_posix()
        for file in FILES
        if list(multiplied(_tree(file)))
    }
    assert found == {"privacy/accounting/pricing.py", "auditing/conformance/guarantee_rules.py"}


def _tree(file: Path) -> ast.AST:
    return ast.parse(file.read_text())


def test_the_source_has_no_pronoun_subjects():
    """Words that the naming rules retire; titles of the generated films are no prose."""
    retired = re.compile(r"\b(?:nobody|somebody|everybody|anybody|whoever|beside)\b", re.IGNORECASE)
    files = [
        file
        for folder in ("src", "research", "benchmarks", "examples")
        for kind in ("*.py", "*.js", "*.html", "*.j2")
        for file in (ROOT / folder).rglob(kind)
        if file.name != "tree.py"  # it counts these words
    ]
    found = {
        str(file.relative_to(ROOT)): words
        for file in files
        if (words := retired.findall(file.read_text(encoding="utf-8")))
    }
    assert found == {}


#: Beginnings of a docstring that says what something is instead of what a function does.
FRAGMENT = re.compile(
    r"(?:The|A|An|What|Whether|How|Of|So|As|Which|Where|If|When|With|Without|For|In|By|From|All|"
    r"Each|Every|No|Not|Its|Their|This|These|Those|At|On|To|Who|Why|One|[a-z(])\b|\("
)


def _described(node: ast.AST) -> bool:
    """Tell whether a node is a function with a docstring, and no property."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    attribute = any("property" in mark or "cached" in mark for mark in marks)
    return not attribute and ast.get_docstring(node) is not None


def test_docstrings_of_functions_begin_with_a_verb():
    places = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {ast.get_docstring(node).splitlines()[0]}"
        for file in sorted((ROOT / "src").rglob("*.py"))
        for node in ast.walk(_tree(file))
        if _described(node) and FRAGMENT.match(ast.get_docstring(node))
    ]
    assert not places, "\n" + "\n".join(places)

"""Registration of commands.

A command is a function whose parameters are options (annotated with `typer.Option` or
`typer.Argument`) or groups of options: dataclasses whose fields are annotated the same way. Options
that several commands share (data, model, output) are declared once, as a group.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

import discreet
from discreet.errors import ConfigError

#: Modules with a command, in the order of the help; a new command needs its name here.
MODULES = (
    "demo",
    "train",
    "evaluate",
    "recommend",
    "similar",
    "budget",
    "timeline",
    "audit",
    "tune",
    "datasets",
    "doctor",
    "bench",
    "reproduce",
    "report",
    "export",
    "serve",
)

#: The help panel of rarely used options; it comes last in every command's help.
ADVANCED = "Advanced"
#: Commands whose code is not in the wheel: they run in a clone of the repository.
_CLONE_MODULES = {"bench": "benchmarks.command", "reproduce": "research.command"}

app = typer.Typer(
    name="discreet",
    help=(
        "Recommender systems with user-level differential privacy: train, evaluate and deploy"
        " matrix factorization models."
    ),
    epilog="Start with:  [bold]discreet demo[/bold]",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(args: list[str]) -> int:
    """Parse the arguments, run the command and return its exit code; errors are not caught."""
    kernels = os.environ.get("DISCREET_KERNELS", "")
    if kernels not in ("", "vector", "plain"):
        raise ConfigError(
            f"DISCREET_KERNELS is {kernels!r}, but must be 'vector' (the default) or 'plain'"
        )
    # the list of commands and "did you mean" need all modules; one command needs only its own
    wanted = [args[0]] if args and args[0] in MODULES else MODULES
    for module in wanted:
        if module in _CLONE_MODULES:
            _import_from_clone(module)
        else:
            importlib.import_module(f"discreet.cli.{module}")
    # commands register on import, and modules import each other: restore the order of the list
    order = {name: at for at, name in enumerate(MODULES)}
    app.registered_commands.sort(key=lambda command: order.get(command.name or "", len(order)))
    root = typer.main.get_command(app)
    _hide_types(root)
    for inner in getattr(root, "commands", {}).values():
        _refuse_repeated(inner)
    result = root.main(args=args, prog_name="discreet", standalone_mode=False)
    # commands return None unless they set an exit code
    return result if isinstance(result, int) else 0


def _hide_types(command: Any) -> None:
    """Show switches without ``<bool>``, and arguments without the Python type of their value."""
    make_help_option = command.get_help_option
    command.get_help_option = lambda context: _hide_type(make_help_option(context))
    for option in command.params:
        _hide_type(option)
    for inner in getattr(command, "commands", {}).values():
        _hide_types(inner)


def _hide_type(option: Any) -> Any:
    """Make the help of a switch or an argument show no type."""
    if getattr(option, "is_flag", False):
        option.metavar = ""  # read by typer up to 0.19
        option.display_type_rich = lambda ctx: None
    elif option.param_type_name == "argument":
        option.display_type_rich = lambda ctx: None
    return option


def _refuse_repeated(command: Any) -> None:
    """Make a command refuse an option that is given twice, unless its values are a list."""
    parse = command.parse_args

    def parse_once(context: Any, args: list[str]) -> Any:
        # the parser returns every option as often as it was given
        order = command.make_parser(context).parse_args(args=list(args))[2]
        for option, times in Counter(order).items():
            if times > 1 and option.param_type_name == "option" and not option.multiple:
                more = (
                    ", with commas between values" if "comma" in (option.help or "").lower() else ""
                )
                context.fail(f"{option.opts[0]} was given {times} times. Give it once{more}.")
        return parse(context, args)

    command.parse_args = parse_once


def _import_from_clone(name: str) -> None:
    """Add a command of ``research/`` or ``benchmarks/``, or outside a clone one that refuses."""
    root = Path(discreet.__file__).resolve().parents[2]
    module = _CLONE_MODULES[name]
    if root.joinpath(*module.split(".")).with_suffix(".py").is_file():
        if str(root) not in sys.path:
            sys.path.append(str(root))
        importlib.import_module(module)
        return

    def refuse(_arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        raise ConfigError(
            f"discreet {name} needs a clone of the discreet repository. "
            f"Clone it, run make install there, then .venv/bin/discreet {name}."
        )

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    text = "Available in a clone of the repository only."
    app.command(name, help=text, context_settings=settings)(refuse)


def command(*examples: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to the command line under its own name; the examples end its help."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        lines = "\n\n".join(f"  {line}" for line in examples)
        name = function.__name__.strip("_")
        head = "Examples" if len(examples) > 1 else "Example"
        app.command(name, epilog=f"{head}:\n\n[bold]{lines}[/bold]")(_flatten_options(function))
        return function

    return add


def program() -> str:
    """Return the command that starts this installation, ``discreet`` where the PATH finds it."""
    script = Path(sys.executable).parent / "discreet"
    found = shutil.which("discreet")
    if found and script.exists() and Path(found).samefile(script):
        return "discreet"
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m discreet"
    here = Path.cwd()
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))


def _flatten_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function with each group of options replaced by its options, as typer needs."""
    own = inspect.signature(function, eval_str=True).parameters.values()
    groups: dict[str, Any] = {
        p.name: p.annotation for p in own if dataclasses.is_dataclass(p.annotation)
    }
    shown: list[inspect.Parameter] = []
    for parameter in own:
        shown += _options(groups[parameter.name]) if parameter.name in groups else [parameter]

    def run(**given: Any) -> None:
        values = {
            name: group(**{f.name: given.pop(f.name) for f in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        function(**given, **values)

    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    # the terminal wraps the lines
    run.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    run.__name__ = function.__name__
    # typer shows panels in the order of their first option
    shown.sort(
        key=lambda p: any(
            getattr(option, "rich_help_panel", None) == ADVANCED
            for option in getattr(p.annotation, "__metadata__", ())
        )
    )
    named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shown]
    run.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    return run


def _options(group: Any) -> list[inspect.Parameter]:
    types = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=(
                inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
            ),
            annotation=types[field.name],
        )
        for field in dataclasses.fields(group)
    ]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"discreet {discreet.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass

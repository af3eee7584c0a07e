"""``discreet serve``: serve models over HTTP."""

from __future__ import annotations

import importlib.util
import os
import socket
from typing import Annotated, Any

import typer

from discreet.cli.app import ADVANCED, command
from discreet.cli.budget_accounts import account_at, split_name
from discreet.cli.output import Output
from discreet.errors import ConfigError

NEEDED = ("fastapi", "uvicorn", "httptools")
MIN_TOKEN = 8  # shorter tokens can be guessed by trial


@command(
    "discreet serve model/",
    "discreet serve films=model/ books=other/ --port 9000",
    "export DISCREET_TOKEN=$(openssl rand -hex 16); discreet serve model/ --host 0.0.0.0"
    " --workers 4",
)
def serve(
    folders: Annotated[
        list[str],
        typer.Argument(
            help="Folders of saved models or timelines, each optionally as NAME=FOLDER.",
            metavar="MODEL…",
        ),
    ],
    out: Output,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. 127.0.0.1 is this machine only.", metavar="ADDRESS"
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port; 0 chooses a free one.", min=0, max=65535, metavar="PORT")
    ] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="DISCREET_TOKEN",
            help=(
                f"Bearer token that every request must send, at least {MIN_TOKEN} characters. Set"
                " it in the environment: other users can read command lines."
            ),
            metavar="TOKEN",
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors",
            help="A web origin whose pages may send requests; may be repeated.",
            metavar="ORIGIN",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            help=(
                "A host name other than localhost that requests may be addressed to; may be"
                " repeated, and '*' allows any."
            ),
            metavar="NAME",
        ),
    ] = None,
    heading: Annotated[
        str | None, typer.Option(help="Heading of the web page.", metavar="TEXT")
    ] = None,
    noun: Annotated[
        str | None,
        typer.Option(
            help="What the items are on the web page, in the plural. Default: items.",
            metavar="FILMS",
        ),
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(
            help=(
                "Budget account whose balance /v1/privacy shows, such as budget.sqlite:customers."
            ),
            metavar="STORE:NAME",
        ),
    ] = None,
    max_body: Annotated[
        int,
        typer.Option(
            help="Largest request body, in bytes.",
            min=100,
            metavar="BYTES",
            rich_help_panel=ADVANCED,
        ),
    ] = 1 << 20,
    max_concurrent: Annotated[
        int,
        typer.Option(
            help="Number of concurrent requests; further ones get status 503.",
            min=1,
            metavar="N",
            rich_help_panel=ADVANCED,
        ),
    ] = 512,
    workers: Annotated[
        int, typer.Option(help="Number of worker processes.", min=1, max=256, metavar="N")
    ] = 1,
    fd: Annotated[
        int | None,
        typer.Option(
            help="Listen on this inherited socket (file descriptor), for service managers.",
            metavar="FD",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
) -> None:
    """Serve models over HTTP: recommendations, similar items, search, privacy statement, web page.

    Histories are sent in request bodies and are not stored; no request content is logged. A model
    folder that is replaced is reloaded without losing a request. On Ctrl-C or SIGTERM the server
    completes open requests and exits.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"serving needs {' and '.join(missing)}: pip install 'discreet[serve]'")
    if token is not None and len(token) < MIN_TOKEN:
        raise ConfigError(
            f"the token is too short: use at least {MIN_TOKEN} characters, for example from"
            " openssl rand -hex 16"
        )
    for name in allow_host or ():
        if not name.strip() or "/" in name:
            raise ConfigError(f"--allow-host {name!r} is not a host name such as shop.example")
    from discreet.serve.worker import exit_on_signals

    with exit_on_signals():
        from discreet.serve.app import Settings, create_app
        from discreet.serve.model_registry import ModelRegistry, parse_folders
        from discreet.serve.server import listen, run

        named = parse_folders(folders)
        settings = Settings(
            token,
            tuple(cors or ()),
            max_body,
            max_concurrent,
            tuple(allow_host or ()),
            heading,
            noun,
            None if account is None else _check_account(account),
        )
        if workers > 1:
            from discreet.serve.workers import Supervisor

            listening = socket.socket(fileno=fd) if fd is not None else listen(host, port)
            Supervisor(
                listening,
                named,
                settings,
                workers,
                lambda models: _show(out, listening, models, token),
            ).run()
            return
        shelf = ModelRegistry(named)
        listening = socket.socket(fileno=fd) if fd is not None else listen(host, port)
        _show(out, listening, shelf.describe(), token)
        run(create_app(shelf, settings), listening)


def _check_account(where: str) -> tuple[str, str]:
    """Return store and name of an account that exists, with an absolute path for the workers."""
    account = account_at(where)
    store, _ = split_name(where)
    return (store if "://" in store else os.path.abspath(store)), account.name


def _address(host: str, port: int) -> str:
    """Return an address to open on this machine: 0.0.0.0 stands for all, but is none itself."""
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _show(
    out: Output, listening: socket.socket, models: list[dict[str, Any]], token: str | None
) -> None:
    """Print the models served and the address."""
    address = listening.getsockname()
    shown = _address(*address[:2]) if isinstance(address, tuple) else str(address)
    for model in models:
        out.say(f"Serving {model['name']}: {model['items']:,} items, {model['status']}")
    out.say(f"Listening on {shown} (web page: {shown}/, API: {shown}/docs)")
    out.result(
        {"command": "serve", "address": shown, "models": [model["name"] for model in models]}
    )
    if token is None and isinstance(address, tuple) and not address[0].startswith(("127.", "::1")):
        out.note("other machines can send requests without a token: set one with DISCREET_TOKEN")

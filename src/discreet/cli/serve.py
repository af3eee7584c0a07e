"""``discreet serve``: models over HTTP."""

from __future__ import annotations

import importlib.util
import socket
from typing import Annotated, Any

import typer

from discreet.cli.app import command
from discreet.cli.output import Output
from discreet.errors import ConfigError

NEEDED = ("fastapi", "uvicorn", "httptools")


@command(
    "discreet serve model/",
    "discreet serve films=model/ books=other/ --port 9000",
    "DISCREET_TOKEN=secret discreet serve model/ --host 0.0.0.0 --workers 4",
)
def serve(
    folders: Annotated[
        list[str],
        typer.Argument(
            help="Folders of saved models, each perhaps as NAME=FOLDER.", metavar="MODEL…"
        ),
    ],
    out: Output,
    host: Annotated[
        str, typer.Option(help="Address to listen on; this machine alone by default.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="DISCREET_TOKEN",
            help="Secret that every request must bring. Better in the environment than here.",
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors", help="A web site whose pages may ask; may be repeated.", metavar="ORIGIN"
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            help=(
                "A name other than localhost that requests may go to; may be repeated, and '*' is"
                " any."
            ),
            metavar="NAME",
        ),
    ] = None,
    largest_body: Annotated[
        int, typer.Option(help="Largest body that is read, in bytes.", min=100, metavar="BYTES")
    ] = 1 << 20,
    most_at_once: Annotated[
        int, typer.Option(help="Requests answered at once; more get 503.", min=1, metavar="N")
    ] = 512,
    workers: Annotated[
        int, typer.Option(help="Processes that answer.", min=1, max=256, metavar="N")
    ] = 1,
    fd: Annotated[
        int | None,
        typer.Option(
            help="Listen on this inherited socket, as service managers hand over.", metavar="FD"
        ),
    ] = None,
) -> None:
    """Answer over HTTP: recommendations, similar items, search, the privacy statement, and the page
    for browsers.

    Histories come in bodies alone and are forgotten after the answer; nothing of a request is
    logged. A folder that is replaced is taken over without losing a request. Ctrl-C or SIGTERM
    finishes what is under way and ends.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"serving needs {' and '.join(missing)}: pip install 'discreet[serve]'")
    if token is not None and len(token) < 8:
        raise ConfigError("the token is too short to keep anybody out: use 8 characters or more")
    for name in allow_host or ():
        if not name.strip() or "/" in name:
            raise ConfigError(f"--allow-host takes a name such as shop.example, not {name!r}")
    from discreet.serve.worker import exit_on_signals

    with exit_on_signals():
        from discreet.serve.app import Settings, create_app
        from discreet.serve.model_registry import ModelRegistry, parse_folders
        from discreet.serve.server import listen, run

        named = parse_folders(folders)
        settings = Settings(
            token, tuple(cors or ()), largest_body, most_at_once, tuple(allow_host or ())
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


def _show(
    out: Output, listening: socket.socket, models: list[dict[str, Any]], token: str | None
) -> None:
    """Tell what is served and where."""
    address = listening.getsockname()
    shown = f"http://{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)
    for model in models:
        out.say(f"Serving {model['name']}: {model['items']:,} items, {model['status']}")
    out.say(f"Listening on {shown} (the page: {shown}/, routes: {shown}/docs)")
    out.result(
        {"command": "serve", "address": shown, "models": [model["name"] for model in models]}
    )
    if token is None and isinstance(address, tuple) and not address[0].startswith(("127.", "::1")):
        out.note("anybody who reaches this address may ask: set a token with DISCREET_TOKEN")

"""``discreet export``: export a model as a web page, vectors, an ONNX graph or an MLflow folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.app import command
from discreet.cli.output import Output
from discreet.errors import ConfigError

if TYPE_CHECKING:
    from discreet.models.storage.load_scorer import OpenedModel


@command(
    "discreet export model/ --web --out page.html --heading 'Films for tonight' --noun films",
    "discreet export model/ --vectors --out vectors/",
    "discreet export model/ --onnx --out model.onnx",
    "discreet export model/ --mlflow --out mlflow-model/",
)
def export(
    folder: Annotated[str, typer.Argument(help="Folder of a saved model.", metavar="MODEL")],
    to: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            help="File (--web, --onnx) or new folder (others) to write.",
            metavar="PATH",
        ),
    ],
    out: Output,
    web: Annotated[
        bool,
        typer.Option(
            "--web", help="One HTML file that recommends in the browser, without network access."
        ),
    ] = False,
    vectors: Annotated[
        bool,
        typer.Option(
            "--vectors", help="Item vectors for a vector database, and how to compute queries."
        ),
    ] = False,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="One graph from a history to a list, for ONNX runtimes.")
    ] = False,
    mlflow: Annotated[
        bool, typer.Option("--mlflow", help="A folder that MLflow loads as a pyfunc model.")
    ] = False,
    heading: Annotated[
        str | None, typer.Option(help="With --web: heading of the page.", metavar="TEXT")
    ] = None,
    noun: Annotated[
        str | None,
        typer.Option(
            help="With --web: what the items are, in the plural. Default: items.", metavar="FILMS"
        ),
    ] = None,
) -> None:
    """Export a model as a web page, as vectors for a database, as ONNX or as an MLflow model.

    The web page holds the item factors and computes a user's factors on the user's device. Its
    content security policy blocks all network access, so that no history can leave the device.
    """
    given = {"web": web, "vectors": vectors, "onnx": onnx, "mlflow": mlflow}
    wanted = [name for name in given if given[name]]
    if len(wanted) != 1:
        raise ConfigError("pass exactly one of --web, --vectors, --onnx and --mlflow")
    for option, text in {"--heading": heading, "--noun": noun}.items():
        if text is not None and not web:
            raise ConfigError(f"{option} needs --web")
    from discreet.models.storage.load_scorer import open_model

    opened = open_model(folder)
    if web:
        written = _web(opened, Path(to), heading, noun, out)
    else:
        write = {"vectors": _vectors, "onnx": _onnx, "mlflow": _mlflow}[wanted[0]]
        written = write(opened, Path(to), out)
    out.result({"command": "export", "kind": wanted[0], "out": to, **written})


def write_web(
    opened: OpenedModel, file: Path, heading: str | None = None, noun: str | None = None
) -> dict[str, Any]:
    """Write the page atomically and return facts about it."""
    from discreet.data.atomic_files import atomic_write
    from discreet.serve.web_page import web_page

    _check_file(file, "page.html")
    text = web_page(opened.scorer, opened.statement, heading, noun)
    with atomic_write(file) as aside:
        aside.write_text(text, encoding="utf-8", newline="")
    return {
        "items": len(opened.scorer),
        "bytes": len(text.encode()),
        "status": opened.statement["status"],
    }


def _check_file(file: Path, example: str) -> None:
    if file.is_dir():
        raise ConfigError(f"{file} is a folder: name a file in it, such as {file / example}")
    if not file.absolute().parent.is_dir():
        raise ConfigError(f"{file} cannot be written: the folder {file.parent} does not exist")


def _web(
    opened: OpenedModel, file: Path, heading: str | None, noun: str | None, out: Output
) -> dict[str, Any]:
    written = write_web(opened, file, heading, noun)
    size = f"{written['bytes'] / 1e6:.1f} MB"
    out.say(f"Wrote {file} ({size}): open it in a browser, from disk or from any web server")
    if not opened.private:
        out.note(
            "this model was trained without privacy protection, and the page contains its item"
            " factors"
        )
    return written


def _vectors(opened: OpenedModel, folder: Path, out: Output) -> dict[str, Any]:
    from discreet.serve.vectors import write_vectors

    written = write_vectors(opened, folder)
    out.say(
        f"Wrote {written['items']:,} vectors of length {written['length']} to {folder}: see"
        f" {folder / 'README.md'}"
    )
    return written


def _onnx(opened: OpenedModel, file: Path, out: Output) -> dict[str, Any]:
    from discreet.serve.onnx_scorer import write_onnx

    _check_file(file, "model.onnx")
    written = write_onnx(opened, file)
    out.say(f"Wrote {file} ({written['bytes'] / 1e6:.1f} MB): items, ratings and n in, a list out")
    return written


def _mlflow(opened: OpenedModel, folder: Path, out: Output) -> dict[str, Any]:
    from discreet.serve.mlflow_model import write_mlflow

    written = write_mlflow(opened, folder)
    out.say(f"Wrote {folder}: mlflow.pyfunc.load_model({str(folder)!r}) loads it")
    return written

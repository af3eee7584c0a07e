"""``discreet export``: a saved model as a page for browsers, as vectors for a database, as an ONNX
graph, or as an MLflow folder.
"""

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
    "discreet export --web model/ page.html",
    "discreet export --vectors model/ vectors/",
    "discreet export --onnx model/ model.onnx",
    "discreet export --mlflow model/ mlflow-model/",
)
def export(
    folder: Annotated[str, typer.Argument(help="Folder of a saved model.", metavar="MODEL")],
    to: Annotated[
        str,
        typer.Argument(help="The file (--web, --onnx) or new folder to write.", metavar="OUT"),
    ],
    out: Output,
    web: Annotated[
        bool,
        typer.Option(
            "--web", help="One HTML file that recommends in the browser and sends nothing."
        ),
    ] = False,
    vectors: Annotated[
        bool,
        typer.Option(
            "--vectors", help="Item vectors and the recipe for queries, for a vector database."
        ),
    ] = False,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="One graph from a history to a list, for ONNX runtimes.")
    ] = False,
    mlflow: Annotated[
        bool, typer.Option("--mlflow", help="A folder that MLflow loads as a pyfunc model.")
    ] = False,
    heading: Annotated[
        str | None, typer.Option(help="Heading of the page.", metavar="TEXT")
    ] = None,
) -> None:
    """Hand a model over: to users' devices, a vector database, an ONNX runtime, or MLflow.

    The page holds the item factors and computes a person's own vector on that person's device. Its
    content policy forbids every connection, so that nothing can leave.
    """
    given = {"web": web, "vectors": vectors, "onnx": onnx, "mlflow": mlflow}
    wanted = [name for name in given if given[name]]
    if len(wanted) != 1:
        raise ConfigError("say what to export: one of --web, --vectors, --onnx and --mlflow")
    if heading is not None and not web:
        raise ConfigError("--heading is for --web")
    from discreet.models.storage.load_scorer import open_model

    opened = open_model(folder)
    written = {"web": _web, "vectors": _vectors, "onnx": _onnx, "mlflow": _mlflow}[wanted[0]](
        opened, Path(to), heading, out
    )
    out.result({"command": "export", "kind": wanted[0], "out": to, **written})


def write_web(opened: OpenedModel, file: Path, heading: str | None = None) -> dict[str, Any]:
    """Write the page, whole or not at all, and say what it holds."""
    from discreet.data.atomic_files import atomic_write
    from discreet.serve.web_page import web_page

    _check_file(file, "page.html")
    text = web_page(opened.scorer, opened.statement, heading)
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


def _web(opened: OpenedModel, file: Path, heading: str | None, out: Output) -> dict[str, Any]:
    written = write_web(opened, file, heading)
    size = f"{written['bytes'] / 1e6:.1f} MB"
    out.say(f"Wrote {file} ({size}): open it in a browser, from this disk or from any web server")
    if not opened.private:
        out.note(
            "this model was trained without privacy protection: whoever has the page has its item"
            " factors"
        )
    return written


def _vectors(opened: OpenedModel, folder: Path, heading: str | None, out: Output) -> dict[str, Any]:
    from discreet.serve.vectors import write_vectors

    written = write_vectors(opened, folder)
    out.say(
        f"Wrote {written['items']:,} vectors of length {written['length']} to {folder}: see"
        f" {folder / 'README.md'}"
    )
    return written


def _onnx(opened: OpenedModel, file: Path, heading: str | None, out: Output) -> dict[str, Any]:
    from discreet.serve.onnx_scorer import write_onnx

    _check_file(file, "model.onnx")
    written = write_onnx(opened, file)
    out.say(f"Wrote {file} ({written['bytes'] / 1e6:.1f} MB): items, ratings and n in, a list out")
    return written


def _mlflow(opened: OpenedModel, folder: Path, heading: str | None, out: Output) -> dict[str, Any]:
    from discreet.serve.mlflow_model import write_mlflow

    written = write_mlflow(opened, folder)
    out.say(f"Wrote {folder}: mlflow.pyfunc.load_model({str(folder)!r}) loads it")
    return written

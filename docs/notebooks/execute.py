"""Runs the notebooks and stores what they say: python docs/notebooks/execute.py [name ...], or
`make notebooks`.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
MOST_SECONDS = 300


def executed(file: Path) -> nbformat.NotebookNode:
    """The notebook as it is after a run in a fresh kernel, in an empty folder; an error in a
    cell is an error here.
    """
    os.environ.setdefault("IPYTHONDIR", tempfile.mkdtemp())  # not the settings of this user
    notebook = nbformat.read(file, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=MOST_SECONDS,
            kernel_name="python3",
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        )
        return client.execute()


def stored(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Without what differs from machine to machine: times, paths, log lines."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            continue
        kept = [
            output
            for output in cell.outputs
            if output.get("name") != "stderr" and not _empty(output)
        ]
        for output in kept:
            if "text" in output:
                output.text = re.sub(r"/tmp/\S*?/", "…/", output.text)
        cell.outputs = kept
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def _empty(output: nbformat.NotebookNode) -> bool:
    """What a progress bar leaves behind."""
    return output.get("data", {}).get("text/html") == ""


if __name__ == "__main__":
    wanted = sys.argv[1:] or sorted(file.stem for file in HERE.glob("*.ipynb"))
    for name in wanted:
        nbformat.write(stored(executed(HERE / f"{name}.ipynb")), HERE / f"{name}.ipynb")
        print(name, flush=True)

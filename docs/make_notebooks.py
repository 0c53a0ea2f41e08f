"""Run the notebooks and save them with what they show: `python docs/make_notebooks.py`, or `--check` to compare only.

Under the Python of an environment that has a vLLM, JupyterLab and nbclient. What is saved needs no kernel to be read:
widgets are left out, what they show stays as HTML and text. What differs from run to run is replaced by words.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
NOTEBOOKS = tuple(sorted(path.name for path in FOLDER.glob("*.ipynb")))

WIDGET = "application/vnd.jupyter.widget-view+json"
IN_ITS_PLACE = "shown when you run this"
_VARIES = re.compile(r"(<!--varies-->).*?(<!--/varies-->)", re.S)
_STYLE = re.compile(r"<style>.*?</style>", re.S)
_ROUNDING = re.compile(r"<!--rounding-->.*?<!--/rounding-->", re.S)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def run(path: Path, seconds: int = 600) -> NotebookNode:
    """A notebook after all its cells have run in a fresh kernel, at the top of the checkout."""
    notebook = read(path)
    NotebookClient(notebook, timeout=seconds, resources={"metadata": {"path": str(ROOT)}}).execute()
    return notebook


def saved(notebook: NotebookNode) -> NotebookNode:
    """A notebook as it is committed: the same after every run, and readable without a kernel."""
    notebook = nbformat.from_dict(notebook)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    number = 0
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {})
        if cell.cell_type == "code":
            number += 1
            cell.execution_count = number
            cell.outputs = [output for output in map(_output, cell.outputs) if output is not None]
    return notebook


def _output(output: NotebookNode) -> NotebookNode | None:
    if output.output_type not in ("display_data", "execute_result"):
        return output
    data = {kind: _steady(shown) for kind, shown in output.data.items() if kind != WIDGET}
    if not data:
        return None
    return nbformat.v4.new_output("display_data", data=data)


def _steady(shown: Any) -> Any:
    """Without the styles, which are the same everywhere, and which viewers of untrusted notebooks drop."""
    if not isinstance(shown, str):
        return shown
    return _VARIES.sub(rf"\g<1>{IN_ITS_PLACE}\g<2>", _STYLE.sub("", shown))


def difference(kept: NotebookNode, fresh: NotebookNode) -> str:
    """The first cell in which two notebooks are not the same, with the first lines that differ; empty if none is.

    Figures that another machine may round otherwise are not looked at.
    """
    kept, fresh = _without_figures(kept), _without_figures(fresh)
    for number, (one, other) in enumerate(zip(kept.cells, fresh.cells), 1):
        if one != other:
            texts = (nbformat.writes(nbformat.v4.new_notebook(cells=[cell])).splitlines() for cell in (one, other))
            lines = next(((a, b) for a, b in zip(*texts) if a != b), ("", ""))
            return f"cell {number}\n  kept:  {lines[0].strip()[:400]}\n  fresh: {lines[1].strip()[:400]}"
    return "" if kept == fresh else "the number of cells, or what is said of the notebook itself"


def _without_figures(notebook: NotebookNode) -> NotebookNode:
    return nbformat.reads(_ROUNDING.sub("", nbformat.writes(notebook)), as_version=4)


def main(argv: Sequence[str] | None = None) -> int:
    """Run and save, or with --check compare. Returns 1 where a compared notebook is stale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NOTEBOOKS, metavar="NAME", help="of notebooks; default: all")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a notebook is stale")
    arguments = parser.parse_args(argv)
    stale = 0
    for name in arguments.names:
        fresh = saved(run(FOLDER / name))
        if not arguments.check:
            nbformat.write(fresh, FOLDER / name)
        elif told := difference(read(FOLDER / name), fresh):
            print(f"{name} is stale, see {told}\nrun: python docs/make_notebooks.py {name}", file=sys.stderr)
            stale += 1
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

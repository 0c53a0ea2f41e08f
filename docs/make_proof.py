"""Write docs/proof.md: the vision towers of real vLLM releases, ported by our own command and proved level by level.

    python docs/make_proof.py            # write the page; an hour on two cores
    python docs/make_proof.py --check    # exit 1 if the page is not what would be written

The wheels of the releases are downloaded once into the cache of the tests; the vLLM that the ports are proved under is
that of `make vllm`, or for an older one that of `python -m porting.releases`, another 7 GB.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import libcst

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from docs.made_page import main  # noqa: E402
from porting import releases  # noqa: E402
from porting.levels import LEVELS  # noqa: E402
from tests import wheels  # noqa: E402
from tests.corpus.port import MODELS, run  # noqa: E402
from tests.corpus.vision_files import CHECKLIST, MULTI_HEAD  # noqa: E402

PAGE = ROOT / "docs" / "proof.md"

PROVED = tuple(level.name for level in LEVELS if level.name != "serve")  # an engine each: the example stands for it


# The number of each level that the page shows, by its name in the report.
FIGURES = {
    "parity": "difference",
    "paths": "largest difference",
    "parallel": "weights split",
    "embeddings": "the original: difference",
}


@dataclass(frozen=True)
class Route:
    """A release ported to another, and which of its files. `under` is the vLLM that runs, where not the installed."""

    source: str
    target: str
    files: tuple[str, ...]
    which: str = "the checklist"
    under: str = ""


ROUTES = (
    Route("0.12.0", "0.32", CHECKLIST),
    Route("0.12.0", "0.32", MULTI_HEAD, which="the towers of MultiHeadAttention"),
    Route("0.11.2", "0.32", CHECKLIST),
    Route("0.12.0", "0.14.0", CHECKLIST, under="0.14.0"),
)

INTRODUCTION = """\
# Towers of vLLM, ported and proved

Vision files of old vLLM releases, ported by `vitport` and proved by `vitport-check` on a CPU, with the originals beside
them. Numbers are the largest differences that were seen: in `parity` and `embeddings` between the original and its port
(in every dtype), in `paths` between each kernel and the native path, in `parallel` between one process and two, these
last two as parts of the largest number. `parity` has also held every port against an fp64 reference. What did not pass,
or did not run, has its reason below the table.

The page is made by `python docs/make_proof.py`.
"""


def page() -> str:
    return "\n".join([INTRODUCTION, *(line for route in ROUTES for line in section(route))])


def section(route: Route) -> Iterator[str]:
    with TemporaryDirectory() as scratch:
        report = proved(route, Path(scratch))
    cells: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for result in report["results"]:
        cells[result["model"], result["level"]].append(result)
    names = [model["name"] for model in report["models"]]
    under = f", under vLLM {route.under}" if route.under else ""
    yield f"## From {route.source} to {route.target}: {route.which}{under}\n"
    yield f"| file | {' | '.join(PROVED)} |"
    yield "|---" * (len(PROVED) + 1) + "|"
    for name in names:
        yield f"| {name} | {' | '.join(cell(level, cells[name, level]) for level in PROVED)} |"
    yield ""
    for name in names:
        for level in PROVED:
            yield from sorted({line for result in cells[name, level] if (line := reason(result))})
    yield ""


def cell(level: str, results: list[dict[str, Any]]) -> str:
    """What became of a level: each status once, and the largest of its figure where it computed something."""
    statuses = sorted({result["status"] for result in results})
    told = [status if status in ("passed", "not run") else f"**{status}**" for status in statuses]
    figures = [float(r["numbers"][FIGURES[level]]) for r in results if FIGURES.get(level) in r["numbers"]]
    return ", ".join(told) + (f" {max(figures):.0e}".replace(" 0e+00", " 0") if figures else "")


def reason(result: dict[str, Any]) -> str:
    """Why a result is none; empty where it is one, or was not asked for as an earlier level had failed."""
    said = " ".join(result["summary"].split())
    if result["status"] == "passed" or said.startswith("not asked"):
        return ""
    where = " ".join(filter(None, (result["model"], result["level"], result["backend"], result["dtype"])))
    return f"- {where}: {result['status']}. {said.partition('; there are ')[0]}"


def proved(route: Route, scratch: Path) -> dict[str, Any]:
    """The report of a check of that route."""
    models = wheels.model_files(route.source).parent / MODELS
    before, after = scratch / "before", scratch / "after"
    for folder in (before, after):
        folder.mkdir()
        (folder / "__init__.py").touch()
        for name in route.files:
            if (models / f"{name}.py").is_file():
                shutil.copy(models / f"{name}.py", folder)
    run([after], route.target)
    python, path = wheels.vllm_python(), [ROOT]
    if route.under:
        python, environment = releases.make(route.under)
        path += [environment["PYTHONPATH"], Path(libcst.__file__).parents[1]]  # LibCST and the like, from here
    report = scratch / "report.json"
    command = [
        python,
        "-m",
        "porting.check",
        after,
        "--before",
        before,
        "--jobs",
        "2",
        "--report",
        report,
    ]
    command += ["--levels", ",".join(PROVED)]
    where = {"PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(command, env={**os.environ, **wheels.VLLM_ENVIRONMENT, **where}, check=False)
    if done.returncode not in (0, 1):
        raise wheels.Unavailable(f"the check of {route.source} ended with exit code {done.returncode}")
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8").replace(f"{scratch}/", ""))
    return found


if __name__ == "__main__":
    sys.exit(main(PAGE, page, "Port the vision towers of real vLLM releases and prove them."))

"""An original in its own vLLM, beside the same original under the shim: does the shim tell the truth?

Both get the same weights, pictures and plain matrix products. What remains is another torch, so equality is up to
rounding.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from porting import host, releases
from porting.environment import ENVIRONMENT
from porting.model_file import ModelFileError, load
from porting.shim import Original, load_original
from porting.towers import structure
from porting.towers.find import Found, UnknownTower, find_class, make
from porting.towers.make import make_with
from porting.towers.tower import ONE, SEVERAL, VIDEO, Inputs, Shape, run

TOLERANCE = 3e-6  # of fp32 outputs up to 1, and as a part of larger ones, between two releases of torch
SECONDS = 900

# Not as `-m`: the classes of the answers would be those of `__main__`.
_ANSWER = "import sys, pathlib; from porting.comparison import old_release; old_release.main(pathlib.Path(sys.argv[1]))"


@dataclass(frozen=True)
class Question:
    """A tower to build and run in the old vLLM: where it is, how it is built, its weights, its pictures."""

    path: str
    cls: str
    config: Mapping[str, Any]
    weights: Mapping[str, torch.Tensor]
    inputs: tuple[Inputs, ...]


@dataclass(frozen=True)
class Answer:
    """Outputs `(tokens, features)` for each of the pictures, or why there are none."""

    outputs: tuple[torch.Tensor, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Comparison:
    """The largest absolute difference; `problem` is empty where it is no more than rounding."""

    difference: float = float("nan")
    problem: str = ""


def ask(questions: Sequence[Question], release: str) -> list[Answer]:
    """What the towers compute in their own vLLM, in one process of its environment. Raises Unavailable."""
    python, environment = releases.make(release)
    root = Path(__file__).parents[2]
    path = os.pathsep.join((environment["PYTHONPATH"], str(root)))
    with tempfile.TemporaryDirectory(prefix="vitport-") as folder:
        torch.save(list(questions), Path(folder, "questions"))
        done = subprocess.run(
            [python, "-c", _ANSWER, folder],
            env={**os.environ, **ENVIRONMENT, **environment, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        if done.returncode != 0:
            raise releases.Unavailable(f"vLLM {release} does not run: {releases.last_line(done.stderr)}")
        answers: list[Answer] = torch.load(Path(folder, "answers"), weights_only=False)
    return answers


def question(file: Original, found: Found, path: Path) -> tuple[Question, Answer]:
    """What to ask of a tower of an original, and what it answers under the shim."""
    shape, dtype = Shape(), torch.float32
    tower = make(found, shape, dtype)
    pictures = (ONE, SEVERAL, *((VIDEO,) if found.tower.video else ()))
    inputs = tuple(found.inputs(shape, grids, dtype) for grids in pictures)
    outputs = tuple(host.output_tensor(run(tower, given)).clone() for given in inputs)
    weights = {name: parameter.detach().clone() for name, parameter in tower.named_parameters()}
    again = tuple(found.inputs(shape, grids, dtype) for grids in pictures)  # a tower may write into what it gets
    return Question(str(path), found.name, found.tower.config(shape), weights, again), Answer(outputs)


def table(paths: Sequence[Path], release: str) -> int:
    """Print, for each tower of the originals, the largest difference between its own vLLM and the shim.

    The exit code: 1 if one is too large, or cannot be compared, and 0 otherwise.
    """
    host.prepare_process()
    host.start_groups()
    asked: list[tuple[Question, Answer]] = []
    failed = False
    for path in paths:
        try:
            asked += _questions(path, release)
        except (ModelFileError, UnknownTower, ValueError) as error:
            print(f"{path.name:28} {error}")
            failed = True
    for (put, shim), own in zip(asked, ask([put for put, _ in asked], release)):
        found = compare(shim, own)
        failed |= bool(found.problem)
        print(f"{Path(put.path).name:28} {put.cls:32} {found.problem or f'{found.difference:.1e}'}")
    return int(failed)


def _questions(path: Path, release: str) -> Iterator[tuple[Question, Answer]]:
    file = load_original(path, release)
    classes = structure.towers_of(file.module)
    if not classes:
        raise UnknownTower("no vision tower is defined here")
    for cls in classes:
        yield question(file, find_class(cls), path)


def compare(shim: Answer, own: Answer) -> Comparison:
    """Whether an original gives the same under the shim as in its own vLLM."""
    if own.problem:
        return Comparison(problem=own.problem)
    shapes = [[tuple(output.shape) for output in answer.outputs] for answer in (own, shim)]
    if shapes[0] != shapes[1]:
        return Comparison(problem=f"gives {shapes[0]} in its own vLLM, {shapes[1]} when run under the installed one")
    difference = max(float((a.double() - b.double()).abs().max()) for a, b in zip(shim.outputs, own.outputs))
    largest = max(1.0, *(float(output.abs().max()) for output in own.outputs))
    too_large = not difference <= TOLERANCE * largest  # NaN is too large
    return Comparison(difference, f"differs by {difference:.1e}, of outputs up to {largest:.2g}" if too_large else "")


def answer(put: Question) -> Answer:
    """Build the tower in this process's vLLM, give it the weights, run it."""
    try:
        cls = getattr(load(Path(put.path)), put.cls)
        tower = make_with(cls, put.config, torch.float32)
        parameters = dict(tower.named_parameters())
        if parameters.keys() != put.weights.keys():
            return Answer(problem=f"parameters differ: {sorted(parameters.keys() ^ put.weights.keys())[:3]}")
        for name, values in put.weights.items():
            parameters[name].data.copy_(values)
        return Answer(tuple(host.output_tensor(run(tower, inputs)).clone() for inputs in put.inputs))
    except Exception as error:
        return Answer(problem=f"{type(error).__name__}: {' '.join(str(error).split())}"[:300])


def main(folder: Path) -> None:
    """Answer the questions in a folder."""
    host.prepare_process()
    host.start_groups()
    questions: list[Question] = torch.load(folder / "questions", weights_only=False)
    torch.save([answer(put) for put in questions], folder / "answers")

"""`python -m porting.towers.draft PATH`: the first draft of a family's file, for the towers of a model file.

The file is imported and its towers are tried in a process of its own. Drafts go to standard output, what is left to do
to standard error. Exit codes: 0 each draft builds and runs, 1 something has to be filled in, 2 there is nothing to
draft.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from porting.job import Job
from porting.levels import Level
from porting.processes.limits import Limits
from porting.processes.local import LocalRunner
from porting.result import Status
from porting.wrong_environment import WrongEnvironment

RUNS, TO_DO, NOTHING = 0, 1, 2
DRAFT = Level("draft", "What would a family's file look like?", "porting.towers.drafting")


def main(arguments: list[str] | None = None) -> int:
    """Print a draft for each tower; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m porting.towers.draft", description=__doc__.partition("\n")[0])
    parser.add_argument("path", type=Path, metavar="PATH", help="a model file, ported to the installed vLLM")
    path = parser.parse_args(arguments).path.resolve()
    if not path.is_file():
        parser.error(f"{path} is no file; give the file that defines the tower")
    try:
        with LocalRunner(Limits()) as runner:
            results = runner.answer(DRAFT, Job(path, DRAFT.name))
    except WrongEnvironment as problem:
        parser.error(str(problem))
    for result in results:
        print(result.summary, file=sys.stderr)
        print(result.numbers.get("draft", ""), end="")
    if not any("draft" in result.numbers for result in results):
        return NOTHING
    return RUNS if all(result.status is Status.PASSED for result in results) else TO_DO


if __name__ == "__main__":
    sys.exit(main())

"""Measure the codemod on the models of a whole vLLM release, beside what others take for less.

All in one run on one machine, because only the ratios carry over to another.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
MODELS = Path("vllm", "model_executor", "models")
OLD, NEW = "MultiHeadAttention", "MMEncoderAttention"

OURS, ATTENTION, LEAST, RUNNER, AST_GREP = (
    "vitport",
    "vitport: vision attention alone",
    "LibCST: parse and print",
    "LibCST's codemod runner: rename",
    "ast-grep: rename",
)
ATTENTION_RULES = "VA1,VA2,VA3,VA4,VA5"  # and what these need


@dataclass(frozen=True)
class Cost:
    """What one run took: seconds on the clock, seconds of CPU over all its processes, MiB of its largest process."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Exits 1, with the reason, if something cannot be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("--release", default="0.12.0", help="the vLLM whose models are ported (default: %(default)s)")
    parser.add_argument("--target", default="0.32", help="the vLLM to port to (default: %(default)s)")
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs of the quick ones, the best counts (default: %(default)s)"
    )
    parser.add_argument("--no-runner", action="store_true", help="leave LibCST's own runner out; it takes two minutes")
    parser.add_argument("--only", default="*.py", metavar="PATTERN", help="for a first look: measure fewer files")
    options = parser.parse_args(arguments)
    try:
        with TemporaryDirectory() as scratch:
            bench(options, Path(scratch))
    except RuntimeError as problem:
        print(f"benchmarks: {problem}", file=sys.stderr)
        return 1
    return 0


def bench(options: argparse.Namespace, scratch: Path) -> None:
    original = release_files(options.release) / MODELS
    command = [sys.executable, "-m", "codemods.migrate", "--quiet", "--target", options.target]
    copy = scratch / "copy" / MODELS
    chosen = [path.relative_to(original) for path in sorted(original.rglob(options.only)) if path.suffix == ".py"]

    def fresh() -> Path:
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir(parents=True)
        for path in chosen:
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(original / path, copy / path)
        return copy

    def measured(
        *words: str, repeat: int = options.repeat, accept: tuple[int, ...] = (0,), cwd: Path = scratch
    ) -> Cost:
        return best([measure([*words], accept, fresh, cwd) for _ in range(repeat)])

    costs: dict[tuple[str, int], Cost] = {}
    for jobs in (1, 2):
        costs[OURS, jobs] = measured(*command, "--jobs", str(jobs), str(copy), accept=(0, 1))  # 1: findings remain
    touched = [
        str(path)
        for path in copy.rglob("*.py")
        if path.read_bytes() != (original / path.relative_to(copy)).read_bytes()
    ]
    costs[ATTENTION, 1] = measured(*command, "--select", ATTENTION_RULES, str(copy), accept=(0, 1))
    for jobs in (1, 2):
        costs[LEAST, jobs] = measured(
            sys.executable, str(ROOT / "benchmarks" / "parse_and_print.py"), str(jobs), *touched
        )
    skipped = {}
    ast_grep = shutil.which("ast-grep", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if ast_grep:
        rename = [ast_grep, "run", "--lang", "python", "--pattern", OLD, "--rewrite", NEW, "--update-all", str(copy)]
        costs[AST_GREP, 0] = measured(*rename)
    else:
        skipped[AST_GREP] = "not installed: pip install ast-grep-cli"
    if options.no_runner:
        skipped[RUNNER] = "left out by --no-runner"
    else:
        old, new = f"vllm.attention.layer.{OLD}", f"vllm.model_executor.layers.attention.{NEW}"
        runner = [sys.executable, "-m", "libcst.tool", "codemod", "rename.RenameCommand", "--old_name", old]
        runner += ["--new_name", new, "--no-format", "--hide-progress", "--jobs", "1", str(copy)]
        costs[RUNNER, 1] = measured(*runner, repeat=1)
    report(costs, skipped, len(chosen), len(touched))


def release_files(release: str) -> Path:
    """The folder that holds the release's `vllm/`; asked of another process, to keep this one small."""
    code = "import sys; from tests import wheels; print(wheels.model_files(sys.argv[1]).parent)"
    done = subprocess.run([sys.executable, "-c", code, release], capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise RuntimeError(f"no files of vLLM {release}: {done.stderr.strip().splitlines()[-1]}")
    return Path(done.stdout.strip())


def measure(command: Sequence[str], accept: tuple[int, ...], prepare: Callable[[], object], cwd: Path) -> Cost:
    """Raises RuntimeError if the command's exit code is not one of those to accept."""
    prepare()
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(ROOT / "benchmarks" / "measure.py"), *command],
        capture_output=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    found = json.loads(done.stdout) if done.returncode == 0 else {"exit": done.returncode}
    if found.pop("exit") not in accept:
        raise RuntimeError(f"{' '.join(command[:4])} ... failed: {done.stderr.strip()[-500:]}")
    return Cost(**found)


def best(costs: Sequence[Cost]) -> Cost:
    """The run that took least CPU time: what disturbs a run only ever adds to it."""
    return min(costs, key=lambda cost: cost.cpu_s)


def report(costs: dict[tuple[str, int], Cost], skipped: dict[str, str], files: int, touched: int) -> None:
    print(f"{files} files, of which {touched} change; Python {sys.version.split()[0]}, {os.cpu_count()} CPUs\n")
    print("| what | jobs | wall s | CPU s | peak MiB |\n|---|---|---|---|---|")
    for (name, jobs), cost in costs.items():
        print(f"| {name} | {jobs or 'own'} | {cost.wall_s:.1f} | {cost.cpu_s:.1f} | {cost.peak_mib:.0f} |")
    for name, reason in skipped.items():
        print(f"| {name} | | {reason} | | |")
    print("\n| ratio | CPU | wall | goal |\n|---|---|---|---|")
    for jobs in (1, 2):
        ratio(f"{OURS} to {LEAST}, jobs {jobs}", costs[OURS, jobs], costs[LEAST, jobs], "at most 3")
    if (RUNNER, 1) in costs:
        for name in (OURS, ATTENTION):
            ratio(f"{RUNNER} to {name}, jobs 1", costs[RUNNER, 1], costs[name, 1], "at least 15")
    if (AST_GREP, 0) in costs:
        ratio(f"{OURS} to {AST_GREP}", costs[OURS, 1], costs[AST_GREP, 0], "none")


def ratio(name: str, one: Cost, other: Cost, goal: str) -> None:
    print(f"| {name} | {one.cpu_s / other.cpu_s:.1f} | {one.wall_s / other.wall_s:.1f} | {goal} |")


if __name__ == "__main__":
    sys.exit(main())

"""Does every vLLM name and call fit the target, and what will only break elsewhere?

Nothing is imported. The rules of codemods are run over the file and what it draws on, in check mode: what they would
still rewrite or report is not ported. Then every name and call of vLLM's is held against the release's index, and what
breaks on other devices alone is looked for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codemods import calls, vllm_api
from codemods.findings import FileReport, Severity
from codemods.findings import Status as FileStatus
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.run import Options, examine
from codemods.vision_attention import vocabulary as V
from porting.drawn_on import drawn_on
from porting.elsewhere import Problem, problems
from porting.job import Job
from porting.result import Result, Status

_INTERFACES = ("vllm.model_executor.models.", "vllm.multimodal.")


@dataclass(frozen=True)
class Fit:
    """How a file fits a release. `rest` was found in classes that plug into vLLM as a whole model or a processor."""

    release: str
    counts: Mapping[str, int]
    tower: Sequence[Problem]
    rest: Sequence[Problem]


def run(job: Job) -> list[Result]:
    """The vision tower and what it is made of, for the installed vLLM or, without one, the newest known."""
    fit = look_at(job.path)
    if not fit.counts["names"] and not fit.tower and not fit.rest:
        return [job.result(Status.NOT_RUN, "the file takes nothing from vLLM")]
    fine = f"{fit.counts['names']} names and {fit.counts['calls']} calls of vLLM's fit {fit.release}"
    return [judged(job, fit.tower, fine, fit.counts)]


def look_at(path: Path) -> Fit:
    """Plan a port of the file and of what it draws on, and sort what is still to be done."""
    release = vllm_api.resolve(vllm_api.installed() or "latest")
    # A file may serve several releases: its questions for vLLM's version are not what is asked here.
    options = Options(release, write=False, keep_guards=True)
    report, plan = examine([path, *drawn_on(path)], options)
    found = [problem for file in report.files for problem in _of_codemods(file)]
    told = {(problem.path, problem.line) for problem in found}
    counts, own = _fits(plan)
    found += [p for p in [*own, *problems(plan)] if (p.path, p.line) not in told]
    rest = [problem for problem in found if _is_interface(plan, problem)]
    return Fit(release, counts, [problem for problem in found if problem not in rest], rest)


def judged(job: Job, found: Sequence[Problem], fine: str, counts: Mapping[str, int]) -> Result:
    """A result of problems; those that are not certain are notes."""
    wrong = [_line(problem) for problem in found if problem.certain]
    notes = tuple(_line(problem) for problem in found if not problem.certain)
    numbers = {**counts, "problems": wrong}
    if not wrong:
        return job.result(Status.PASSED, fine, numbers=numbers, notes=notes)
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return job.result(Status.FAILED, wrong[0] + more, numbers=numbers, notes=notes)


def _is_interface(run: Plan, problem: Problem) -> bool:
    """Whether it lies in a class that plugs into vLLM as a whole model, or as the processor of its inputs."""
    for file in run.files:
        for node in file.file.class_nodes if file.file.path == problem.path else ():
            if node.lineno <= problem.line <= (node.end_lineno or node.lineno):
                classes = run.project.bases(Class(file.file, node))
                bases = [
                    run.project.vllm(member.file, _plain(base)) for member in classes for base in member.node.bases
                ]
                return any(base is not None and base.startswith(_INTERFACES) for base in bases)
    return False


def _plain(base: ast.expr) -> ast.expr:
    """A base without what stands in brackets behind it."""
    return base.value if isinstance(base, ast.Subscript) else base


def _line(problem: Problem) -> str:
    return f"{problem.path.name}:{problem.line}: {problem.message}. {problem.remedy}".rstrip()


def _of_codemods(file: FileReport) -> Iterator[Problem]:
    path = Path(file.path)
    if file.status is FileStatus.FAILED:
        yield Problem(path, 1, (file.error or "").removeprefix(f"{file.path}:").strip(), "")
    for rewrite in file.rewrites:
        message = f"not ported, {rewrite.code} would still rewrite it: {rewrite.message}"
        yield Problem(path, rewrite.line, message, "Run vitport on it.")
    for finding in file.findings:
        message, certain = f"{finding.code}: {finding.message}", finding.severity is not Severity.NOTE
        yield Problem(path, finding.line, message, finding.remedy, certain, finding.severity)


def _fits(run: Plan) -> tuple[dict[str, int], list[Problem]]:
    """How many names and calls of vLLM's were held against the index, and those that do not fit."""
    counts = {"names": 0, "calls": 0}
    wrong = []
    for file in run.open_files:
        for imported in file.file.imports:
            module, name = imported.module, imported.name
            if module.split(".")[0] != "vllm" or module in run.project.by_module:
                continue
            counts["names"] += 1
            if name not in (None, "*") and run.api.has(module, name) is False and not _borne(file, imported.statement):
                line = imported.statement.lineno
                message = f"vLLM {run.target.version} has no {name} in {module}"
                wrong.append(Problem(file.file.path, line, message, "Replace its uses."))
        for call in file.file.nodes[ast.Call]:
            assert isinstance(call, ast.Call)
            name = run.project.vllm(file.file, call.func)
            owner = name.rpartition(".")[0] if name is not None else ""
            if name is None or owner in run.project.by_module or run.api.ancestry(owner):
                continue  # Class.method(instance, ...) takes one argument more than the index counts
            counts["calls"] += 1
            why = calls.why_not(run.api, name, call)
            if why is not None:
                message = f"this call of {V.last(name)} does not fit vLLM {run.target.version}: {why}"
                wrong.append(Problem(file.file.path, call.lineno, message, "Call it as that release's signature asks."))
    return counts, wrong


def _borne(file: FilePlan, statement: ast.AST) -> bool:
    """Whether the file says itself what it does without the name: the import stands in a `try`."""
    return any(isinstance(above, ast.Try) and above.handlers for above in file.file.above(statement))

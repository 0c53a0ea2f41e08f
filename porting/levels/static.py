"""Does every vLLM name and call fit the target, and what will only break elsewhere?

Nothing is imported. The rules of codemods are run over the file and what it draws on, in check mode: what they would
still rewrite or report is not ported. Then every name and call of vLLM's is held against the release's index, and what
breaks on other devices alone is looked for.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codemods import calls, vllm_api
from codemods.findings import FileReport, Severity
from codemods.findings import Status as FileStatus
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.run import Options, examine
from codemods.vision_attention import vocabulary as V
from porting.drawn_on import drawing_on, drawn_on
from porting.elsewhere import Problem, problems
from porting.job import Job
from porting.result import Result, Status

_INTERFACES = ("vllm.model_executor.models.", "vllm.multimodal.")


@dataclass(frozen=True)
class Fit:
    """How a file fits a release.

    `rest` was found in classes that plug into vLLM as a whole model or a processor, of which there are `plugged`.
    `unread` is what cannot be read of it, or of what it draws on.
    """

    release: str
    counts: Mapping[str, int]
    tower: Sequence[Problem]
    rest: Sequence[Problem]
    plugged: int
    unread: Sequence[Problem] = ()


def run(job: Job) -> list[Result]:
    """The vision tower and what it is made of, for the installed vLLM or, without one, the newest known."""
    fit = look_at(job)
    if fit.unread:
        return [judged(job, fit.unread, "", {})]
    if not fit.counts["names"] and not fit.tower and not fit.rest:
        return [job.result(Status.NOT_RUN, "the file takes nothing from vLLM")]
    fine = f"{fit.counts['names']} names and {fit.counts['calls']} calls of vLLM's fit {fit.release}"
    return [judged(job, fit.tower, fine, fit.counts)]


def look_at(job: Job) -> Fit:
    """Plan a port of the file, of what it draws on and of what draws on these, and sort what is still to be done.

    What draws on them was given as well: it is read for how it uses them, and is judged where it is a model itself.
    """
    release = vllm_api.resolve(vllm_api.installed() or "latest")
    # A file may serve several releases: its questions for vLLM's version are not what is asked here.
    options = Options(release, write=False, keep_guards=True)
    own = [job.path, *drawn_on(job.path)]
    report, plan = examine([*own, *drawing_on(own, job.given)], options)
    judged_here = {path.resolve() for path in own}
    files = [file for file in report.files if Path(file.path).resolve() in judged_here]
    read = {file.file.path for file in plan.files}
    unread = [_unread(file) for file in files if file.error is not None and Path(file.path) not in read]
    found = [problem for file in files for problem in _of_codemods(file)]
    told = {(problem.path, problem.line) for problem in found}
    counts, unfit = _fits(plan, judged_here)
    more = [*unfit, *(problem for problem in problems(plan) if problem.path.resolve() in judged_here)]
    found += [problem for problem in more if (problem.path, problem.line) not in told]
    plugs = [
        (file.file.path, node)
        for file in plan.files
        if file.file.path.resolve() in judged_here
        for node in file.file.class_nodes
        if _plugs_in(plan, Class(file.file, node))
    ]
    rest = [problem for problem in found if any(_lies_in(problem, *plug) for plug in plugs)]
    return Fit(release, counts, [problem for problem in found if problem not in rest], rest, len(plugs), unread)


def judged(job: Job, found: Sequence[Problem], fine: str, counts: Mapping[str, int]) -> Result:
    """A result of problems; those that are not certain are notes."""
    wrong = [_line(problem) for problem in found if problem.certain]
    notes = tuple(_line(problem) for problem in found if not problem.certain)
    numbers = {**counts, "problems": wrong}
    if not wrong:
        return job.result(Status.PASSED, fine, numbers=numbers, notes=notes)
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return job.result(Status.FAILED, wrong[0] + more, numbers=numbers, notes=notes)


def _plugs_in(run: Plan, cls: Class) -> bool:
    """Whether a class plugs into vLLM as a whole model, or as the processor of its inputs."""
    members = run.project.bases(cls)
    bases = [run.project.vllm(member.file, _plain(base)) for member in members for base in member.node.bases]
    return any(base is not None and base.startswith(_INTERFACES) for base in bases)


def _lies_in(problem: Problem, path: Path, node: ast.ClassDef) -> bool:
    return problem.path == path and node.lineno <= problem.line <= (node.end_lineno or node.lineno)


def _plain(base: ast.expr) -> ast.expr:
    """A base without what stands in brackets behind it."""
    return base.value if isinstance(base, ast.Subscript) else base


def _line(problem: Problem) -> str:
    return f"{problem.path.name}:{problem.line}: {problem.message}. {problem.remedy}".rstrip()


def _of_codemods(file: FileReport) -> Iterator[Problem]:
    path = Path(file.path)
    if file.status is FileStatus.FAILED:
        yield _unread(file)
    for rewrite in file.rewrites:
        message = f"not ported, {rewrite.code} would still rewrite it: {rewrite.message}"
        yield Problem(path, rewrite.line, message, "Run vitport on it.")
    for finding in file.findings:
        message, certain = f"{finding.code}: {finding.message}", finding.severity is not Severity.NOTE
        yield Problem(path, finding.line, message, finding.remedy, certain, finding.severity)


def _unread(file: FileReport) -> Problem:
    """What kept a file from being read or changed, which is one line: path, line if known, reason."""
    line, _, reason = (file.error or "").removeprefix(file.path).lstrip(":").partition(":")
    if not line.isdigit():
        line, reason = "1", f"{line}:{reason}"
    return Problem(Path(file.path), int(line), reason.strip(), "")


def _fits(run: Plan, judged_here: Collection[Path]) -> tuple[dict[str, int], list[Problem]]:
    """How many names and calls of vLLM's were held against the index, and those that do not fit."""
    counts = {"names": 0, "calls": 0}
    wrong = []
    for file in run.open_files:
        if file.file.path.resolve() not in judged_here:
            continue
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

"""What must hold of every port of a whole models folder. Each check yields the faults it found, one line each."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from codemods import vllm_api
from codemods.findings import Finding, Severity, Sites
from tests.corpus.attention_facts import gives_config, takers
from tests.corpus.comments import lost_comments
from tests.corpus.old_api import ENCODER, MULTI_HEAD, Use, calls, method, reached
from tests.corpus.port import MODELS, File, Port, name_in, run, texts

CALL_KEYWORDS = {"query", "key", "value", "cu_seqlens", "max_seqlen"}
CONSTRUCTOR_KEYWORDS = {"num_heads", "head_size", "scale", "prefix"}
RUFF_RULES = "F401,F811,F821,F841"


def no_file_fails(port: Port) -> Iterator[str]:
    for file in port.files:
        wrong = [finding.message for finding in file.report.findings if finding.code == "VA900"]
        if file.report.error or wrong:
            yield f"{file.name}: {file.report.error or wrong}"


def every_chain_is_one_call(port: Port) -> Iterator[str]:
    """A class that chose its kernel builds one op in `__init__` and calls it once, by keywords the target knows."""
    for file in port.vision:
        yield from (f"{file.name}: a chain is left in {chain.scope}" for chain in file.new.chains())
        for chain in file.old.chains():
            path = chain.scope.rpartition(".")[0]
            wrong = wrong_with_op(file.new.classes[path], port.target)
            if wrong:
                yield f"{file.name}: {path} {wrong}"


def wrong_with_op(cls: ast.ClassDef, target: str) -> str | None:
    init, built = method(cls, "__init__"), calls(cls, ENCODER)
    if init is None or len(built) != 1 or calls(init, ENCODER) != built:
        return f"builds {len(built)} ops, or not in __init__"
    op = next(s.targets[0] for s in ast.walk(init) if isinstance(s, ast.Assign) and s.value is built[0])
    given = {str(keyword.arg) for keyword in built[0].keywords}
    misfit = constructor(target).binds(len(built[0].args), given)
    if built[0].args or misfit or not given >= CONSTRUCTOR_KEYWORDS:
        return f"builds the op with {sorted(given)}: {misfit}"
    called = [n for n in ast.walk(cls) if isinstance(n, ast.Call) and ast.unparse(n.func) == ast.unparse(op)]
    if [{k.arg for k in call.keywords} for call in called] != [CALL_KEYWORDS] or called[0].args:
        return f"calls the op as {[ast.unparse(call) for call in called]}"
    return None


@cache
def constructor(target: str) -> vllm_api.Signature:
    api = vllm_api.Api.of(vllm_api.resolve(target))
    signature = api.signature(f"{api.where(ENCODER)[0]}.{ENCODER}")
    assert signature is not None
    return signature


def every_multi_head_attention_is_ported(port: Port) -> Iterator[str]:
    """From 0.14 on each site has the new class in its place; at 0.13, where it cannot, a finding on its line."""
    for file in port.vision:
        for use in file.old.uses(MULTI_HEAD):
            if not reached("0.14", port.target):
                found = [finding for finding in file.report.findings if finding.code == "VA101"]
                if not found or (is_site(use) and use.line not in {finding.line for finding in found}):
                    yield f"{file.name}:{use.line}: left without a finding"
            elif not is_refused(file, use) and count(file.new.uses(ENCODER), use.scope) < count(
                file.old.uses(MULTI_HEAD), use.scope
            ):
                yield f"{file.name}:{use.line}: not ported"


def is_site(use: Use) -> bool:
    """Whether the class is built, passed or inherited there; an import or an annotation only serves such sites."""
    built = isinstance(use.parent, ast.Call) and use.parent.func is use.node
    return built or isinstance(use.parent, (ast.keyword, ast.ClassDef))


def is_refused(file: File, use: Use) -> bool:
    scopes = [use.cls] if use.scope else [inner.cls for inner in file.new.uses(use.name) if inner.scope]
    return any(
        covers(file, finding, scope) for finding in file.report.findings if is_refusal(finding) for scope in scopes
    )


def is_refusal(finding: Finding) -> bool:
    return finding.code in ("VA101", "VA201") and finding.severity is Severity.ERROR


def covers(file: File, finding: Finding, scope: str) -> bool:
    """Whether a finding lies in the module-level class of that name."""
    cls = file.old.classes.get(scope)
    return cls is not None and cls.lineno <= finding.line <= (cls.end_lineno or 0)


def count(uses: list[Use], scope: str) -> int:
    return sum(use.scope == scope for use in uses)


def only_cross_attention_is_refused(port: Port) -> Iterator[str]:
    refused = {file.name for file in port.files if any(map(is_refusal, file.report.findings))}
    expected = {"molmo.py"} if reached("0.14", port.target) else set()
    if refused != expected:
        yield f"refused: {sorted(refused)}"


def nothing_removed_is_left(port: Port) -> Iterator[str]:
    """What is gone at the target stands nowhere, except where a finding names it or lies in the same class."""
    for file in port.vision:
        for use in file.new.removed(port.target):
            if not is_explained(file, use):
                yield f"{file.name}: {use.name} is left in line {use.line} ({use.scope or 'module'})"


def is_explained(file: File, use: Use) -> bool:
    scopes = [use.cls] if use.scope else [inner.cls for inner in file.new.uses(use.name) if inner.scope]
    return any(use.name in f.message or any(covers(file, f, s) for s in scopes) for f in file.report.findings)


def ruff_finds_nothing_new(port: Port) -> Iterator[str]:
    for (name, code, message), more in (ruff(port.folder) - ruff_before(port.release)).items():
        yield f"{name}: {code} {message} ({more} more than before)"


@cache
def ruff_before(release: Path) -> Counter[tuple[str, str, str]]:
    return ruff(release.parent / MODELS)


def ruff(models: Path) -> Counter[tuple[str, str, str]]:
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--output-format", "json"]
    command += ["--select", RUFF_RULES, "--target-version", "py310", str(models)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    found = [(name_in(models, Path(f["filename"])), str(f["code"]), f["message"]) for f in json.loads(done.stdout)]
    return Counter((name, code, re.sub(r"line \d+", "line", message)) for name, code, message in found)


def no_op_is_built_outside_init(port: Port) -> Iterator[str]:
    """Such an op reads the configuration, which vLLM sets only while it constructs a model."""
    for file in port.vision:
        for use in file.new.built_outside_init():
            if not is_explained(file, use):
                yield f"{file.name}: {use.name} is built in {use.scope}"


def config_reaches_every_op(port: Port) -> Iterator[str]:
    """At 0.13 and 0.14 the op learns the user's choice of backend from its caller, through every class in between."""
    fed = takers({module_of(file): file.new for file in port.vision})
    fed -= takers({module_of(file): file.old for file in port.vision})
    for file in port.vision:
        for call, gives in gives_config(module_of(file), file.new, fed).items():
            caller = call.partition(" -> ")[0].partition(".")[0]
            chose = any(use.cls == caller for use in file.old.uses("attn_backend_override"))  # else nobody chose before
            if not gives and chose and not any(covers(file, finding, caller) for finding in file.report.findings):
                yield f"{file.name}: {call} without multimodal_config"


def module_of(file: File) -> str:
    return file.name.removesuffix(".py")


def comments_are_kept(port: Port) -> Iterator[str]:
    for file in port.files:
        if file.before != file.after:
            yield from (f"{file.name}:{lost.line}: lost {lost.text}" for lost in lost_comments(file.before, file.after))


def other_files_are_not_touched(port: Port) -> Iterator[str]:
    for file in port.files:
        if file.report.changed != (file.before != file.after):
            yield f"{file.name}: the report does not say whether it changed"
        if file.before == file.after and file.stamps[0] != file.stamps[1]:
            yield f"{file.name}: written although nothing changed"


def sites_add_up(port: Port) -> Iterator[str]:
    """Every file that uses the removed API has sites, and the counts of the run are the sums over its files."""
    if port.report.sites != sum((file.report.sites for file in port.files), Sites()):
        yield "the run's sites are not those of its files"
    for file in port.vision:
        if file.old.removed(port.target) and file.report.sites.total == 0:
            yield f"{file.name}: uses the old API and has no site"


def second_run_is_empty(port: Port) -> Iterator[str]:
    """The last check: it runs the codemod over the ported folder."""
    again = run([port.folder], port.target)
    yield from (f"{file.path}: reported as changed again" for file in again.files if file.changed)
    later = texts(port.folder)
    yield from (f"{file.name}: other text after a second run" for file in port.files if file.after != later[file.name])


ALL = (
    no_file_fails,
    every_chain_is_one_call,
    every_multi_head_attention_is_ported,
    only_cross_attention_is_refused,
    nothing_removed_is_left,
    ruff_finds_nothing_new,
    no_op_is_built_outside_init,
    config_reaches_every_op,
    comments_are_kept,
    other_files_are_not_touched,
    sites_add_up,
    second_run_is_empty,
)

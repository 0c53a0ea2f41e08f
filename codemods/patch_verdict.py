"""What becomes of a patch at the target: it holds, it breaks, or it changes nothing without a word."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from codemods import edits as E
from codemods import moved_names
from codemods import patched_target as at
from codemods.findings import Severity
from codemods.parsed_file import FunctionNode, ParsedFile
from codemods.patch_replacement import Replacement, module_of, names_of, replacements
from codemods.patches import Patch, import_of
from codemods.plan import FilePlan, Plan
from codemods.source_version import newest_source
from codemods.vllm_api import Api, Signature, releases


@dataclass(frozen=True)
class Verdict:
    severity: Severity
    message: str
    remedy: str


def judge(run: Plan, file: FilePlan, patch: Patch) -> Verdict | None:
    """Held against the index: is it there, is it called so, who has a copy of it.

    None where it only sets a value on something that the index does not know: an attribute of some object, say.
    """
    target = _after_moves(run, patch)
    there = at.has(run.api, target)
    if there is None:
        return _unknown(run, target) if _is_code(patch) else None
    if not there:
        return _gone(run, patch, target)
    if patch.module:
        return module_replaced(run, file, target, own=module_of(run, patch.value))
    return _held(run, file, patch, target)


def _after_moves(run: Plan, patch: Patch) -> str:
    """The name as the target has it where the import that a patch goes through follows it there."""
    through = import_of(patch)
    if through is None:
        return patch.target
    file, imported = run.of(through[0]), through[1]
    if imported.name is None or not patch.target.startswith(f"{imported.qualified}."):
        return patch.target
    edit = E.RemoveImport(E.Ref.of(imported.statement), imported.name)
    home = moved_names.home(run, imported.module, imported.name)
    if home is None or not (edit in file.edits or file.gone(imported.statement)):
        return patch.target
    return f"{home.module}.{home.name}{patch.target.removeprefix(imported.qualified)}"


def _is_code(patch: Patch) -> bool:
    """Whether what is put in place may be a function, a class or a module; a mock is."""
    plain = (ast.Name, ast.Attribute, ast.Lambda, ast.ClassDef, *FunctionNode)
    return patch.value is None or isinstance(patch.value.node, plain)


# -- what is not there -----------------------------------------------------------------------------------------------


def _unknown(run: Plan, target: str) -> Verdict:
    what = f"{target} is patched here, and the index of vLLM {run.target.version} does not say whether it is there"
    return Verdict(Severity.NOTE, what, f"Look it up in vLLM {run.target.version}.")


def _gone(run: Plan, patch: Patch, target: str) -> Verdict:
    release = run.target.version
    since = at.gone_since(target, release)
    known = at.history(target)
    owner = target.rpartition(".")[0]
    if not known and at.history(owner) and at.has(run.api, owner) is False:
        return _gone(run, patch, owner)
    if not known:
        if patch.raises:
            message = f"{target} is in no vLLM that is known: the patch fails where it is made"
            return Verdict(Severity.ERROR, message, "Patch a name that is there.")
        former = _formerly(target)
        if former is not None:
            message = (
                f"{target} is set here; vLLM had it in {former.module} up to {former.release}: nothing reads it now"
            )
            remedy = ["Take the patch out, or find what does its work now."]
            op = at.op(run.api, target)
            return Verdict(Severity.ERROR, message, " ".join([*remedy, *([_op_way(op)] if op else [])]))
        message = f"{target} is set here; no vLLM that is known has it, so only the plugin itself can read it"
        return Verdict(Severity.NOTE, message, "Nothing has to be done if that is what it is for.")
    when = f"since {since}" if since else f"before {known[0]}"
    what = "the patch fails where it is made" if patch.raises else "the assignment succeeds and changes nothing"
    if patch.module:
        what = "nothing imports it, so what is put there is never used"
    elif (line := _failing_import(run, patch)) is not None:
        what = f"the import in {line} fails"
    elif not run.api.has_module(module := _last_place(target).module):
        what = f"there is no {module}, so the patch fails where it is made"
    message = f"{target} is patched here and is not in vLLM {release} {when}: {what}"
    return Verdict(Severity.ERROR, message, " ".join(_replacement(run, target)))


@dataclass(frozen=True)
class _Former:
    module: str
    release: str


def _formerly(target: str) -> _Former | None:
    """Where a name was that a module never had in its present place, as the module was then: it moved, and left the
    name behind."""
    module, _, name = target.rpartition(".")
    for release in reversed(releases()):
        for home in Api.of(release).where(name):
            if home.rpartition(".")[2] == module.rpartition(".")[2]:
                return _Former(home, release)
    return None


def _failing_import(run: Plan, patch: Patch) -> str | None:
    """The line of the import that a patch goes through, where the target does not have what that names."""
    through = import_of(patch)
    if through is None:
        return None
    file, imported = through
    modules = [a.name for a in imported.statement.names] if imported.name is None else []
    if imported.name is None:
        works = all(run.api.has_module(module) for module in modules if patch.target.startswith(module))
    else:
        works = run.api.has(imported.module, imported.name) is not False
    return None if works else file.line(imported.statement.lineno)


def _last_place(target: str) -> at.Place:
    """The parts of a name in the last release that has it."""
    last = at.history(target)[-1]
    found = at.place(Api.of(last), target)
    assert found is not None
    return found


def _replacement(run: Plan, target: str) -> Iterator[str]:
    """Where the target has what was patched, or how a device replaces it now."""
    op = at.op(run.api, target)
    found = _last_place(target)
    home = moved_names.home(run, found.module, found.name) if found.name else None
    if not found.name and (module := at.moved_to(run.api, found.module)):
        yield f"Most of what it had is in {module}: see whether the patch is still needed, and move it there."
    elif home is not None and (home.module, home.name) != (found.module, found.name):
        new = f"{home.module}.{home.name}"
        if found.member and at.has(run.api, f"{new}.{found.member}") is False:
            yield f"{new} has no {found.member}: take the patch out, or find what does its work now."
        else:
            member = f".{found.member}" if found.member else ""
            yield f"It is {new}{member} now: see whether the patch is still needed, and move it there."
    elif op is None:
        yield "Take the patch out, or find what does its work now."
    if op is not None:
        yield _op_way(op)


def _op_way(op: str) -> str:
    register = f'@CustomOp.register_oot(name="{op}")'
    return f"A device replaces it by an out-of-tree op: a class that extends {op}, under {register}."


# -- what is there ---------------------------------------------------------------------------------------------------


def module_replaced(
    run: Plan, file: FilePlan, target: str, how: str = "is replaced as a whole", own: ParsedFile | None = None
) -> Verdict:
    """A module of vLLM's that the plugin answers for: it needs every name that vLLM imports from it."""
    release = run.target.version
    taken = at.taken_from(run.api, target)
    has = names_of(own) if own is not None else None
    lost = sorted(name for name in taken if name not in has) if has is not None else []
    message = f"{target} of vLLM {release} {how} here"
    if own is not None and lost:
        users = sorted({module for name in lost for module in taken[name]})[:3]
        message = f"{message}; {own.module} has no {', '.join(lost[:3])}, which {', '.join(users)} import from it"
        return Verdict(Severity.ERROR, message, f"Add what is missing: {', '.join(lost)}.")
    source = _source(run, file)
    before = at.taken_from(Api.of(source), target) if source else {}
    new = sorted(name for name in taken if name not in before) if source and has is None else []
    if new:
        message = f"{message}; vLLM also imports {', '.join(new[:3])} from it, which it did not in {source}"
        return Verdict(Severity.WARNING, message, f"See that the replacement has them: {', '.join(new)}.")
    return Verdict(Severity.NOTE, message, "Compare it with the module of this release.")


def _held(run: Plan, file: FilePlan, patch: Patch, target: str) -> Verdict:
    release = run.target.version
    now = at.signature(run.api, target)
    how = f"{at.short(run.api, target)}{now}" if now is not None else at.short(run.api, target)
    op = at.op(run.api, target)
    other_way = _op_way(op) if op else ""
    seen = False
    source = _source(run, file)
    then = at.signature(Api.of(source), patch.target) if source else None
    for own in replacements(run, patch, target):
        seen = True
        verdict = _misfit(run, own, then, other_way)
        if verdict is not None:
            return verdict
    unseen = patch.value is not None and not isinstance(patch.value.node, ast.Constant) and not seen
    if now is not None and unseen and then is not None and then != now:
        message = f"{how} is patched here; in vLLM {source} it was {then}"
        return Verdict(Severity.WARNING, message, f"See whether the patch still fits. {other_way}".strip())
    taken = at.copies(run.api, target)
    old = Api.of(source) if source else run.api
    new = [m for m in taken if old.has_module(m) and m not in at.copies(old, patch.target)] if source else []
    message = f"{how} is patched here, and is in vLLM {release}"
    if taken:
        several = f"{', '.join(taken[:3])}{f' and {len(taken) - 3} more' if len(taken) > 3 else ''}"
        message += f"; {several} import{'s' if len(taken) == 1 else ''} it by name and may keep the original"
    if new:
        message += f"; {', '.join(new[:3])} did not in vLLM {source}"
        remedy = f"See that the patch is made before these are imported. {other_way}".strip()
        return Verdict(Severity.WARNING, message, remedy)
    return Verdict(Severity.NOTE, message, other_way or "Nothing has to be done.")


def _misfit(run: Plan, own: Replacement, then: Signature | None, other_way: str) -> Verdict | None:
    misfits = [at.misfit(one, own.wanted) for one in own.signatures]
    fits = next((m for m in misfits if m == at.Misfit()), misfits[0])
    taken = own.signatures[misfits.index(fits)].parameters
    starved = [p.name for p in taken if p.name in own.reads and p.name not in own.wanted and p.name in (then or ())]
    if fits == at.Misfit() and not starved:
        return None
    why = "; ".join(at.spelled((*fits.always, *fits.sometimes)))
    message = f"{own.name} is put in place of {own.place}{own.wanted} of vLLM {run.target.version}"
    remedy = "Give it the same parameters."
    if fits.always:
        message += f" and cannot be called like it: {why}"
    elif fits.sometimes:
        message += f"; some calls of that would fail: {why}"
    if starved:
        message += f"; nothing passes {', '.join(starved)} to it any more"
        if own.name.endswith("__init__"):
            remedy = f"{remedy} What {', '.join(starved)} said is read from get_current_vllm_config() now."
    severity = Severity.ERROR if fits.always else Severity.WARNING
    return Verdict(severity, message, f"{remedy} {other_way}".strip())


def _source(run: Plan, file: FilePlan) -> str | None:
    """The newest release that has all that a file imports and patches: the one it was written for, or a later one."""
    targets = [patch.target for patch in run.patches.of(file.file)]

    def has_all(api: Api) -> bool:
        return all(at.has(api, target) is not False or not at.history(target) for target in targets)

    return newest_source(run.project, file.file, file.source, run.target.version, has_all)

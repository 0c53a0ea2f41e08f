"""What becomes of a patch at the target: it holds, it breaks, or it changes nothing without a word."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from codemods import edits as E
from codemods import moved_names
from codemods import patched_target as at
from codemods.findings import Severity
from codemods.parsed_file import FunctionNode, ParsedFile, dotted
from codemods.patches import Patch, import_of
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Class
from codemods.run_time_names import Value
from codemods.target import release_key
from codemods.vllm_api import Api, Signature, releases

# Decorators under which a function is called as it is written.
_TRANSPARENT = frozenset(
    {
        "classmethod",
        "contextlib.contextmanager",
        "functools.wraps",
        "staticmethod",
        "torch.compile",
        "torch.inference_mode",
        "torch.no_grad",
        "wraps",
    }
)


@dataclass(frozen=True)
class Verdict:
    severity: Severity
    message: str
    remedy: str


@dataclass(frozen=True)
class _Own:
    """What is put in place of what: how the one is called, and how the other was."""

    name: str
    signatures: tuple[Signature, ...]  # the likeliest first; one of them has to fit
    place: str
    wanted: Signature


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
        return module_replaced(run, file, target, own=_module_of(run, patch.value))
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
        message = f"{target} is set here; no vLLM that is known has it, so only the plugin itself can read it"
        return Verdict(Severity.NOTE, message, "Nothing has to be done if that is what it is for.")
    when = f"since {since}" if since else f"before {known[0]}"
    what = "the patch fails where it is made" if patch.raises else "the assignment succeeds and changes nothing"
    if patch.module:
        what = "nothing imports it, so what is put there is never used"
    elif (line := _failing_import(run, patch)) is not None:
        what = f"the import in line {line} fails"
    elif not run.api.has_module(module := _last_place(target).module):
        what = f"there is no {module}, so the patch fails where it is made"
    message = f"{target} is patched here and is not in vLLM {release} {when}: {what}"
    return Verdict(Severity.ERROR, message, " ".join(_replacement(run, target)))


def _failing_import(run: Plan, patch: Patch) -> int | None:
    """The line of the import that a patch goes through, where the target does not have what that names."""
    through = import_of(patch)
    if through is None:
        return None
    imported = through[1]
    modules = [a.name for a in imported.statement.names] if imported.name is None else []
    if imported.name is None:
        works = all(run.api.has_module(module) for module in modules if patch.target.startswith(module))
    else:
        works = run.api.has(imported.module, imported.name) is not False
    return None if works else imported.statement.lineno


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
    has = _names_of(own) if own is not None else None
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


def _module_of(run: Plan, value: Value | None) -> ParsedFile | None:
    """The module of the project that is put in place of one of vLLM's."""
    if value is None or not isinstance(value.node, (ast.Name, ast.Attribute)):
        return None
    return run.project.by_module.get(run.project.meaning(value.file, value.node) or "")


def _names_of(file: ParsedFile) -> frozenset[str] | None:
    """What a module of the project has at its top; None where that is not written out."""
    names = file.top_names
    return None if "*" in names or "__getattr__" in names else names


def _held(run: Plan, file: FilePlan, patch: Patch, target: str) -> Verdict:
    release = run.target.version
    now = at.signature(run.api, target)
    how = f"{_short(run, target)}({at.written(now)})" if now is not None else _short(run, target)
    op = at.op(run.api, target)
    other_way = _op_way(op) if op else ""
    seen = False
    for own in _replacements(run, patch, target):
        seen = True
        verdict = _misfit(run, own, other_way)
        if verdict is not None:
            return verdict
    source = _source(run, file)
    then = at.signature(Api.of(source), patch.target) if source else None
    unseen = patch.value is not None and not isinstance(patch.value.node, ast.Constant) and not seen
    if now is not None and unseen and then is not None and then != now:
        message = f"{how} is patched here; in vLLM {source} it was ({at.written(then)})"
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


def _misfit(run: Plan, own: _Own, other_way: str) -> Verdict | None:
    misfits = [at.misfit(one, own.wanted) for one in own.signatures]
    fits = next((m for m in misfits if m == at.Misfit()), misfits[0])
    if fits == at.Misfit():
        return None
    why = "; ".join(at.spelled((*fits.always, *fits.sometimes)))
    message = f"{own.name} is put in place of {own.place}({at.written(own.wanted)}) of vLLM {run.target.version}"
    remedy = f"Give it the same parameters. {other_way}".strip()
    if fits.always:
        return Verdict(Severity.ERROR, f"{message} and cannot be called like it: {why}", remedy)
    return Verdict(Severity.WARNING, f"{message}; some calls of that would fail: {why}", remedy)


def _short(run: Plan, target: str) -> str:
    """Without the module where a class or function says enough."""
    found = at.place(run.api, target)
    return target if found is None else ".".join(part for part in (found.name, found.member) if part) or target


def _source(run: Plan, file: FilePlan) -> str | None:
    """The newest release that has all that a file imports and patches: the one it was written for, or a later one."""
    if file.source:
        return file.source[-1]
    wanted = [i for i in file.file.imports if i.name not in (None, "*") and i.module.partition(".")[0] == "vllm"]
    for release in reversed(releases()):
        if release_key(release) <= release_key(run.target.version):
            api = Api.of(release)
            if all(api.has(i.module, str(i.name)) is not False for i in wanted) and all(
                at.has(api, patch.target) is not False or not at.history(patch.target)
                for patch in run.patches.of(file.file)
            ):
                return release
    return None


# -- what is put in place --------------------------------------------------------------------------------------------


def _replacements(run: Plan, patch: Patch, target: str) -> Iterator[_Own]:
    """The function of the project that is put in place, or the class, by its constructor and its call.

    Nothing where it is not seen, or not called as it is written. A function that becomes a method gets `self` besides,
    unless it takes the place of a static one.
    """
    value, place = patch.value, at.place(run.api, target)
    if value is None or place is None:
        return
    node = value.node
    wanted, shown = at.signature(run.api, target), _short(run, target)
    skips = (1, 0) if place.member else (0,)
    if isinstance(node, ast.Call) and dotted(node.func) in ("staticmethod", "classmethod") and node.args:
        skips = (0,) if dotted(node.func) == "staticmethod" else (1,)
        value = value.at(node.args[0])
    function = ("the lambda", value.node) if isinstance(value.node, ast.Lambda) else _function(run, value)
    if wanted is not None and function is not None:
        yield _Own(function[0], tuple(_signature(run, function[1], skip) for skip in skips), shown, wanted)
    cls = _class(run, value)
    if cls is None or place.member:
        return
    calls = (("__init__", wanted, shown), ("forward", run.api.call_signature(target), f"{shown}.forward"))
    for method, called, what in calls:
        own = run.project.method(cls, method)
        if called is not None and own is not None and not own.node.decorator_list:
            name = cls.node.name if method == "__init__" else f"{cls.node.name}.{method}"
            yield _Own(name, (_signature(run, own.node, 1),), what, called)


def _class(run: Plan, value: Value) -> Class | None:
    if isinstance(value.node, ast.ClassDef):
        return run.project.classes.get(f"{value.file.module}.{value.node.name}")
    return run.project.class_named(value.file, value.node) if isinstance(value.node, ast.expr) else None


def _function(run: Plan, value: Value) -> tuple[str, AnyFunction] | None:
    node, file = value.node, value.file
    if isinstance(node, FunctionNode):
        return (node.name, node) if _is_plain(run, value, node) else None
    name = run.project.meaning(file, node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    if name is None:
        return None
    module, _, last = name.rpartition(".")
    home = run.project.by_module.get(module)
    body = home.tree.body if home is not None else []
    if home is None and (cls := run.project.classes.get(module)) is not None:  # a method of one of the plugin's classes
        home, body = cls.file, cls.node.body
    found = next((n for n in body if isinstance(n, FunctionNode) and n.name == last), None)
    if found is None or home is None or not _is_plain(run, Value(home, found), found):
        return None
    return ast.unparse(node), found


def _is_plain(run: Plan, value: Value, node: AnyFunction) -> bool:
    """Whether a function is called as it is written: what decorates it keeps that, or is the patch itself."""
    patching = {id(patch.node) for patch in run.patches.of(value.file)}
    for decorator in node.decorator_list:
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        if id(decorator) not in patching and (value.file.resolve(name, name) or dotted(name)) not in _TRANSPARENT:
            return False
    return True


def _signature(run: Plan, node: AnyFunction | ast.Lambda, skip: int) -> Signature:
    """As it will be: without parameters that are being taken out."""
    taken = {
        edit.name
        for file in run.files
        for edit in file.edits
        if isinstance(edit, E.RemoveParameter) and edit.function == E.Ref.of(node)
    }
    return at.of_function(node, skip, frozenset(taken))

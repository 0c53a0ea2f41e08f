"""VA661: import hooks for modules of vLLM's, and changes to its installed files, are held against the target."""

from __future__ import annotations

from codemods import patched_target as at
from codemods.findings import Severity
from codemods.patch_verdict import Verdict, module_replaced
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.source_patches import FileChange, Hook, file_changes, hooks

_EXAMPLE = """\
import sys
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path

import vllm


class Overlay(MetaPathFinder):
    modules = {"vllm.attention.layer": "orchard.overlay.layer"}

    def find_spec(self, fullname, path, target=None):
        return find_spec(self.modules[fullname]) if fullname in self.modules else None


sys.meta_path.insert(0, Overlay())
source = Path(vllm.__file__).parent / "model_executor" / "models" / "vision.py"
source.write_text(source.read_text().replace("def should_torch_compile_mm_vit(", "def unused("))
"""


def plan(run: Plan) -> None:
    for file in run.open_files:
        if file.file.module.partition(".")[0] == "vllm":
            continue
        for hook in hooks(run.project, file.file):
            verdict = _hooked(run, file, hook)
            file.find(RULE, hook.node, verdict.severity, verdict.message, verdict.remedy)
        for change in file_changes(run.project, file.file):
            verdict = _changed(run, change)
            file.find(RULE, change.node, verdict.severity, verdict.message, verdict.remedy)


def _gone(run: Plan, module: str) -> str | None:
    """`since 0.16.0`; None where the target has the module, or nothing is known of it."""
    if at.has(run.api, module) is not False:
        return None
    since = at.gone_since(module, run.target.version)
    return f"since {since}" if since else ""


def _hooked(run: Plan, file: FilePlan, hook: Hook) -> Verdict:
    gone = _gone(run, hook.module)
    if gone is None:
        return module_replaced(run, file, hook.module, "is intercepted when it is imported")
    message = f"an import hook waits for {hook.module}, which is not in vLLM {run.target.version} {gone}".rstrip()
    return Verdict(Severity.ERROR, f"{message}: it never acts", _instead(run, hook.module))


def _changed(run: Plan, change: FileChange) -> Verdict:
    release = run.target.version
    if change.module is None:
        message = f"installed files of vLLM are changed here; which of them vLLM {release} still has is not known"
        return Verdict(Severity.WARNING, message, "See whether each file and each text that is looked for is there.")
    gone = _gone(run, change.module)
    if gone is not None:
        message = f"the file of {change.module} is changed here, and is not in vLLM {release} {gone}".rstrip()
        return Verdict(Severity.ERROR, message, _instead(run, change.module))
    lost = sorted(w for w in change.words if at.has(run.api, f"{change.module}.{w}") is False and _was(run, change, w))
    message = f"the installed file of {change.module} is changed here"
    if lost:
        message += f", by a text that names {', '.join(lost[:3])}: vLLM {release} has no such name there"
        return Verdict(Severity.ERROR, message, "Look for other text, or take the change out.")
    message += f"; whether vLLM {release} has the text that is looked for is not known"
    return Verdict(Severity.WARNING, message, "Look at the file in that release, or replace what it does by a plugin.")


def _was(run: Plan, change: FileChange, word: str) -> bool:
    return at.gone_since(f"{change.module}.{word}", run.target.version) is not None


def _instead(run: Plan, module: str) -> str:
    home = at.moved_to(run.api, module)
    return f"Most of what it had is in {home}: see whether this is still needed." if home else "Take it out."


RULE = Rule(
    code="VA661",
    name="patched-source",
    summary="Import hooks for vLLM's modules and changes to its installed files are reported.",
    why=(
        "A hook waits for the name of a module, and a change to an installed file for a text in it. When vLLM moves "
        "either, nothing fails: the plugin goes on without what it was for. What a hook looks for is read from "
        "finders, loaders and the tables they use; which file is changed, from paths that start at vllm.__file__, "
        "find_spec or the folder of installed packages."
    ),
    follows="the modules and names of every release, as the index has them",
    names=frozenset(),
    plan=plan,
    report_only=True,
    examples=(Example(before=_EXAMPLE, after=_EXAMPLE, refused=True),),
)

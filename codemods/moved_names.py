"""Where a name of an earlier vLLM is at the target, read from the index release by release."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache

from codemods import calls
from codemods.plan import Plan
from codemods.target import release_key
from codemods.vision_attention import vocabulary as V
from codemods.vllm_api import Api, introduced, releases, store


@dataclass(frozen=True)
class Home:
    """A module of the target, and what a name is called there."""

    module: str
    name: str


_MODELS = ("vllm.model_executor.models.", "vllm.models.", "vllm.transformers_utils.processors.")

# Renamed on the way, with the same parameters and meaning, or once imported for annotations alone: what it was, and
# what it is. vLLM 0.18.0 (should_torch_compile_mm_vit), 0.11.1 (QuantizationConfig).
_RENAMED = {
    ("vllm.config", "QuantizationConfig"): Home("vllm.model_executor.layers.quantization", "QuantizationConfig"),
    ("vllm.model_executor.models.vision", "should_torch_compile_mm_vit"): Home(
        "vllm.compilation.decorators", "should_torch_compile_mm_encoder"
    ),
}


def renamed(module: str, name: str) -> tuple[str, str]:
    """What a name became in later releases; itself if it kept its name."""
    new = _RENAMED.get((module, name))
    return (new.module, new.name) if new is not None else (module, name)


def earlier(module: str, name: str) -> tuple[tuple[str, str], ...]:
    """What a name was in earlier releases: (module, name)."""
    return tuple(old for old, new in _RENAMED.items() if new == Home(module, name))


def home(run: Plan, module: str, name: str) -> Home | None:
    """Where the target has what `module.name` was; None if nowhere, or if it is not known where.

    Followed step by step: a name moved where it went in one place and came in another. The same name elsewhere is not
    enough, for models define helpers of the same names.
    """
    if name == V.ENCODER_ATTENTION:
        return Home(run.target.encoder_attention, name)
    return home_in(run.api, module, name)


def home_in(api: Api, module: str, name: str) -> Home | None:
    """Where a release has what `module.name` was in an earlier one; None if nowhere, or if it is not known where."""
    for _ in range(8):
        if api.has(module, name):
            return Home(_public(api, module, name), name)
        renamed = _RENAMED.get((module, name))
        if renamed is not None and api.has(renamed.module, renamed.name):
            return renamed
        step = _moved(api.version, module, name)
        if step is None:
            return None
        module = step
    return None


def why_not_called(run: Plan, module: str, name: str, new: Home, call: ast.Call) -> str | None:
    """Why a call of what `module.name` was does not fit what it is now; None if it does, or cannot be known.

    A positional argument must reach the parameter it reached in the last release that has the old name.
    """
    why = calls.why_not(run.api, f"{new.module}.{new.name}", call)
    before = next((api for api in reversed(_until(run.target.version)) if api.has(module, name)), None)
    old = before.signature(f"{module}.{name}") if before is not None else None
    now = run.api.signature(f"{new.module}.{new.name}")
    if why is not None or old is None or now is None:
        return why
    names = zip(old.parameters, now.parameters)
    changed = next(((a.name, b.name) for a, b in list(names)[: len(call.args)] if a.name != b.name), None)
    return f"the argument for '{changed[0]}' would reach '{changed[1]}'" if changed is not None else None


def elsewhere(run: Plan, module: str, name: str) -> str:
    """What a person should look at where a name is gone: what the target has of that name."""
    found = run.api.exported_from(name)[:3]
    came = too_new(run, module, name)
    if came is not None:
        there = f", or import what this release has: {' or '.join(f'{m}.{name}' for m in found)}" if found else ""
        return f"Port to vLLM {came} or later{there}."
    if not found:
        return "Take its uses out or replace them; no module of this release defines the name."
    return (
        f"Take its uses out or replace them; see whether {' or '.join(f'{m}.{name}' for m in found)} is the same thing."
    )


def absence(run: Plan, module: str, name: str = "") -> str:
    """That the target lacks a name, or a module, and why: it went, it is yet to come, or no known vLLM has it."""
    what, release = f"{module}.{name}" if name else module, run.target.version
    known = [r for r in releases() if (Api.of(r).has(module, name) if name else Api.of(r).has_module(module))]
    if not known:
        return f"{what} is not in vLLM {release}, nor in any other from {releases()[0]} to {releases()[-1]}"
    if release_key(known[0]) > release_key(release):
        return f"{what} is not in vLLM {release} yet: it came with {known[0]}"
    went = next(
        r
        for r in releases()
        if release_key(r) > max(release_key(k) for k in known if release_key(k) < release_key(release))
    )
    return f"{what} is not in vLLM {release}: it went with {went}"


def too_new(run: Plan, module: str, name: str) -> str | None:
    """The release that brought a name which the target does not have yet; None where it is not newer code."""
    came = introduced(module, name)
    return came if came is not None and release_key(came) > release_key(run.target.version) else None


def was_module(run: Plan, module: str) -> bool:
    """Whether some release up to the target has a module of this name."""
    return run.api.has_module(module) or any(api.has_module(module) for api in _until(run.target.version))


def is_module(run: Plan, package: str, name: str) -> bool:
    """Whether `from package import name` gives a module, at the target or in the last release where it works."""
    for api in (run.api, *reversed(_until(run.target.version))):
        if api.has(package, name):
            return name not in (api.names(package) or {}) and api.has_module(f"{package}.{name}")
    return False


def was_there(run: Plan, module: str, name: str) -> bool:
    """Whether some release up to the target has the name."""
    return any(api.has(module, name) for api in _until(run.target.version))


@cache
def _until(version: str) -> tuple[Api, ...]:
    return tuple(Api.of(release) for release in releases() if release_key(release) <= release_key(version))


@cache
def _moved(version: str, module: str, name: str) -> str | None:
    known = _until(version)
    having = [index for index, api in enumerate(known) if api.has(module, name)]
    if not having or having[-1] + 1 >= len(known):
        return None
    before, after = known[having[-1]], known[having[-1] + 1]
    origin = (before.names(module) or {}).get(name)
    if origin and origin != store.OUTSIDE:  # a re-export went: what it stood for may still be there
        place, _, own = origin.rpartition(".")
        return place if own == name else None
    came = [m for m in after.where(name) if m not in before.where(name)]
    if len(came) > 1:  # a file that went with others into a package keeps its own name
        came = [m for m in came if m.rpartition(".")[2] == module.rpartition(".")[2]]
    return came[0] if len(came) == 1 and _is_same(before, module, after, came[0], name) else None


def _is_same(before: Api, old: str, after: Api, new: str, name: str) -> bool:
    """Whether a name that went here and came there is one thing: the signatures say so, where there are any.

    What came from or went to a model file needs more than the name: models define things of the same names.
    """
    if new.startswith(f"{old}.") or old.startswith(f"{new}.") or old.rpartition(".")[2] == new.rpartition(".")[2]:
        return True
    signatures = (before.signature(f"{old}.{name}"), after.signature(f"{new}.{name}"))
    if signatures[0] is not None and signatures[1] is not None:
        return signatures[0] == signatures[1]
    return not any(module.startswith(_MODELS) for module in (old, new))


def _public(api: Api, module: str, name: str) -> str:
    """The shortest package around the module that exports the same thing."""
    around = [m for m in api.exported_from(name) if module.startswith(f"{m}.") and m.count(".") >= 1]
    return around[0] if around else module

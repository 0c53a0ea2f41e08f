"""The index on disk: one file a release, holding what changed since the release before it. Text, sorted, so that git can show it.

`data/names/<release>.txt`, one line a changed module (`vllm` is left out in front of the dots):

    .attention.layer Attention -check_xformers_availability <.config CacheConfig VllmConfig <! torch
    -.attention.selector

A name alone is defined in the module, names after `<.config` are imported from `vllm.config` (`new=old` when renamed), names after
`<!` come from other projects, `-name` is gone, `*` says that more names may exist than can be read. `-.module` is gone as a whole.

`data/signatures/<release>.txt`, one block a changed module:

    .model_executor.models.vision
     get_vit_attn_backend(head_size dtype
     VisionEncoderInfo<abc.ABC
      get_patch_size(
      :hf_config vision_config
     -get_vision_tower

After `(` stand the parameters that decide whether a call binds (see `signature.py`), after `<` the bases (`@` in front of one of the
same module), after `:` the attributes, after `#` the members of an enumeration, after `=` what a module-level alias stands for; `-`
marks what is gone. A class line without `<` only says where its members belong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

DATA = Path(__file__).parent / "data"

Names = dict[str, str]
"""Name -> origin: `HERE`, `OUTSIDE`, or the dotted vLLM name it stands for. The name `*` marks an open module."""

Facts = dict[str, str]
"""`f`, `C`, `C.m`, `C:`, `C#` -> what follows the name on its line, the sign included."""

Changes = dict[str, list[tuple[str, str]]]
"""Module -> what each release changed in it, ascending: (release, text)."""

OPEN = "*"
HERE = ""
OUTSIDE = "!"
GONE = "-"


def stored() -> Iterator[str]:
    """Every release in the index, in no order."""
    return (path.stem for path in (DATA / "names").glob("*.txt"))


@cache
def names_changes(releases: tuple[str, ...]) -> Changes:
    """The names of every module in every release; `releases` ascending."""
    changes: Changes = {}
    for release in releases:
        for line in _read("names", release).splitlines():
            module, _, text = line.partition(" ")
            if module.startswith(GONE):
                module, text = module[1:], GONE
            changes.setdefault("vllm" + module.rstrip("."), []).append((release, text))
    return changes


@cache
def facts_changes(releases: tuple[str, ...]) -> Changes:
    """The signatures of every module in every release; `releases` ascending."""
    changes: Changes = {}
    for release in releases:
        for block in re.split(r"\n(?! )", _read("signatures", release).rstrip("\n")):
            module, _, text = block.partition("\n")
            if module.startswith(GONE):
                module, text = module[1:], GONE
            if module:
                changes.setdefault("vllm" + module.rstrip("."), []).append((release, text))
    return changes


def _read(kind: str, release: str) -> str:
    return (DATA / kind / f"{release}.txt").read_text(encoding="utf-8")


def write(release: str, names: str, facts: str) -> None:
    """Write the two files of a release."""
    for kind, text in (("names", names), ("signatures", facts)):
        (DATA / kind).mkdir(parents=True, exist_ok=True)
        (DATA / kind / f"{release}.txt").write_text(text, encoding="utf-8", newline="\n")
    names_changes.cache_clear()
    facts_changes.cache_clear()


# names


def apply_names(state: Names, text: str) -> None:
    """Change a module's names in place as one release did."""
    origin = HERE
    for token in text.split():
        if token.startswith("<"):
            origin = OUTSIDE if token == "<!" else "vllm" + token[1:].rstrip(".")
        elif token.startswith(GONE):
            state.pop(token[1:], None)
        else:
            name, _, old = token.partition("=")
            state[name] = origin if origin in (HERE, OUTSIDE) else f"{origin}.{old or name}"


def names_delta(before: Mapping[str, Names], after: Mapping[str, Names]) -> str:
    """The text of `data/names/` that leads from one release to the next."""
    return "".join(f"{line}\n" for line in _module_deltas(before, after, _names_line))


def _names_line(module: str, old: Names, new: Names) -> str:
    groups: dict[str, list[str]] = {HERE: [GONE + name for name in sorted(old.keys() - new.keys())]}
    for name, origin in sorted(new.items()):
        if old.get(name) == origin:
            continue
        if origin in (HERE, OUTSIDE):
            groups.setdefault(origin, []).append(name)
        else:
            source, _, original = origin.rpartition(".")
            token = name if name == original else f"{name}={original}"
            groups.setdefault(_short(source), []).append(token)
    tokens = groups.pop(HERE)
    for origin, members in sorted(groups.items()):
        tokens += ["<" + origin, *members]
    return " ".join([_short(module), *tokens])


# signatures


def apply_facts(state: Facts, text: str) -> None:
    """Change a module's signatures in place as one release did."""
    owner = ""
    for line in text.splitlines():
        member = line.startswith("  ")
        gone, name, value = _FACT.fullmatch(line).groups()  # type: ignore[union-attr]
        key = name if not member else owner + name if name in ":#" else f"{owner}.{name}"
        if name in ":#":
            value = name + value
        if gone:
            for old in [k for k in state if k == key or not member and _owner(k) == key]:
                del state[old]
        elif value:
            state[key] = value
        if not member:
            owner = name


_FACT = re.compile(r" +(-?)(\w+|[:#])(.*)")


def _owner(key: str) -> str:
    """The class a key belongs to; the empty text for what the module itself holds."""
    return re.split(r"[.:#]", key)[0] if re.search(r"[.:#]", key) else ""


def facts_delta(before: Mapping[str, Facts], after: Mapping[str, Facts]) -> str:
    """The text of `data/signatures/` that leads from one release to the next."""
    return "".join(f"{line}\n" for line in _module_deltas(before, after, _facts_block))


def _facts_block(module: str, old: Facts, new: Facts) -> str:
    top: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) == new.get(key):
            continue
        owner = _owner(key)
        name = key[len(owner) :].lstrip(".") if owner else key
        if owner and owner not in new:
            continue  # `-C` takes its members along
        line = GONE + name if key not in new else name.rstrip(":#") + new[key]
        if owner:
            members.setdefault(owner, []).append("  " + line)
        else:
            top[name] = " " + line
    lines = [_short(module)]
    for name in sorted(top.keys() | members.keys()):
        lines += [top.get(name, " " + name), *members.get(name, ())]
    return "\n".join(lines)


# both


def _module_deltas(
    before: Mapping[str, dict[str, str]],
    after: Mapping[str, dict[str, str]],
    render: Callable[[str, dict[str, str], dict[str, str]], str],
) -> Iterable[str]:
    for module in sorted(before.keys() | after.keys()):
        if module not in after:
            yield GONE + _short(module)
        elif module not in before or before[module] != after[module]:
            yield render(module, before.get(module, {}), after[module])


def _short(dotted: str) -> str:
    """`vllm.config` -> `.config`, `vllm` -> `.`."""
    return dotted[len("vllm") :] or "."


def replay(
    changes: Iterable[tuple[str, str]], releases: frozenset[str] | set[str], apply: Callable[[dict[str, str], str], None]
) -> dict[str, str] | None:
    """A module's state after the given releases; None when it does not exist then."""
    state: dict[str, str] | None = None
    for release, text in changes:
        if release not in releases:
            continue
        if text == GONE:
            state = None
        else:
            state = {} if state is None else state
            apply(state, text)
    return state

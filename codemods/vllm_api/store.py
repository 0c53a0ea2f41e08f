"""The index on disk: per release, what changed since the one before it. Adding a release rewrites no other.

The files are sorted text, packed with gzip (`zcat` shows them). `data/names/<release>.txt.gz`, modules under packages:

    vllm.attention
     layer Attention -check_xformers_availability <..config CacheConfig VllmConfig=Config <! torch
     -selector

A name alone is defined in the module, names after `<..config` are imported from there (dots as in a relative import
of a plain module; `new=old` when renamed), names after `<!` come from other projects, `-name` is gone, `*` says that
more names may exist than can be read. `-selector` at the start of a line is a whole module gone.

`data/signatures/<release>.txt.gz`, one block a changed module:

    vllm.model_executor.models.vision
     get_vit_attn_backend(head_size dtype
     -get_vision_tower
     VisionEncoderInfo<abc.ABC .interfaces.Sized
      get_patch_size(
      :hf_config encoder=@Encoder -vision_config

After `(` stand the parameters that decide whether a call binds (see `signature.py`); after `{` the same of a
constructor made from fields; after `<` the bases (`@C` of the same module, leading dots as above); after `:`
attributes, each with the model class that it, or every item of it, is an instance of, where that is plain; after `#`
the members of an enumeration; after `=` what a module-level alias stands for; `-` marks what is gone. A class line
without `<` only says where its members belong.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

DATA = Path(__file__).parent / "data"
_SUFFIX = ".txt.gz"

Names = dict[str, str]
"""Name -> origin: `HERE`, `OUTSIDE`, or the dotted vLLM name it stands for. The name `*` marks an open module."""

Facts = dict[str, str]
"""Signatures of a module by key: `f` (function), `x` (alias), `C` (class), `C.m` (method), `C:a` (attribute), `C{`
(fields), `C#` (enumeration). The value is what follows the name on its line, sign included; for an attribute it is `:`
and the model class in it, if that is known."""

Changes = dict[str, list[tuple[str, str]]]
"""Module -> what each release changed in it, ascending: (release, text)."""

OPEN = "*"
HERE = ""
OUTSIDE = "!"
GONE = "-"
TOP = "/"  # stands for the package that `vllm` itself is in


def stored() -> Iterator[str]:
    """Every release in the index, in no order."""
    return (path.name.removesuffix(_SUFFIX) for path in (DATA / "names").glob("*" + _SUFFIX))


@cache
def names_changes(releases: tuple[str, ...]) -> Changes:
    """The names of every module in every release; `releases` ascending."""
    changes: Changes = {}
    for release in releases:
        package = ""
        for line in _read("names", release).splitlines():
            if line[0] != " ":
                package = line
                continue
            name, _, text = line[1:].partition(" ")
            if name[0] == GONE:
                name, text = name[1:], GONE
            changes.setdefault(f"{package}.{name}" if package != TOP else name, []).append((release, text))
    return changes


@cache
def mentions(releases: tuple[str, ...]) -> dict[str, set[str]]:
    """Name -> modules whose changes speak of it in some release: where to look for it."""
    table: dict[str, set[str]] = {}
    for module, changes in names_changes(releases).items():
        for _, text in changes:
            for name in re.findall(r"[^\W\d]\w*", text):
                table.setdefault(name, set()).add(module)
    return table


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
                changes.setdefault(module, []).append((release, text))
    return changes


def _read(kind: str, release: str) -> str:
    return gzip.decompress((DATA / kind / (release + _SUFFIX)).read_bytes()).decode()


def write(release: str, names: str, facts: str) -> None:
    """Write the two files of a release; the same text always gives the same bytes."""
    for kind, text in (("names", names), ("signatures", facts)):
        (DATA / kind).mkdir(parents=True, exist_ok=True)
        path = DATA / kind / (release + _SUFFIX)
        with path.open("wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            packed.write(text.encode())
    forget()


def forget() -> None:
    """Read the files anew when next asked."""
    for remembered in (names_changes, mentions, facts_changes, names_states, facts_states):
        remembered.cache_clear()


# names


def apply_names(module: str, state: Names, text: str) -> None:
    """Change a module's names in place as one release did."""
    origin = HERE
    for token in text.split():
        if token[0] == "<":
            origin = OUTSIDE if token == "<!" else expand(module, token[1:])
        elif token[0] == GONE:
            state.pop(token[1:], None)
        elif origin in (HERE, OUTSIDE):
            state[token] = origin
        else:
            name, _, old = token.partition("=")
            state[name] = f"{origin}.{old or name}"


def names_delta(before: Mapping[str, Names], after: Mapping[str, Names]) -> str:
    """The text of `data/names/` that leads from one release to the next."""
    by_package: dict[str, list[str]] = {}
    for module in _changed(before, after):
        package, _, name = module.rpartition(".")
        old, new = before.get(module, {}), after.get(module)
        line = GONE + name if new is None else " ".join([name, *_names_tokens(module, old, new)])
        by_package.setdefault(package or TOP, []).append(f" {line}\n")
    return "".join(f"{package}\n{''.join(lines)}" for package, lines in sorted(by_package.items()))


def _names_tokens(module: str, old: Names, new: Names) -> list[str]:
    own: list[str] = []
    groups: dict[str, list[str]] = {}
    for name, origin in sorted(new.items()):
        if old.get(name) == origin:
            continue
        if origin == HERE:
            own.append(name)
        elif origin == OUTSIDE:
            groups.setdefault(OUTSIDE, []).append(name)
        else:
            source, _, original = origin.rpartition(".")
            groups.setdefault(shorten(module, source), []).append(name if name == original else f"{name}={original}")
    gone = [GONE + name for name in sorted(old.keys() - new.keys())]
    return [*gone, *own, *(token for origin, names in sorted(groups.items()) for token in ("<" + origin, *names))]


# signatures


def apply_facts(module: str, state: Facts, text: str) -> None:
    """Change a module's signatures in place as one release did."""
    owner = ""
    for line in text.splitlines():
        member = line[1] == " "
        content = line[2 if member else 1 :]
        if member and content[0] == ":":
            for attribute in content[1:].split():
                if attribute[0] == GONE:
                    del state[f"{owner}:{attribute[1:]}"]
                else:
                    attribute, _, held = attribute.partition("=")
                    state[f"{owner}:{attribute}"] = ":" + held
            continue
        gone = content[0] == GONE
        name = re.split(r"[(<={#]", content[gone:])[0]
        sign = content[gone + len(name) :]
        key = name if not member else f"{owner}.{name}" if name else owner + sign[0]
        if gone:
            for old in [k for k in state if k == key or (not member and _owner(k) == key)]:
                del state[old]
        elif sign:
            state[key] = sign
        if not member:
            owner = name


def _owner(key: str) -> str:
    """The class a key belongs to; the empty text for what the module itself holds."""
    match = re.match(r"(\w+)[.:{#]", key)
    return match.group(1) if match else ""


def facts_delta(before: Mapping[str, Facts], after: Mapping[str, Facts]) -> str:
    """The text of `data/signatures/` that leads from one release to the next."""
    lines: list[str] = []
    for module in _changed(before, after):
        new = after.get(module)
        if new is None:
            lines.append(GONE + module)
        else:
            lines += [module, *_facts_lines(before.get(module, {}), new)]
    return "".join(f"{line}\n" for line in lines)


def _facts_lines(old: Facts, new: Facts) -> Iterator[str]:
    changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    members: dict[str, list[str]] = {}
    for key in changed:
        members.setdefault(_owner(key) or key, [])
        if _owner(key) in new:  # members of a class that is gone go with it
            members[_owner(key)].append(key)
    for name, keys in sorted(members.items()):
        yield f" {GONE if name not in new else ''}{name}{new[name] if name in new and name in changed else ''}"
        attributes = [key for key in keys if key.startswith(name + ":")]
        for key in keys:
            if key not in attributes:
                shown = key[len(name) :].lstrip(".") if new.get(key, "(")[0] == "(" else ""
                yield f"  {GONE if key not in new else ''}{shown}{new.get(key, '')}"
        if attributes:
            yield "  :" + " ".join(_attribute(key[len(name) + 1 :], new.get(key)) for key in attributes)


def _attribute(name: str, value: str | None) -> str:
    if value is None:
        return GONE + name
    return f"{name}={value[1:]}" if value[1:] else name


# both


def _changed(before: Mapping[str, dict[str, str]], after: Mapping[str, dict[str, str]]) -> list[str]:
    return [m for m in sorted(before.keys() | after.keys()) if before.get(m) != after.get(m)]


def shorten(module: str, dotted: str) -> str:
    """A dotted name of vLLM as a relative import in a plain module writes it; others as they are."""
    if dotted.split(".")[0] != "vllm":
        return dotted
    here, there = module.split("."), dotted.split(".")
    common = 0
    while common < min(len(here) - 1, len(there)) and here[common] == there[common]:
        common += 1
    return "." * (len(here) - common) + ".".join(there[common:])


def expand(module: str, short: str) -> str:
    """The reverse of `shorten`; `@C` is `C` of the module itself."""
    if short[0] == "@":
        return f"{module}.{short[1:]}"
    if short[0] != ".":
        return short
    rest = short.lstrip(".")
    parts = module.split(".")
    return ".".join([*parts[: len(parts) - (len(short) - len(rest))], *([rest] if rest else [])])


States = tuple[tuple[str, dict[str, str] | None], ...]
"""What a module became in each release that changed it, ascending; None where it is gone. Shared, not to be changed."""


@cache
def names_states(releases: tuple[str, ...], module: str) -> States:
    """The names of a module, release by release."""
    return tuple(_replay(module, names_changes(releases), apply_names))


@cache
def facts_states(releases: tuple[str, ...], module: str) -> States:
    """The signatures of a module, release by release."""
    return tuple(_replay(module, facts_changes(releases), apply_facts))


def _replay(
    module: str, changes: Changes, apply: Callable[[str, dict[str, str], str], None]
) -> Iterator[tuple[str, dict[str, str] | None]]:
    state: dict[str, str] | None = None
    for release, text in changes.get(module, ()):
        if text == GONE:
            state = None
        else:
            state = {} if state is None else {**state}
            apply(module, state, text)
        yield release, state


def at(states: States, until: frozenset[str]) -> dict[str, str] | None:
    """The state after a release, given with all before it; None where the module does not exist then."""
    return next((state for release, state in reversed(states) if release in until), None)

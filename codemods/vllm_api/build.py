"""Build the index of vLLM releases from their wheels: `python -m codemods.vllm_api.build VERSION...` or `--all-new`.

Exit codes: 0 done (with `--check`: the data agrees), 1 the data differs, 2 a release cannot be read or bad usage.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from codemods.vllm_api import link, source, store, wheel
from codemods.vllm_api.api import UNSEEN, Api
from codemods.vllm_api.releases import BUILD, releases, version_key

_SHOWN = 20  # differences printed by `--check`


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    cache = options.cache or _user_cache()
    try:
        if options.check:
            return _check(options.check, cache)
        versions = [v for v in wheel.published() if v not in releases()] if options.all_new else options.versions
        known: dict[bytes, source.Module] = {}
        for version in sorted(versions, key=version_key):
            filename, files = wheel.sources(version, cache)
            names, facts = read_release(files, known)
            add(version, names, facts)
            print(f"{version}: {len(names)} modules, {len(facts)} with signatures, from {filename}", flush=True)
        if not versions:
            print("the index is complete")
        return 0
    except wheel.BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=BUILD, description="Add vLLM releases to the API index, from their wheels.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "versions", nargs="*", default=[], metavar="VERSION", type=_final, help="a release, such as 0.33.0"
    )
    what.add_argument("--all-new", action="store_true", help="every published release that is not in the index")
    what.add_argument("--check", metavar="VERSION", type=_final, help="rebuild an indexed release and compare")
    parser.add_argument("--cache", metavar="DIR", type=Path, help="where the Python files of wheels are kept")
    return parser


def _final(text: str) -> str:
    if not all(part.isdigit() for part in text.split(".")) or text.count(".") < 2:
        raise argparse.ArgumentTypeError(f"'{text}' is not a final release such as 0.33.0")
    return text


def _user_cache() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "vitport", "vllm-wheels")


def read_release(
    files: Mapping[str, bytes], known: dict[bytes, source.Module] | None = None
) -> tuple[dict[str, store.Names], dict[str, store.Facts]]:
    """Names and signatures of a release from the text of its files (path -> bytes).

    `known` remembers modules by content from one release to the next. Raises `BuildError` for what is not Python.
    """
    known = {} if known is None else known
    modules = {}
    for path, data in files.items():
        name, package = source.module_name(path)
        if UNSEEN.match(name):
            continue
        key = hashlib.sha256(path.encode() + b"\0" + data).digest()
        if key not in known:
            try:
                known[key] = source.read(name, package, data.decode("utf-8-sig"))
            except (SyntaxError, UnicodeDecodeError) as error:
                raise wheel.BuildError(f"{path} cannot be read as Python {sys.version.split()[0]}: {error}") from error
        modules[name] = known[key]
    names = link.names(modules)
    return names, link.facts(modules, names)


def add(version: str, names: Mapping[str, store.Names], facts: Mapping[str, store.Facts]) -> None:
    """Write a release into the index, and rewrite the one after it, whose data says what changed since this one."""
    later = [release for release in releases() if version_key(release) > version_key(version)]
    next_names, next_facts = committed(later[0]) if later else ({}, {})
    earlier = [release for release in releases() if version_key(release) < version_key(version)]
    old_names, old_facts = committed(earlier[-1]) if earlier else ({}, {})
    store.write(version, store.names_delta(old_names, names), store.facts_delta(old_facts, facts))
    if later:
        store.write(later[0], store.names_delta(names, next_names), store.facts_delta(facts, next_facts))
    releases.cache_clear()
    Api.of.cache_clear()


def committed(version: str) -> tuple[dict[str, store.Names], dict[str, store.Facts]]:
    """Names and signatures of a release as the index has them."""
    until = frozenset(release for release in releases() if version_key(release) <= version_key(version))
    known = releases()
    all_names = ((m, store.at(store.names_states(known, m), until)) for m in store.names_changes(known))
    all_facts = ((m, store.at(store.facts_states(known, m), until)) for m in store.facts_changes(known))
    return {m: s for m, s in all_names if s is not None}, {m: s for m, s in all_facts if s is not None}


def _check(version: str, cache: Path) -> int:
    if version not in releases():
        raise wheel.BuildError(f"{version} is not in the index; add it with `{BUILD} {version}`")
    filename, files = wheel.sources(version, cache)
    names, facts = read_release(files)
    old_names, old_facts = committed(version)
    differences = [*_differences(old_names, names), *_differences(old_facts, facts)]
    for line in differences[:_SHOWN]:
        print(line)
    if differences:
        print(f"{version}: {len(differences)} differences between the index and {filename}")
        return 1
    print(f"{version}: the index agrees with {filename}")
    return 0


def _differences(index: Mapping[str, dict[str, str]], built: Mapping[str, dict[str, str]]) -> Iterator[str]:
    for module in sorted(index.keys() | built.keys()):
        old, new = index.get(module), built.get(module)
        if old is None or new is None:
            yield f"{module}: only in the {'wheel' if old is None else 'index'}"
            continue
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield f"{module}: {name}: index {old.get(name)!r}, wheel {new.get(name)!r}"


if __name__ == "__main__":
    sys.exit(main())

"""Build the index of vllm-omni from its wheels: `python -m codemods.devices.build_omni_api VERSION...`.

All releases that are to be in the index are named, oldest first; the file is written anew. Nothing is installed or
imported. Exit codes: 0 done (with `--check`: the data agrees), 1 the data differs, 2 a release cannot be read.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from codemods.devices.collectives import TELLING, Collectives
from codemods.devices.kinds import Kinds, taken
from codemods.parsed_file import Import, ParsedFile, dotted
from codemods.project import AnyFunction, Class, Function, Project
from codemods.vllm_omni_api.api import DATA, NOTHING, Found

GROUND = ("vllm_omni.diffusion.attention", "vllm_omni.diffusion.distributed")
"""The packages whose names are kept. What derives from them elsewhere is read, but not kept."""

_USES_GROUND = re.compile("|".join(map(re.escape, GROUND)) + r"|\bnn\.Module\b")
Facts = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m codemods.devices.build_omni_api", description=__doc__)
    parser.add_argument("versions", nargs="+", metavar="VERSION", help="every release, such as 0.14.0 0.16.0")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where the data differs")
    options = parser.parse_args(arguments)
    versions = sorted(options.versions, key=lambda version: [int(part) for part in version.split(".")])
    history: dict[str, list[Any]] = {"": [versions]}
    last: Facts = {}
    try:
        for version in versions:
            facts = read_release(download(version))
            for name in sorted(last.keys() | facts.keys()):
                if facts.get(name) != last.get(name):
                    history.setdefault(name, []).append([version, facts.get(name)])
            print(f"{version}: {len(facts)} names", flush=True)
            last = facts
    except (OSError, ValueError, SyntaxError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = "{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(history.items())) + "\n}\n"
    if options.check:
        return 0 if DATA.read_text(encoding="utf-8") == text else 1
    DATA.write_text(text, encoding="utf-8", newline="\n")
    return 0


def download(version: str) -> dict[str, str]:
    """Path -> text of the Python files in the wheel of a release. Raises OSError if pip finds none."""
    with TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", scratch, f"vllm-omni=={version}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"no wheel of vllm-omni {version}: {done.stderr.strip().splitlines()[-1:]}")
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as wheel:
            names = [n for n in wheel.namelist() if n.startswith("vllm_omni/") and n.endswith(".py")]
            return {name: wheel.read(name).decode("utf-8") for name in names}


def read_release(texts: Mapping[str, str]) -> Facts:
    """What is kept of a release. Raises SyntaxError for what is not Python."""
    project = Project([_parsed(path, text) for path, text in sorted(texts.items()) if _wanted(path, text)])
    kinds = Kinds(project, NOTHING)
    collectives = Collectives(project, kinds)
    facts: Facts = {}
    for file in project.files:
        if not file.module.startswith(GROUND):
            continue
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef):
                fact = _class(project, kinds, collectives, Class(file, node))
                if fact["callable"] or len(fact) > 1:
                    facts[f"{file.module}.{node.name}"] = {"class": fact}
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if function := _function(kinds, collectives, Function(file, node)):
                    facts[f"{file.module}.{node.name}"] = {"function": function}
    for file in project.files:
        for name, home in _exports(project, file):
            if name not in facts and home in facts and "is" not in facts[home]:
                facts[name] = {"is": home}
    return facts


def _wanted(path: str, text: str) -> bool:
    return _module(path)[0].startswith(GROUND) or _USES_GROUND.search(text) is not None


def _parsed(path: str, text: str) -> ParsedFile:
    module, package = _module(path)
    return ParsedFile(Path(path), module, text, ast.parse(text), package)


def _module(path: str) -> tuple[str, bool]:
    parts = PurePosixPath(path).with_suffix("").parts
    package = parts[-1] == "__init__"
    return ".".join(parts[:-1] if package else parts), package


def _exports(project: Project, file: ParsedFile) -> Iterator[tuple[str, str]]:
    """Names that a module of the ground, or a package around it, passes on from another."""
    if not file.module.startswith(GROUND):
        return
    for imported in file.imports:
        if isinstance(imported, Import) and isinstance(imported.scope, ast.Module) and imported.name is not None:
            home = project.follow(imported.qualified)
            if home.startswith(GROUND) and file.is_package:
                yield f"{file.module}.{imported.alias}", home


def _class(project: Project, kinds: Kinds, collectives: Collectives, cls: Class) -> Facts:
    methods: Facts = {}
    attributes: Facts = {}
    for here in project.bases(cls):
        for node in here.node.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name not in methods:
                if any(dotted(d) in ("property", "cached_property") for d in node.decorator_list):
                    continue
                found = project.method(cls, node.name)
                assert found is not None
                fact = _function(kinds, collectives, found, node.name in ("forward", *TELLING))
                if fact is not None:
                    methods[node.name] = fact
        for name in project.assigned(here):
            if name not in attributes and (held := _names(kinds.attribute(cls, name))):
                attributes[name] = held
    whole: Facts = {"callable": kinds.callable_class(cls)}
    return {**whole, **({"methods": methods} if methods else {}), **({"attributes": attributes} if attributes else {})}


def _function(kinds: Kinds, collectives: Collectives, function: Function, always: bool = False) -> Facts | None:
    """A function that returns something known or sends something; None for any other that need not be kept."""
    node = function.node
    returns = None if node.name == "__init__" else _names(kinds.returned(function))
    parts = [_names(part) for part in kinds.returned_parts(function)]
    sends = {name: role.value for name, role in sorted(collectives.sent(function).items())}
    if not (returns or any(parts) or sends or always):
        return None
    takes = _takes(node)[function.skip :]
    fact: Facts = {"takes": takes}
    extra = {
        "keywords": sorted(taken(node) - {"self", "cls", *takes}),
        "returns": returns,
        "parts": parts if any(parts) else None,
        "sends": sends,
    }
    return {**fact, **{key: value for key, value in extra.items() if value}}


def _takes(node: AnyFunction) -> list[str]:
    return [a.arg for a in [*node.args.posonlyargs, *node.args.args]]


def _names(found: Found) -> list[str] | None:
    """Kinds as the data spells them. What is not of the ground is not known to the index."""
    if not found or not all(kind.name.startswith((*GROUND, "torch.nn.")) for kind in found):
        return None
    return sorted(f"type {kind.name}" if kind.is_class else kind.name for kind in found)


if __name__ == "__main__":
    sys.exit(main())

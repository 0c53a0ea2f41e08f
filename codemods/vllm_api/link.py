"""From the facts of single files to those of a release: `*` imports resolved, constructors of dataclasses written out, the part of
vLLM that model files are written against kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from codemods.vllm_api import store
from codemods.vllm_api.source import Class, Module

VISION = re.compile(r"vllm\.(multimodal|model_executor\.models\.vision)(\.|$)")
"""Whoever imports from here handles images, sound or video."""

MODELS = re.compile(r"vllm\.(model_executor\.)?models(\.|$)")
"""Where models live; those that import from `VISION` are vision files."""

GROUND = re.compile(
    r"vllm\.(attention|config|inputs|multimodal|platforms|v1\.attention\.(backend|selector|ops\.vit_attn_wrappers)|v1\.attention\.backends\.registry"
    r"|model_executor\.(custom_op|models\.(interfaces|interfaces_base|utils|vision))"
    r"|model_executor\.layers\.(activation|attention|conv|layernorm|linear|pooler|resampler|rotary_embedding|vocab_parallel_embedding))(\.|$)"
)
"""What every vision file stands on; signed in every release, whether or not a file of that release imports it."""

_ENUMS = frozenset({"enum.Enum", "enum.IntEnum", "enum.StrEnum", "enum.Flag", "enum.IntFlag"})


def names(modules: Mapping[str, Module]) -> dict[str, store.Names]:
    """Module -> its names, `*` imports from inside vLLM included."""
    return {name: _names(name, modules, frozenset()) for name in modules}


def _names(name: str, modules: Mapping[str, Module], above: frozenset[str]) -> store.Names:
    module = modules[name]
    found: store.Names = {}
    for star in module.stars:
        if star not in modules:
            found[store.OPEN] = store.HERE
        elif star not in above:
            theirs = _names(star, modules, above | {name})
            public = modules[star].public
            wanted = public if public is not None else [n for n in theirs if not n.startswith("_")]
            found.update((n, f"{star}.{n}") for n in wanted if n in theirs and n != store.OPEN)
            if store.OPEN in theirs:
                found[store.OPEN] = store.HERE
    found.update(module.names)
    if module.open:
        found[store.OPEN] = store.HERE
    return found


def facts(modules: Mapping[str, Module], exported: Mapping[str, store.Names]) -> dict[str, store.Facts]:
    """Module -> signatures, for the modules in scope (see `_scope`) and for bases of their classes wherever those live."""
    linker = _Linker(modules, exported)
    signed = linker.scope()
    found: dict[str, store.Facts] = {}
    wanted: list[tuple[str, str]] = []
    for name in sorted(signed):
        module = modules[name]
        own = found[name] = {function: f"({text}" for function, text in module.functions.items()}
        for alias, target in module.aliases.items():
            if alias not in own and alias not in module.classes:
                place = linker.place(target)
                if place is not None and place != (name, alias):
                    own[alias] = "=" + _short(name, ".".join(place))
        wanted += [(name, owner) for owner in module.classes]
    done = set()
    while wanted:
        place = wanted.pop()
        if place in done:
            continue
        done.add(place)
        module_name, class_name = place
        found.setdefault(module_name, {}).update(linker.class_facts(module_name, class_name))
        wanted += linker.bases(module_name, class_name)
    return {name: own for name, own in found.items() if own}


class _Linker:
    def __init__(self, modules: Mapping[str, Module], exported: Mapping[str, store.Names]) -> None:
        self._modules = modules
        self._exported = exported

    def scope(self) -> set[str]:
        """`GROUND`, the vision files, and every module that a vision file imports from (to where the names are defined)."""
        vision = {name for name in self._modules if MODELS.match(name) and any(map(VISION.match, self._sources(name)))}
        used = {source for name in vision for source in self._sources(name)}
        return {name for name in self._modules if GROUND.match(name)} | vision | used

    def _sources(self, name: str) -> set[str]:
        found = set()
        for origin in self._exported[name].values():
            if origin not in (store.HERE, store.OUTSIDE):
                place = self.place(origin)
                found.add(place[0] if place else origin)
        return found & self._modules.keys()

    def place(self, qualified: str) -> tuple[str, str] | None:
        """(module that defines the dotted name, name there), through re-exports; None outside vLLM or for a module."""
        seen = set()
        while qualified not in seen:
            seen.add(qualified)
            module, _, name = qualified.rpartition(".")
            if module not in self._modules or qualified in self._modules:
                return None
            origin = self._exported[module].get(name)
            if origin == store.HERE:
                return module, name
            if origin is None or origin == store.OUTSIDE:
                return None
            qualified = origin
        return None

    def bases(self, module: str, name: str) -> list[tuple[str, str]]:
        """Bases of a class that are classes of vLLM."""
        places = (self.place(base) for base in self._modules[module].classes[name].bases)
        return [place for place in places if place and place[1] in self._modules[place[0]].classes]

    def class_facts(self, module: str, name: str) -> store.Facts:
        found = self._modules[module].classes[name]
        own = {name: "<" + " ".join(_short(module, self._written(base)) for base in found.bases)}
        methods = dict(found.methods)
        constructor = self._field_constructor(module, name)
        if "__init__" not in methods and constructor is not None:
            methods["__init__"] = constructor
        own.update((f"{name}.{method}", f"({text}") for method, text in methods.items())
        if self._is_enum(module, name, frozenset()):
            members = [member for member in dict.fromkeys(found.assigned) if not member.startswith("_")]
            own[f"{name}#"] = "#" + " ".join(members)
            attributes = found.attributes - set(members)
        else:
            attributes = found.attributes
        if attributes - methods.keys():
            own[f"{name}:"] = ":" + " ".join(sorted(attributes - methods.keys()))
        return own

    def _written(self, base: str) -> str:
        place = self.place(base)
        return ".".join(place) if place else base

    def _is_enum(self, module: str, name: str, above: frozenset[tuple[str, str]]) -> bool:
        place = (module, name)
        if place in above:
            return False
        bases = self._modules[module].classes[name].bases
        return bool(_ENUMS & set(bases)) or any(
            self._is_enum(*base, above | {place}) for base in self.bases(module, name)
        )

    def _field_constructor(self, module: str, name: str) -> str | None:
        """Parameters of a dataclass or named tuple, those of its bases first; None when it is neither, or not known."""
        found = self._modules[module].classes[name]
        if "typing.NamedTuple" in found.bases:
            return " ".join(found.fields)
        options = _keywords(found.dataclass)
        if found.dataclass is None or options.get("init") is False:
            return None
        fields: dict[str, tuple[bool, bool]] = {}  # name -> (keyword-only, has a default)
        for owner in self._dataclass_chain(module, name, frozenset()):
            keyword_only = _keywords(owner.dataclass).get("kw_only") is True
            for text in owner.fields:
                if text == "*":
                    keyword_only = True
                else:
                    fields[text.rstrip("=")] = (keyword_only, text.endswith("="))
        shown = {keyword: [n + "=" * d for n, (k, d) in fields.items() if k is keyword] for keyword in (False, True)}
        return " ".join([*shown[False], *(["*", *shown[True]] if shown[True] else [])])

    def _dataclass_chain(self, module: str, name: str, above: frozenset[tuple[str, str]]) -> list[Class]:
        """The class after those of its bases that are dataclasses of vLLM."""
        place = (module, name)
        chain: list[Class] = []
        for base in reversed(self.bases(module, name)):
            if base not in above:
                chain += self._dataclass_chain(*base, above | {place})
        found = self._modules[module].classes[name]
        return [*chain, found] if found.dataclass is not None else chain


def _keywords(decorator: ast.expr | None) -> dict[str | None, object]:
    if not isinstance(decorator, ast.Call):
        return {}
    return {k.arg: k.value.value for k in decorator.keywords if isinstance(k.value, ast.Constant)}


def _short(module: str, dotted: str) -> str:
    """`@C` for a name of the same module, `.config.C` for one of vLLM, as it is for others."""
    owner, _, name = dotted.rpartition(".")
    if owner == module:
        return "@" + name
    return dotted[len("vllm") :] if dotted.startswith("vllm.") else dotted

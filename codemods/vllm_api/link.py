"""From the facts of single files to those of a release: `*` imports resolved, constructors of dataclasses written out,
and signatures kept for the part of vLLM that model files are written against."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from codemods.vllm_api import store
from codemods.vllm_api.source import Class, Module

GROUND = (
    "vllm.attention",
    "vllm.compilation.decorators",
    "vllm.config",
    "vllm.distributed.communication_op",
    "vllm.distributed.parallel_state",
    "vllm.distributed.utils",
    "vllm.inputs",
    "vllm.model_executor.custom_op",
    "vllm.model_executor.layers.activation",
    "vllm.model_executor.layers.attention",
    "vllm.model_executor.layers.conv",
    "vllm.model_executor.layers.layernorm",
    "vllm.model_executor.layers.linear",
    "vllm.model_executor.layers.resampler",
    "vllm.model_executor.layers.rotary_embedding",
    "vllm.model_executor.layers.vocab_parallel_embedding",
    "vllm.model_executor.models",
    "vllm.multimodal",
    "vllm.platforms",
    "vllm.sequence",
    "vllm.v1.attention.backend",
    "vllm.v1.attention.backends.registry",
    "vllm.v1.attention.ops.vit_attn_wrappers",
    "vllm.v1.attention.selector",
)
"""Modules and packages that model files are written against: signed whole in every release that has them."""

VISION = ("vllm.multimodal", "vllm.model_executor.models.vision")
"""Whoever imports from here handles images, sound or video: a vision file, wherever in vLLM it lives under `MODELS`."""

MODELS = ("vllm.model_executor.models", "vllm.models")
"""Where models live. Vision files there, and the files there that those import from, are signed whole as well."""

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
    """Module -> signatures, for what is in scope (see `_Linker.scope`) and bases of its classes wherever they live."""
    linker = _Linker(modules, exported)
    whole, single = linker.scope()
    found: dict[str, store.Facts] = {}
    classes: list[tuple[str, str]] = []
    for name, wanted in sorted([*((name, None) for name in whole), *single.items()], key=lambda item: item[0]):
        module = modules[name]
        own = found[name] = {
            function: f"({text}" for function, text in module.functions.items() if wanted is None or function in wanted
        }
        for alias, target in module.aliases.items():
            place = linker.place(target) if wanted is None or alias in wanted else None
            if place is not None and place != (name, alias) and alias not in {*own, *module.classes}:
                own[alias] = "=" + _short(name, ".".join(place))
        classes += [(name, owner) for owner in module.classes if wanted is None or owner in wanted]
    done = set()
    while classes:
        place = classes.pop()
        if place not in done:
            done.add(place)
            found.setdefault(place[0], {}).update(linker.class_facts(*place))
            classes += linker.bases(*place)
    return {name: own for name, own in found.items() if own}


class _Linker:
    def __init__(self, modules: Mapping[str, Module], exported: Mapping[str, store.Names]) -> None:
        self._modules = modules
        self._exported = exported

    def scope(self) -> tuple[set[str], dict[str, set[str]]]:
        """Modules signed whole, and of the others the names that vision files import."""
        models = {name for name in self._modules if _within(name, MODELS)}
        vision = {name for name in models if any(_within(module, VISION) for module, _ in self._imports(name))}
        whole = {name for name in self._modules if _within(name, GROUND)} | vision
        single: dict[str, set[str]] = {}
        for name in vision:
            for module, imported in self._imports(name):
                if module in models:
                    whole.add(module)
                else:
                    single.setdefault(module, set()).add(imported)
        return whole, {module: names for module, names in single.items() if module not in whole}

    def _imports(self, name: str) -> Iterator[tuple[str, str]]:
        """(module that defines it, name there) of all a module imports from vLLM; ("module", "") for a module."""
        for origin in self._exported[name].values():
            if origin in self._modules:
                yield origin, ""
            elif origin not in (store.HERE, store.OUTSIDE):
                place = self.place(origin)
                if place is not None:
                    yield place

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
        own.update((f"{name}.{method}", f"({text}") for method, text in found.methods.items())
        attributes = found.attributes - found.methods.keys()
        constructor = self._field_constructor(module, name)
        if "__init__" not in found.methods and constructor is not None:
            own[f"{name}{{"] = "{" + constructor
            attributes -= set(constructor.replace("=", "").split())
        if self._is_enum(module, name, frozenset()):
            members = [member for member in dict.fromkeys(found.assigned) if not member.startswith("_")]
            own[f"{name}#"] = "#" + " ".join(members)
            attributes -= set(members)
        own.update((f"{name}:{attribute}", ":" + self._held(module, found, attribute)) for attribute in attributes)
        return own

    def _held(self, module: str, owner: Class, attribute: str) -> str:
        """The model class that an attribute is an instance of, or holds a list of; empty for anything else."""
        made = owner.held.get(attribute)
        place = self.place(made) if made else None
        if place is None or not _within(place[0], MODELS) or place[1] not in self._modules[place[0]].classes:
            return ""
        return _short(module, ".".join(place))

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


def _within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def _keywords(decorator: ast.expr | None) -> dict[str | None, object]:
    if not isinstance(decorator, ast.Call):
        return {}
    return {k.arg: k.value.value for k in decorator.keywords if isinstance(k.value, ast.Constant)}


def _short(module: str, dotted: str) -> str:
    """As `store.shorten`, with `@C` for a name of the same module."""
    owner, _, name = dotted.rpartition(".")
    return "@" + name if owner == module else store.shorten(module, dotted)

"""One vLLM release: what can be imported from where, and how it may be called."""

from __future__ import annotations

import re
from functools import cache

from codemods.vllm_api import store
from codemods.vllm_api.releases import releases, version_key
from codemods.vllm_api.signature import Signature

UNSEEN = re.compile(r"vllm\.(benchmarks|third_party|vllm_flash_attn|\w*_C(_\w+)?|cumem_allocator|spinloop)(\.|$)")
"""Parts of vLLM that are compiled, or copied from other projects, differently by device, and vLLM's own benchmarks:
they are not indexed, and nothing is claimed about them."""

_IMPLICIT = frozenset(
    {"__doc__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__", "__dict__"}
)
PLAIN_BASES = frozenset(
    {"object", "abc.ABC", "typing.Generic", "typing.Protocol", "typing_extensions.Protocol", "torch.nn.Module"}
)
"""Bases from outside vLLM that have no member of vLLM's classes, and whose constructor takes nothing."""


class Api:
    """The index of one release. Get one by `Api.of`, which makes each once; it remembers what it was asked."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._until = frozenset(r for r in releases() if version_key(r) <= version_key(version))
        self._names_of: dict[str, store.Names | None] = {}
        self._facts_of: dict[str, store.Facts] = {}
        self._holders_of: dict[str, list[tuple[str, str]]] = {}

    @staticmethod
    @cache
    def of(version: str) -> Api:
        """The index of an exact release; `resolve` makes one of what people write.

        Raises `ValueError` when it is not indexed.
        """
        if version not in releases():
            raise ValueError(f"vLLM {version} is not in the index, which knows {releases()[0]} to {releases()[-1]}")
        return Api(version)

    # names

    def has_module(self, module: str) -> bool:
        """Whether the module exists. True also for parts that are not indexed because they differ by device."""
        return bool(UNSEEN.match(module)) or self.names(module) is not None

    def has(self, module: str, name: str) -> bool | None:
        """Whether `from module import name` works; None when that cannot be known (not vLLM's, not indexed, made up as
        vLLM runs)."""
        if UNSEEN.match(module) or module.split(".")[0] != "vllm":
            return None
        names = self.names(module)
        if names is None:
            return False
        if name in names or name in _IMPLICIT or self.has_module(f"{module}.{name}"):
            return True
        return None if store.OPEN in names else False

    def names(self, module: str) -> store.Names | None:
        """Every name of a module with its origin (see `store.Names`), not to be changed; None without such a module."""
        if module not in self._names_of:
            self._names_of[module] = store.at(store.names_states(releases(), module), self._until)
        return self._names_of[module]

    def modules(self) -> tuple[str, ...]:
        """Every indexed module, sorted."""
        return tuple(sorted(m for m in store.names_changes(releases()) if self.names(m) is not None))

    def where(self, name: str) -> tuple[str, ...]:
        """Modules that define the name themselves, shortest first."""
        return tuple(module for module, origin in self._holders(name) if origin == store.HERE)

    @cache
    def exported_from(self, name: str) -> tuple[str, ...]:
        """Modules the name can be imported from, shortest first: those where it is at home (the one that defines it and
        the packages around that one) before those that happen to import it."""
        homes = self.where(name)

        def at_home(module: str) -> bool:
            return any(home == module or home.startswith(module + ".") for home in homes)

        return tuple(sorted((module for module, _ in self._holders(name)), key=lambda module: not at_home(module)))

    def _holders(self, name: str) -> list[tuple[str, str]]:
        if name not in self._holders_of:
            found = []
            for module in store.mentions(releases()).get(name, ()):
                origin = (self.names(module) or {}).get(name)
                if origin is not None:
                    found.append((module, origin))
            self._holders_of[name] = sorted(found, key=lambda holder: (holder[0].count("."), len(holder[0]), holder[0]))
        return self._holders_of[name]

    def origin(self, module: str, name: str) -> str:
        """The dotted place where what `module.name` gives is defined, or the name itself where that is not known."""
        place = self._place(f"{module}.{name}")
        return ".".join(place) if place else f"{module}.{name}"

    # signatures

    @cache
    def signature(self, qualified: str) -> Signature | None:
        """Of a function, a method, or a class (its constructor, inherited inside vLLM); None when not known.

        `qualified` may lead through re-exports. Methods are as called on an instance, class methods as on the class.
        """
        place = self._place(qualified)
        if place is None:
            return None
        module, path = place
        head, _, member = path.partition(".")
        value = self._facts(module).get(head, "")
        if value.startswith("(") and not member:
            return Signature.parse(value[1:])
        if not value.startswith("<"):
            return None
        return self._method(module, head, member) if member else self._constructor(module, head)

    @cache
    def call_signature(self, qualified: str) -> Signature | None:
        """How an instance of the class may be called, as far as vLLM's own code says; None when not known.

        `torch.nn.Module` passes a call on to `forward`; vLLM's custom ops pass it on to `forward_native` and its kin.
        """
        place = self._place(qualified)
        if place is None:
            return None
        for name in ("__call__", "forward"):
            found = self._method(*place, name)
            if found is not None and name == "forward" and "forward_native" in self.members(qualified):
                native = self._method(*place, "forward_native")
                passes_on = not any(parameter.kind.value not in ("args", "kwargs") for parameter in found.parameters)
                return native if passes_on else found
            if found is not None:
                return found
        return None

    def bases(self, qualified: str) -> tuple[str, ...]:
        """Dotted names of the bases as written in the class statement; `?` for one that is not a plain name."""
        place = self._place(qualified)
        return self._bases(*place) if place else ()

    def ancestry(self, qualified: str) -> tuple[str, ...]:
        """A class and all its bases by their dotted names, nearest first; one outside vLLM as it is imported. Empty for
        what is no class."""
        place = self._place(qualified)
        is_class = place is not None and self._facts(place[0]).get(place[1], "").startswith("<")
        order = self._walk(*place, frozenset()) if place is not None and is_class else []
        return tuple(f"{module}.{name}" if module else name for module, name in order)

    @cache
    def members(self, qualified: str) -> frozenset[str]:
        """Methods and attributes of a class: also what its methods set on `self`, and those of bases inside vLLM."""
        place = self._place(qualified)
        found: set[str] = set()
        return frozenset(found.union(*(self._own(*here) for here in (self._mro(*place) if place else ()))))

    def definer(self, qualified: str, member: str) -> str | None:
        """The class a member comes from: the nearest one, base or itself, whose text has it."""
        place = self._place(qualified)
        for module, name in self._mro(*place) if place else ():
            if member in self._own(module, name):
                return f"{module}.{name}"
        return None

    def held(self, qualified: str, attribute: str) -> str | None:
        """The model class that an attribute of a class is an instance of, or holds a list of, by its dotted name; None
        where that is not plain."""
        place = self._place(qualified)
        for module, name in self._mro(*place) if place else ():
            if attribute in self._own(module, name):
                text = self._facts(module).get(f"{name}:{attribute}", ":")[1:]
                return store.expand(module, text) if text else None
        return None

    def _own(self, module: str, name: str) -> set[str]:
        facts = self._facts(module)
        found = {*facts.get(name + "#", "#")[1:].split()}
        found.update(parameter.name for parameter in Signature.parse(facts.get(name + "{", "{")[1:]).parameters)
        found.update(key[len(name) + 1 :] for key in facts if key.startswith((name + ".", name + ":")))
        return found

    def enum_members(self, qualified: str) -> tuple[str, ...]:
        """Members of an enumeration in the order written; empty when it is none."""
        place = self._place(qualified)
        return tuple(self._facts(place[0]).get(place[1] + "#", "#")[1:].split()) if place else ()

    def _facts(self, module: str) -> store.Facts:
        if module not in self._facts_of:
            self._facts_of[module] = store.at(store.facts_states(releases(), module), self._until) or {}
        return self._facts_of[module]

    @cache
    def _place(self, qualified: str) -> tuple[str, str] | None:
        """(module that defines it, path inside that module), through re-exports and aliases."""
        seen = set()
        while qualified not in seen:
            seen.add(qualified)
            module = qualified
            while module and self.names(module) is None:
                module = module.rpartition(".")[0]
            path = qualified[len(module) + 1 :]
            if not module or not path:
                return None
            head, dot, rest = path.partition(".")
            origin = (self.names(module) or {}).get(head)
            alias = self._facts(module).get(head, "") if origin == store.HERE else ""
            if alias.startswith("="):
                origin = store.expand(module, alias[1:])
            elif origin == store.HERE:
                return module, path
            if origin is None or origin == store.OUTSIDE:
                return None
            qualified = origin + dot + rest
        return None

    def _bases(self, module: str, name: str) -> tuple[str, ...]:
        text = self._facts(module).get(name, "")
        return tuple(store.expand(module, base) for base in text[1:].split()) if text.startswith("<") else ()

    def _mro(self, module: str, name: str) -> list[tuple[str, str]]:
        """The class and its bases inside vLLM, nearest first (a base shared by several comes after all of them)."""
        return [place for place in self._walk(module, name, frozenset()) if place[0]]

    @cache
    def _walk(self, module: str, name: str, above: frozenset[tuple[str, str]]) -> list[tuple[str, str]]:
        """Method resolution order; a base outside vLLM, or not known, stands as ("", its dotted name)."""
        order: list[tuple[str, str]] = [(module, name)]
        for base in self._bases(module, name):
            place = self._place(base) if base.startswith("vllm.") else None
            if place is None or not self._facts(place[0]).get(place[1], "").startswith("<"):
                order.append(("", base))
            elif place not in above:
                order += self._walk(*place, above | {(module, name)})
        return [place for index, place in enumerate(order) if place not in order[index + 1 :]]

    def _method(self, module: str, name: str, method: str) -> Signature | None:
        for owner, owner_name in self._walk(module, name, frozenset()):
            facts = self._facts(owner) if owner else {}
            if f"{owner_name}.{method}" in facts:
                return Signature.parse(facts[f"{owner_name}.{method}"][1:])
        return None

    def _constructor(self, module: str, name: str) -> Signature | None:
        for owner, owner_name in self._walk(module, name, frozenset()):
            if not owner:
                if owner_name not in PLAIN_BASES:
                    return None
                continue
            facts = self._facts(owner)
            for key in (f"{owner_name}.__init__", owner_name + "{", f"{owner_name}.__new__"):
                text = facts.get(key)
                if text is not None and not (key.endswith("__new__") and "**" in text):
                    return Signature.parse(text[1:])
        return Signature(())


def introduced(module: str, name: str) -> str | None:
    """The first indexed release in which `from module import name` works; None when there is none."""
    return next((release for release in releases() if Api.of(release).has(module, name)), None)


def removed(module: str, name: str) -> str | None:
    """The first indexed release after the last one in which the import works; None if it still works, or never did."""
    last = None
    for release in reversed(releases()):
        if Api.of(release).has(module, name):
            return last
        last = release
    return None

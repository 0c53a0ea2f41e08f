"""What stands in for a name that neither the installed vLLM nor the shim has: it can be named, and nothing else.

Old files import much that their vision tower never uses: types for annotations, samplers, processors. A stub lets such
a file load. As soon as the file has loaded, any use of one raises, so that none can be the reason for a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


class StubUsed(RuntimeError):
    """A stub was used while a model was built or run; the text says which, and what to do."""


def _refuse(name: str) -> NoReturn:
    raise StubUsed(
        f"{name} of the old vLLM is needed to compute, and is neither in the installed vLLM nor in porting/shim: "
        "compare with the old release itself (--before-release), or add it to porting/shim/supplies.py"
    )


class StubBase:
    """What a class has among its bases where its text says a stub."""

    _stub = ""

    def __new__(cls, *args: object, **kwargs: object) -> Any:
        _refuse(cls._stub)


class Stub:
    """One name. `loading` says whether an old file is being loaded, when it may be subscripted, called, decorated with.

    What comes of that is a stub again.
    """

    _name: str
    _loading: Callable[[], bool]

    def __init__(self, name: str, loading: Callable[[], bool]) -> None:
        self.__dict__.update(_name=name, _loading=loading)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (type(self._name.rpartition(".")[2], (StubBase,), {"_stub": self._name}),)

    def _derived(self, how: str) -> Stub:
        if not self._loading():
            _refuse(self._name)
        return Stub(self._name + how, self._loading)

    def __getattr__(self, name: str) -> Stub:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._derived(f".{name}")

    def __getitem__(self, key: object) -> Stub:
        return self._derived("")

    def __call__(self, *args: object, **kwargs: object) -> Stub:
        return self._derived("()")

    def __or__(self, other: object) -> Stub:
        return self._derived("")

    __ror__ = __or__

    def __hash__(self) -> int:
        if not self._loading():
            _refuse(self._name)
        return id(self)

    def __eq__(self, other: object) -> bool:
        if not self._loading():
            _refuse(self._name)
        return self is other

    def __instancecheck__(self, instance: object) -> bool:
        """No object of another library can be of a class of vLLM; whether one of vLLM's own would be is not known."""
        if type(instance).__module__.partition(".")[0] in ("vllm", "transformers"):
            _refuse(self._name)
        return False

    def __subclasscheck__(self, subclass: type) -> bool:
        if any(getattr(base, "_stub", "") == self._name for base in subclass.__mro__):
            return True
        if subclass.__module__.partition(".")[0] in ("vllm", "transformers"):
            _refuse(self._name)
        return False

    def __repr__(self) -> str:
        return f"<stub of {self._name}>"

    def _used(self, *args: object, **kwargs: object) -> NoReturn:
        _refuse(self._name)

    __bool__ = __len__ = __iter__ = __next__ = __contains__ = __enter__ = __exit__ = _used
    __setattr__ = __delattr__ = __setitem__ = _used
    __index__ = __int__ = __float__ = __neg__ = __lt__ = __le__ = __gt__ = __ge__ = _used
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __matmul__ = __truediv__ = __rtruediv__ = _used

    @classmethod
    def __torch_function__(cls, function: object, types: object, args: Any = (), kwargs: Any = None) -> NoReturn:
        given = (*args, *(kwargs or {}).values())
        _refuse(next((value._name for value in given if type(value) is cls), "a stub inside what torch was given"))

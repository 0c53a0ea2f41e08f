"""What is read from the text of one module."""

from __future__ import annotations

from textwrap import dedent

import pytest

from codemods.vllm_api.source import HERE, OUTSIDE, Module, module_name, read


def names(text: str, module: str = "vllm.pkg.mod", package: bool = False) -> dict[str, str]:
    return read(module, package, dedent(text)).names


def parsed(text: str) -> Module:
    return read("vllm.pkg.mod", False, dedent(text))


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("vllm/__init__.py", ("vllm", True)),
        ("vllm/config/__init__.py", ("vllm.config", True)),
        ("vllm/config/model.py", ("vllm.config.model", False)),
    ],
)
def test_the_module_of_a_file(path: str, module: tuple[str, bool]) -> None:
    assert module_name(path) == module


def test_where_names_come_from() -> None:
    text = """
    import torch.nn as nn
    import os.path
    import vllm.envs as envs
    from vllm.config import VllmConfig as Config
    from .sibling import near
    from ..other import far
    def function(): ...
    class Class: ...
    value = left, (right, *rest) = 1, (2, 3)
    for index in range(3): ...
    with open("x") as file: ...
    if (walrus := 1): ...
    counter: int = 0
    """
    assert names(text) == {
        "nn": OUTSIDE,
        "os": OUTSIDE,
        "envs": "vllm.envs",
        "Config": "vllm.config.VllmConfig",
        "near": "vllm.pkg.sibling.near",
        "far": "vllm.other.far",
        **dict.fromkeys(
            ["function", "Class", "value", "left", "right", "rest", "index", "file", "walrus", "counter"], HERE
        ),
    }


def test_relative_imports_of_a_package_start_at_itself() -> None:
    assert names("from .mod import x", "vllm.pkg", package=True) == {"x": "vllm.pkg.mod.x"}


def test_what_is_no_name_of_the_module() -> None:
    text = """
    annotation: int
    squares = [n * n for n in range(3)]
    action = lambda argument: argument
    gone = 1
    del gone
    def function():
        local = 1
    """
    assert names(text) == dict.fromkeys(["squares", "action", "function"], HERE)


def test_all_branches_count_except_those_of_type_checkers() -> None:
    text = """
    from typing import TYPE_CHECKING
    if TYPE_CHECKING:
        from vllm.config import VllmConfig, ModelConfig
    else:
        VllmConfig = None
        def real(): ...
    if not TYPE_CHECKING:
        runtime = 1
    try:
        from flash_attn import flash_attn_func
    except ImportError:
        flash_attn_func = None
    if condition():
        from vllm.a import either
    else:
        from vllm.b import either
    """
    assert names(text) == {
        "TYPE_CHECKING": OUTSIDE,
        "VllmConfig": OUTSIDE,  # a stand-in: importable, but not defined here
        "real": HERE,
        "runtime": HERE,
        "flash_attn_func": OUTSIDE,
        "either": "vllm.a.either",
    }


def test_a_real_binding_beats_an_earlier_none_and_a_definition_an_earlier_import() -> None:
    text = """
    late = None
    from vllm.a import late, Base
    class Base(Base): ...
    """
    module = parsed(text)
    assert module.names == {"late": "vllm.a.late", "Base": HERE}
    assert module.classes["Base"].bases == ("vllm.a.Base",)


def test_names_set_through_global() -> None:
    assert names("def set_it():\n    global it\n    it = 1\n") == {"set_it": HERE, "it": HERE}


@pytest.mark.parametrize(
    "text",
    ["from ctypes import *", "globals()['a'] = 1", "globals().update(x=1)", "def __getattr__(n): return getattr(o, n)"],
)
def test_a_module_whose_names_cannot_all_be_read_is_open(text: str) -> None:
    assert parsed(text).open


@pytest.mark.parametrize(
    "body",
    [
        'if name == "Lazy": return 1',
        'if name in ("Lazy",): return 1',
        "if name in TABLE: return TABLE[name]",
        "found = TABLE.get(name)\n    if found: return found",
        "if name in __all__: return globals()[name]",
        "if name not in LIST and name in [*LIST]: return 1",
    ],
)
def test_lazily_loaded_names_are_read_from_the_tables_they_are_looked_up_in(body: str) -> None:
    text = f"""
TABLE = {{"Lazy": build}}
LIST = sorted(TABLE.keys())
__all__ = ["La" "zy"]
def __getattr__(name):
    {body}
    raise AttributeError(name)
"""
    module = parsed(text)
    assert module.names["Lazy"] == HERE
    assert not module.open


def test_lazily_loaded_names_say_where_they_come_from() -> None:
    text = """
    TABLE = {"A": ".a:First", "B": "vllm.b", "C": "elsewhere.c"}
    def __getattr__(name):
        if name in TABLE:
            return load(TABLE[name])
        if name == "D":
            from vllm.d import D
            return D
    """
    found = names(text)
    assert {name: found[name] for name in "ABCD"} == {
        "A": "vllm.pkg.a.First",
        "B": "vllm.b.B",
        "C": HERE,
        "D": "vllm.d.D",
    }


def test_a_table_that_cannot_be_read_leaves_the_module_open() -> None:
    assert parsed("def __getattr__(name):\n    if name in make_table(): return 1\n").open


def test_stars_from_vllm_are_kept_for_later() -> None:
    module = parsed("from .others import *\n__all__ = ['a'] + ['b']\n__all__ += ['c']\n")
    assert module.stars == ["vllm.pkg.others"]
    assert module.public == ["a", "b", "c"]
    assert not module.open


def test_functions_and_methods() -> None:
    text = """
    from typing import overload
    @overload
    def f(a: int) -> int: ...
    @overload
    def f(a: str, b: int) -> str: ...
    def f(a, b=None): ...
    class C:
        def method(self, x, /, y=1, *args, z, **kwargs): ...
        @classmethod
        def make(cls, x): ...
        @staticmethod
        def free(x, *, y=2): ...
        @property
        def prop(self): ...
    """
    module = parsed(text)
    assert module.functions == {"f": "a b="}
    found = module.classes["C"]
    assert found.methods == {"method": "x / y= *args z **kwargs", "make": "x", "free": "x * y="}
    assert found.attributes == {"prop"}


def test_attributes_of_a_class() -> None:
    text = """
    class C:
        declared: int
        assigned = 1
        class Inner: ...
        def __init__(self, x):
            self.own, self.other = x
            x.not_own = 1
            self.deep.not_own = 1
            if x:
                self.branch: int = 1
        def later(me):
            me.by_another_name += 1
    """
    assert parsed(text).classes["C"].attributes == {
        *("declared", "assigned", "Inner", "own", "other", "branch", "by_another_name")
    }


def test_what_attributes_hold() -> None:
    text = """
    from torch import nn
    from vllm.pkg.parts import Block, Merger as Merge
    class C(nn.Module):
        def __init__(self, config, kind):
            self.blocks = nn.ModuleList([Block(i) for i in range(config.depth)])
            self.pair = nn.ModuleList([Block(0), Block(1)])
            self.merger: Merge | None = None
            if config.merges:
                self.merger = Merge(config)
            self.mixed = nn.ModuleList([Block(0), Merge(1)])
            self.given = kind(config)
            self.either = Block(0) if kind else None
            self.changed = Block(0)
        def swap(self):
            self.changed = Merge(0)
            self.number = self.count + 1
    """
    held = parsed(text).classes["C"].held
    block, merger = "vllm.pkg.parts.Block", "vllm.pkg.parts.Merger"
    plain = {name: maker for name, maker in held.items() if maker.startswith("vllm.pkg.parts")}
    assert plain == {"blocks": block, "pair": block, "merger": merger}
    assert held["mixed"] == held["changed"] == held["either"] == held["number"] == ""


def test_bases_are_spelled_out() -> None:
    text = """
    import torch
    from torch import nn
    from vllm.config import Base as Renamed
    class Own: ...
    class C(torch.nn.Module, nn.Linear, Renamed[int], Own, make(), metaclass=Meta): ...
    """
    assert parsed(text).classes["C"].bases == (
        *("torch.nn.Module", "torch.nn.Linear", "vllm.config.Base", "vllm.pkg.mod.Own", "?"),
    )


def test_aliases_are_kept_and_annotations_are_not_aliases() -> None:
    module = parsed("from vllm.a import B\nOld = B\nItems = list[B]\nThird = B.inner\n")
    assert module.aliases == {"Old": "vllm.a.B", "Third": "vllm.a.B.inner"}


def test_text_that_is_not_python_is_refused() -> None:
    with pytest.raises(SyntaxError):
        parsed("print 'hello'")

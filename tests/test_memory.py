"""Answers are worked out once for each of what they are about, and for each question."""

from __future__ import annotations

import ast
from pathlib import Path

from codemods.memory import Memory, remembered
from codemods.parsed_file import ParsedFile


class Shop:
    def __init__(self) -> None:
        self.memory: Memory = {}
        self.asked: list[str] = []

    @remembered
    def price(self, what: str) -> int | None:
        self.asked.append(what)
        return len(what) or None


def test_an_answer_is_worked_out_once() -> None:
    shop, other = Shop(), Shop()
    assert [shop.price("tea"), shop.price("milk"), shop.price("tea"), other.price("tea")] == [3, 4, 3, 3]
    assert (shop.asked, other.asked) == (["tea", "milk"], ["tea"])


def test_none_is_an_answer_too() -> None:
    shop = Shop()
    assert [shop.price(""), shop.price("")] == [None, None]
    assert shop.asked == [""]


TEXT = """\
a = f(g(1))
def h(x=f(2)):
    y = f(3)
    def inner(): f(g(4))
f(5)
"""


def test_nodes_inside_a_node_are_those_of_a_walk_in_source_order() -> None:
    file = ParsedFile(Path("m.py"), "m", TEXT, ast.parse(TEXT))
    for node in file.below(file.tree):
        for kind in (ast.Call, ast.Assign, ast.FunctionDef, ast.While):
            walked = [inner for inner in ast.walk(node) if isinstance(inner, kind)]
            assert file.inside(node, kind) == sorted(walked, key=file.position)
    assert [call.args[0] for call in file.calls["f"] if isinstance(call.args[0], ast.Constant)] == [
        node for node in file.nodes[ast.Constant] if node.value in (2, 3, 5)
    ]

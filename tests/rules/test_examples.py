"""The example of each rule, which its page shows: it must come out as written, in whatever form the file is stored."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codemods import leftovers, verify, vllm_api
from codemods.findings import FileReport
from codemods.rule import Example, Rule
from codemods.rules import RULES
from codemods.run import Options, migrate
from tests.corpus.comments import lost_comments

EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.code}-{number}")
    for rule in RULES
    for number, example in enumerate(rule.examples)
]
REFUSED = [case for case in EXAMPLES if case.values[1].refused]
PORTED = [case for case in EXAMPLES if not case.values[1].refused]

Function = (ast.FunctionDef, ast.AsyncFunctionDef)


@pytest.fixture
def port(tmp_path: Path) -> Callable[..., tuple[bytes, FileReport]]:
    """Runs every rule over a file with these bytes; gives its bytes afterwards and what is said of it."""

    def run(before: str | bytes, target: str, source: str | None = None) -> tuple[bytes, FileReport]:
        path = tmp_path / "model.py"
        path.write_bytes(before.encode() if isinstance(before, str) else before)
        (report,) = migrate([path], Options(target=vllm_api.resolve(target), source=source)).files
        return path.read_bytes(), report

    return run


# VA900 and VA901 guard the others and never change a file
CHANGING = [rule for rule in RULES if not rule.report_only and rule not in (verify.RULE, leftovers.RULE)]


@pytest.mark.parametrize("rule", CHANGING, ids=lambda rule: rule.code)
def test_every_rule_has_an_example_that_it_changes_itself(rule: Rule, port) -> None:
    changed = [example for example in rule.examples if not example.refused and example.after != example.before]
    assert changed
    for example in changed:
        _, report = port(example.before, example.target)
        assert rule.code in {rewrite.code for rewrite in report.rewrites}


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
class TestExample:
    def test_comes_out_as_written(self, rule: Rule, example: Example, port) -> None:
        after, report = port(example.before, example.target)
        assert after.decode() == example.after
        assert report.error is None

    def test_is_the_same_when_its_vllm_is_named(self, rule: Rule, example: Example, port) -> None:
        after, _ = port(example.before, example.target, vllm_api.resolve(example.source))
        assert after.decode() == example.after

    def test_changes_once(self, rule: Rule, example: Example, port) -> None:
        after, report = port(example.after, example.target)
        assert after.decode() == example.after
        assert not report.changed

    def test_keeps_its_comments(self, rule: Rule, example: Example, port) -> None:
        assert lost_comments(example.before, example.after) == []

    def test_changes_only_what_it_reports(self, rule: Rule, example: Example, port) -> None:
        """Each run of changed lines holds, or lies in, a statement that a rewrite names; imports follow their users."""
        _, report = port(example.before, example.target)
        reported = {line for rewrite in report.rewrites for line in extent(example, rewrite.line)}
        reported |= {line for node in imports(example.before) for line in range(node.lineno, node.end_lineno + 1)}
        assert [lines for lines in changes(example) if not reported & set(lines)] == []

    @pytest.mark.parametrize(
        "stored",
        [
            pytest.param(lambda text: text.replace("\n", "\r\n").encode(), id="crlf"),
            pytest.param(lambda text: b"\xef\xbb\xbf" + text.encode(), id="bom"),
            pytest.param(lambda text: re.sub(r"(?m)^(    )+", tabs, text).encode(), id="tabs"),
            pytest.param(lambda text: text.removesuffix("\n").encode(), id="no final newline"),
        ],
    )
    def test_changes_alike_however_it_is_stored(self, rule: Rule, example: Example, stored, port) -> None:
        after, _ = port(stored(example.before), example.target)
        assert after == stored(example.after)


@pytest.mark.parametrize(("rule", "example"), PORTED)
def test_imports_what_the_target_has(rule: Rule, example: Example) -> None:
    api = vllm_api.Api.of(vllm_api.resolve(example.target))
    imported = [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(example.after))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm.")
        for alias in node.names
    ]
    assert [name for name in imported if api.has(*name) is False] == []


@pytest.mark.parametrize(("rule", "example"), REFUSED)
def test_what_is_refused_stays_as_it_was(rule: Rule, example: Example, port) -> None:
    after, report = port(example.before, example.target)
    found = [finding for finding in report.findings if finding.code == rule.code]
    assert found
    for finding in found:
        body = ast.parse(example.before).body
        (refused,) = (node for node in body if node.lineno <= finding.line <= (node.end_lineno or 0))
        assert ast.get_source_segment(example.before, refused) in after.decode()
        assert finding.message and finding.remedy


# -- helpers -----------------------------------------------------------------------------------------------------------


def tabs(indentation: re.Match[str]) -> str:
    return "\t" * (len(indentation[0]) // 4)


def imports(text: str) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Import, ast.ImportFrom))]


def changes(example: Example) -> Iterator[list[int]]:
    """Runs of lines of the text before, 1-based, that are gone or other in the text after; blank lines left out."""
    before, after = example.before.splitlines(), example.after.splitlines()
    for kind, first, last, _, _ in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        lines = [line + 1 for line in range(first, last) if before[line].strip()]
        if kind != "equal" and lines:
            yield lines


def extent(example: Example, line: int) -> Iterator[int]:
    """The lines that a rewrite reported for this line may change: those of the statement there, and comments above it.

    Of a function or a class that goes on to exist, that is its head alone.
    """
    lines = example.before.splitlines()
    kept = {node.name for node in ast.walk(ast.parse(example.after)) if isinstance(node, (*Function, ast.ClassDef))}
    for node in ast.walk(ast.parse(example.before)):
        if not isinstance(node, ast.stmt):
            continue
        first, last = node.lineno, node.end_lineno or node.lineno
        if isinstance(node, (*Function, ast.ClassDef)):
            first = min([first, *(decorator.lineno for decorator in node.decorator_list)])
            last = node.body[0].lineno - 1 if node.name in kept else last
        if first <= line <= last:
            while lines[first - 2].lstrip().startswith("#"):
                first -= 1
            yield from range(first, last + 1)

"""The corpus checks themselves: each sees the fault that it is there for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codemods.findings import FileReport, Finding, Report, Rewrite, Severity, Sites
from codemods.rules import RULES
from tests.corpus import checks
from tests.corpus.comments import lost_comments
from tests.corpus.port import File, Port

CHAIN, PLAIN = (next(r.examples[0] for r in RULES if r.code == code) for code in ("VA201", "VA101"))


def port_of(
    before: str, after: str, *findings: Finding, name: str = "model.py", target: str = "0.32", sites: int = 1
) -> Port:
    """A port of one file, with a report that claims no more than it is given."""
    changed = {"before": before, "after": after} if before != after else {}
    report = FileReport(
        name, findings=findings, sites=Sites(sites), rewrites=(Rewrite(1, "VA201", "", "safe", ""),), **changed
    )
    return Port(Path(), Path(), target, Report(target, (report,)), (File(name, before, after, report, (1, 1)),))


def refusal(line: int, code: str = "VA201") -> Finding:
    return Finding(line, 1, code, Severity.ERROR, "left as it is", "port it by hand")


def test_good_ports_have_no_fault() -> None:
    for example in (CHAIN, PLAIN):
        good = port_of(example.before, example.after)
        for check in checks.ALL:
            if check not in (checks.only_cross_attention_is_refused, *NEED_A_FOLDER):
                assert list(check(good)) == [], check.__name__


NEED_A_FOLDER = (checks.ruff_finds_nothing_new, checks.second_run_is_empty)
BUILT, CALLED = "self.attn = MMEncoderAttention(", "y = self.attn("


@pytest.mark.parametrize(
    ("check", "example", "change"),
    [
        (checks.every_chain_is_one_call, CHAIN, ("", "")),
        (checks.every_chain_is_one_call, CHAIN, ("            max_seqlen=max_seqlen,\n", "")),
        (checks.every_chain_is_one_call, CHAIN, (CALLED, f"self.attn(q, k, v)\n        {CALLED}")),
        (checks.every_chain_is_one_call, CHAIN, (BUILT, f"self.other = MMEncoderAttention(1, 1)\n        {BUILT}")),
        (checks.every_chain_is_one_call, CHAIN, ("            scale=self.head_dim**-0.5,\n", "")),
        (checks.every_chain_is_one_call, CHAIN, (BUILT, f"{BUILT}multimodal_config=None,")),
        (checks.every_multi_head_attention_is_ported, PLAIN, ("", "")),
        (checks.nothing_removed_is_left, PLAIN, ("", "")),
        (checks.nothing_removed_is_left, CHAIN, ("    def forward", "    use_upstream_fa = False\n\n    def forward")),
        (checks.no_op_is_built_outside_init, CHAIN, (CALLED, f"op = MMEncoderAttention(1, 1)\n        {CALLED}")),
        (checks.comments_are_kept, PLAIN, ("", "")),
    ],
)
def test_a_fault_is_seen(check: Callable[[Port], Iterator[str]], example, change: tuple[str, str]) -> None:
    """Nothing done, or one thing done wrong."""
    before = example.before.replace("        self.attn = Multi", "        # why\n        self.attn = Multi")
    after = example.after.replace(*change, 1) if change[0] else before
    if check is checks.comments_are_kept:
        after = example.after
    assert list(check(port_of(before, after)))


def test_a_finding_speaks_for_its_class_alone() -> None:
    second = PLAIN.before.split("\n\n\n")[1].replace("PatchAttention", "Other")
    both = f"{PLAIN.before}\n\n{second}"
    line = PLAIN.before.splitlines().index("class PatchAttention(nn.Module):") + 1
    left = list(checks.nothing_removed_is_left(port_of(both, both, refusal(line, "VA101"))))
    assert left and all("Other" in fault for fault in left)


def test_at_0_13_a_site_needs_a_finding_on_its_line() -> None:
    line = next(n for n, text in enumerate(PLAIN.before.splitlines(), 1) if "MultiHeadAttention(" in text)
    check = checks.every_multi_head_attention_is_ported
    assert list(check(port_of(PLAIN.before, PLAIN.before, refusal(line, "VA101"), target="0.13"))) == []
    assert list(check(port_of(PLAIN.before, PLAIN.before, refusal(line + 1, "VA101"), target="0.13")))


def test_molmo_alone_is_refused() -> None:
    check = checks.only_cross_attention_is_refused
    assert list(check(port_of(PLAIN.before, PLAIN.before, refusal(1), name="molmo.py"))) == []
    assert list(check(port_of(PLAIN.before, PLAIN.before, refusal(1), name="other.py")))
    assert list(check(port_of(PLAIN.before, PLAIN.after)))


def test_a_file_that_uses_the_old_api_has_sites() -> None:
    assert list(checks.sites_add_up(port_of(PLAIN.before, PLAIN.after, sites=0)))


BEFORE = """\
# above
x = f(  # behind
    1,
    # of y
    y=2,
    z=3,  # of z
)
# of del
del x
"""


@pytest.mark.parametrize(
    ("after", "lost"),
    [
        (BEFORE.replace("del x", "del x, x"), []),
        ("# above\nx = f(  # behind\n    1,\n    # of y\n    y=2,\n)\n", []),
        ("# above\nx = f(  # behind\n    1,\n    z=3,  # of z\n)\n", []),
        ("# above\nx = f(1, y=2)\n", ["# behind", "# of y"]),
        ("x = f(1)\n", ["# above", "# behind"]),
        ("", []),
    ],
)
def test_a_comment_is_lost_when_what_it_belongs_to_is_still_there(after: str, lost: list[str]) -> None:
    assert [comment.text for comment in lost_comments(BEFORE, after)] == lost

"""What a rule is: the names it cares about, its reason, its examples, and the function that plans its edits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemods.findings import Severity

if TYPE_CHECKING:
    from codemods.plan import Plan


@dataclass(frozen=True)
class Example:
    """A whole small file before and after. The same text feeds the rule's tests and its page in docs/rules/."""

    before: str
    after: str  # equal to `before` where the rule refuses
    source: str = "0.12"
    target: str = "0.32"
    refused: bool = False  # a finding of this rule's code is expected


@dataclass(frozen=True)
class Rule:
    """One job. `names` are the identifiers that make the rule apply: the byte search over files is made from them.

    `words` are searched for as well; they are nobody's names in particular, so their uses are not accounted for.
    """

    code: str
    name: str
    summary: str
    why: str
    follows: str
    names: frozenset[str]
    plan: Callable[[Plan], None]
    examples: tuple[Example, ...]
    words: frozenset[str] = frozenset()
    review: str = ""  # empty: safe. Otherwise what a person should look at, and why
    requires: tuple[str, ...] = ()  # codes without which this rule must not run
    sweeps: bool = False  # runs again with its like until nothing more dies
    report_only: bool = False  # never edits: finds, and says what to do
    unported: Severity = Severity.ERROR  # how bad its places are as they stand; NOTE where it only tidies up

    @property
    def safety(self) -> str:
        if self.report_only:
            return "edits nothing"
        return f"review: {self.review}" if self.review else "safe"

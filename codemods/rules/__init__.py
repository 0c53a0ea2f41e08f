"""The ordered list of rules, read from top to bottom by a run."""

from __future__ import annotations

from codemods.rule import Rule

RULES: tuple[Rule, ...] = ()

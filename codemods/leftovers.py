"""The account of a file: every use of the old API is rewritten, refused with a reason, or shown irrelevant."""

from __future__ import annotations

from codemods.findings import Finding, Sites
from codemods.plan import FilePlan


def account(plan: FilePlan, changed: bool) -> tuple[Sites, list[Finding]]:
    """The counts of a file's sites, and a finding for each site that nothing accounts for."""
    return Sites(), []

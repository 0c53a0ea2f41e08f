"""Figures of one tower, before and after a port, for people who want to look: no verdict.

A tower is judged by `porting.levels`. What is asked here is asked in the same way, of a runner, as a job.
"""

from __future__ import annotations

from porting.levels import DTYPES, Level

ERRORS = Level(
    "errors",
    "How far is each layer, and each token, from the same tower in fp64, before and after?",
    "porting.close_look.errors",
    dtypes=DTYPES,
)
COST = Level(
    "cost",
    "How long does the vision tower take on this device, and how much memory at its peak, before and after?",
    "porting.close_look.cost",
)

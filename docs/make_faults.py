"""Write docs/faults.md: ports with one fault each, and the levels that see it.

python docs/make_faults.py            # write the page
python docs/make_faults.py --check    # exit 1 if the page is not what would be written
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from docs.made_page import main  # noqa: E402
from porting.levels import LEVELS  # noqa: E402
from tests.porting.faults.faults import FAULTS  # noqa: E402

PAGE = ROOT / "docs" / "faults.md"

INTRODUCTION = """\
# Faulty ports

Two small towers of our own ([packed](../tests/porting/faults/packed.py), with pictures of all sizes behind one another,
and [fixed_size](../tests/porting/faults/fixed_size.py)) are ported to vLLM 0.32 by our own command. The ports pass the
levels of `python -m porting.check` that are shown. Then one thing is made wrong in them, and this is what sees it, with
nothing but a CPU. A level is not asked where an earlier one has failed without which it makes no sense.

`tests/porting/test_faults.py` checks every cell, the empty ones too. The page is made by `python docs/make_faults.py`.
"""

PROVED = [
    level.name for level in LEVELS if level.name in {seen.partition("/")[0] for f in FAULTS for seen in f.seen_by}
]


def page() -> str:
    rows = [f"| fault | {' | '.join(PROVED)} |", "|---|" + "---|" * len(PROVED)]
    for fault in FAULTS:
        cells = [cell(level, list(fault.seen_by)) for level in PROVED]
        rows.append(f"| **{fault.name}** ({fault.tower}): {fault.why} | {' | '.join(cells)} |")
    return INTRODUCTION + "\n" + "\n".join(rows) + "\n"


def cell(level: str, seen_by: list[str]) -> str:
    """What of the level sees the fault: its dtypes or backends where it has several."""
    variants = [seen.partition("/")[2] or "seen" for seen in seen_by if seen.partition("/")[0] == level]
    return ", ".join(variants)


if __name__ == "__main__":
    sys.exit(main(PAGE, page, "List faulty ports and the levels that see them."))

"""Many at once on the small models: everybody gets the answers to what they asked, once, and is told to wait.

`python -m benchmarks.demo --crowd 50 --seconds 120` is the same for longer, with a look at the memory.
"""

from __future__ import annotations

import asyncio

from benchmarks import crowd


def test_a_crowd_is_served_one_after_another(page: str, embedded) -> None:
    seen = asyncio.run(crowd.gather(page, visitors=12, seconds=8, engine=embedded[0]))
    assert seen.wrong == []
    assert len(seen.answers) >= 12
    assert seen.drawings
    assert max(seen.places) > 2, "nobody was told of a queue"

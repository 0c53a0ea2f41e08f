"""The example plugin's tower, as it was and as it is ported, on one question; under the installed vLLM."""

from __future__ import annotations

import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from contextlib import aclosing

import pytest

from demo_app.before_after import client
from demo_app.before_after.client import Compared, Worker
from demo_app.engines.interface import EngineError
from demo_app.page.before_after import apart
from demo_app.page.examples import PAIR
from demo_app.pictures import encode
from demo_app.training.shapes import draw

PICTURE = encode(draw(PAIR, 224))


@pytest.mark.vllm
def test_the_port_sees_the_same_and_a_broken_one_does_not() -> None:
    async def ask() -> list[Compared]:
        worker, found = Worker(), []
        try:
            for broken in (False, True):
                async with aclosing(worker.ask(PICTURE, "What is on the left?", broken)) as steps:
                    found += [step async for step in steps if step]
        finally:
            await worker.close()
        return found

    right, broken = asyncio.run(ask())
    assert (right.original, right.ported) == ("A red circle.", "A red circle.")
    assert right.difference == 0 < right.largest
    assert right.grid == [[0.0] * 4] * 4
    assert broken.original == "A red circle."
    assert broken.difference > 0.01 * broken.largest
    assert max(max(row) for row in broken.grid) == broken.difference


def test_the_difference_is_drawn_over_the_picture_where_it_is() -> None:
    html = apart(Compared("A.", "B.", 2.0, 10.0, [[0.0, 0.5], [2.0, 0.0]], 0.1), PICTURE)
    assert re.findall(r'fill-opacity="([\d.]+)"', html) == ["0.000", "0.250", "1.000", "0.000"]
    assert '<svg preserveAspectRatio="none" ' in html and PICTURE.url in html
    assert "Largest difference 2, where the largest number is 10: 20.0% of it." in html
    same = apart(Compared("A.", "A.", 0.0, 10.0, [[0.0, 0.0]], 0.1), PICTURE)
    assert "All numbers of both towers are the same, bit for bit." in same


def test_a_worker_that_dies_is_said_and_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []

    async def dies() -> object:
        starts.append(1)
        return await asyncio.create_subprocess_exec(sys.executable, "-c", "", stdin=PIPE, stdout=PIPE)

    monkeypatch.setattr(client, "_start", dies)

    async def ask() -> None:
        worker = Worker()
        for _ in range(2):
            with pytest.raises(EngineError, match=r"^The towers cannot be compared: its process ended\.$"):
                async with aclosing(worker.ask(PICTURE, "What is it?", False)) as steps:
                    async for _ in steps:
                        pass

    asyncio.run(ask())
    assert len(starts) == 2


def test_where_vllm_is_not_installed_the_tab_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "find_spec", lambda name: None)
    assert client.missing() == (
        "This compares two vision towers under vLLM, and vLLM is not installed here (extras: cpu, cuda, npu)."
    )

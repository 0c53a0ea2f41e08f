"""Time of the demo on this machine: `python -m benchmarks.demo`, under a Python that has the extra `demo`.

With `--crowd 50` that many visitors come at once, and the memory of the page is looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil

from benchmarks import crowd

ROOT = Path(__file__).parents[1]
TIMES = 10  # answers, and drawings, of one visitor alone
STILL = 5.0  # seconds between two looks at the memory


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Exits 1 where an answer was lost, wrong, or came twice."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__.partition("\n")[0])
    parser.add_argument("--crowd", type=int, default=0, metavar="N", help="visitors at once (default: one alone)")
    parser.add_argument("--seconds", type=float, default=120, help="how long the crowd asks (default: %(default)s)")
    options = parser.parse_args(arguments)
    print(f"{os.cpu_count()} CPUs, load of others {os.getloadavg()[0]:.1f}", flush=True)
    with page() as (address, process, begun):
        if options.crowd:
            seen = together(address, process, options.crowd, options.seconds)
        else:
            seen = alone(address, process, begun)
    for problem in seen.wrong:
        print(problem)
    return 1 if seen.wrong else 0


@contextmanager
def page() -> Iterator[tuple[str, psutil.Process, float]]:
    """The address of a page over the small models, its process, and when its command was given."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "demo_app", "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as started:
        try:
            assert started.stdout
            line = started.stdout.readline()
            if not line:
                raise SystemExit("benchmarks.demo: the page did not come up")
            yield line.split()[1], psutil.Process(started.pid), begun
        finally:
            started.terminate()


def alone(address: str, process: psutil.Process, begun: float) -> crowd.Seen:
    up = time.monotonic() - begun
    asyncio.run(crowd.one(address, 1, 0))
    first, used = time.monotonic() - begun, process.cpu_times()
    print(f"page up {up:.1f} s after the command, first answer {first:.1f} s, of which", end=" ")
    print(f"{used.user + used.system:.1f} s of processor time")
    seen = asyncio.run(crowd.one(address, TIMES, TIMES))
    print(f"then {median(seen.answers):.2f} s an answer, {median(seen.drawings):.2f} s a drawing of 20 steps")
    return seen


def together(address: str, process: psutil.Process, visitors: int, seconds: float) -> crowd.Seen:
    from demo_app.environment import prepare_process

    prepare_process()
    from demo_app.engines.embedded_chat import EmbeddedChat

    asyncio.run(crowd.one(address, 1, 1))  # so that all is loaded
    memory: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(STILL):
            memory.append(process.memory_info().rss / 1e6)

    watching = threading.Thread(target=watch)
    watching.start()
    begun = time.monotonic()
    seen = asyncio.run(crowd.gather(address, visitors, seconds, EmbeddedChat()))
    done.set()
    watching.join()
    print(f"{visitors} visitors, {time.monotonic() - begun:.0f} s: {seen.said()}")
    third = max(1, len(memory) // 3)
    print(f"memory: {median(memory[:third]):.0f} MB in the first third, {median(memory[-third:]):.0f} MB in the last")
    return seen


if __name__ == "__main__":
    sys.exit(main())

"""Run one command and print, as JSON, what it took. Started in a process of its own, which must stay small:

Linux counts the memory of the process that starts a command towards that command's peak.
"""

import json
import os
import sys
import time


def main() -> int:
    """`measure.py COMMAND...`: the command's output goes to stderr. Exits 1 when the command cannot be run or fails."""
    start = time.perf_counter()
    redirect = [(os.POSIX_SPAWN_DUP2, 2, 1)]
    child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=redirect)
    _, status, usage = os.wait4(child, 0)
    wall = time.perf_counter() - start
    cpu = usage.ru_utime + usage.ru_stime  # of the command and the processes it started and waited for
    print(
        json.dumps(
            {
                "wall_s": wall,
                "cpu_s": cpu,
                "peak_mib": usage.ru_maxrss / 1024,
                "exit": os.waitstatus_to_exitcode(status),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.under_vllm`: the tests that compute, under the Python of the environment that has a real vLLM.

Arguments go to pytest. In CI the environment is built if it is missing; elsewhere that is said, and is no failure.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.wheels import VLLM_ENVIRONMENT, vllm_python

FOLDERS = ("tests/porting", "tests/demo_app", "tests/notebooks")


def main(arguments: list[str]) -> int:
    """The exit code of pytest, 0 where there is nothing to run the tests under."""
    try:
        python = vllm_python()
    except pytest.skip.Exception as reason:
        print(f"{' '.join(FOLDERS)} NOT RUN: {reason}")
        return 0
    except pytest.fail.Exception as reason:
        print(f"{' '.join(FOLDERS)} cannot be run: {reason}")
        return 1
    command = [python, "-m", "pytest", *(arguments or ["-n", "2", "--dist", "worksteal", *FOLDERS])]
    return subprocess.run(command, env={**os.environ, **VLLM_ENVIRONMENT}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

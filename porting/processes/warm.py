"""A process that has imported torch and vLLM once, and forks a keeper for each job that it is sent.

It must stay with one thread and must touch no accelerator: neither survives a fork.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import sys
import traceback
from typing import NoReturn

from porting.environment import prepare_process
from porting.processes.job import describe

READY = b"ready\n"

# Without these nothing works; what they raise is told to whoever started this process.
_NEEDED = ("torch", "vllm", "vllm.config", "vllm.distributed.parallel_state")
# What nearly every tower imports. Their places differ between releases, and none is needed here.
_USUAL = (
    "vllm.model_executor.layers.attention",
    "vllm.model_executor.layers.linear",
    "vllm.model_executor.layers.rotary_embedding",
    "vllm.model_executor.models.utils",
    "vllm.model_executor.models.vision",
    "vllm.multimodal.processing",
    "transformers",
    "einops",
)


def serve(control: socket.socket) -> NoReturn:
    """Import, say that it is done, then fork a keeper for each channel that comes, until the other side is gone."""
    prepare_process()
    try:
        for name in _NEEDED:
            importlib.import_module(name)
    except BaseException as error:
        traceback.print_exc()
        control.sendall(f"{describe(error)}\n".encode())
        os._exit(1)
    for name in _USUAL:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    from porting.processes.keeper import keep

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are not waited for
    control.sendall(READY)
    while True:
        message, (*channels,), _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            keep(socket.socket(fileno=channels[0]))
        os.close(channels[0])


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))

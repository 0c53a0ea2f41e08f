"""What the code of a job may not do: reach a network, or write outside of its own folder.

It holds for what runs as Python in the job's process, by way of Python's audit hooks, and no root is needed for it. It
does not hold for compiled code that asks the system directly, for programs that the job starts, or for code that sets
out to get around it: it keeps honest code honest. A file that is not trusted at all belongs in a container.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# Audit event -> positions of the paths in its arguments, each followed by that of the folder it is relative to.
_CHANGES: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.link": ((1, 3),),
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.rmdir": ((0, 1),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.utime": ((0, 3),),
}
_ADDRESSES = {"socket.connect", "socket.sendto", "socket.sendmsg"}
_LOOKUPS = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}

# Where torch, vLLM and compilers keep what they have made once; variable -> folder if it is not set.
_CACHES = {
    "FLASHINFER_WORKSPACE_BASE": "~/.cache/flashinfer",
    "TORCHINDUCTOR_CACHE_DIR": "~/.cache/torchinductor",
    "TRITON_CACHE_DIR": "~/.triton",
    "VLLM_CACHE_ROOT": "~/.cache/vllm",
    "VLLM_CONFIG_ROOT": "~/.config/vllm",
}
_DEVICES = ("/dev/", "/proc/self/")
_IMPORT = "<frozen importlib"  # the import system's frames


class Guard:
    """Refuses with a PermissionError, and remembers.

    `refused_to_model` holds what the model's own files asked for (those in its folder), one line each; `refused` what
    others did, as vLLM may.
    """

    def __init__(self, model: Path, writable: Sequence[Path]) -> None:
        self.refused_to_model: list[str] = []
        self.refused: list[str] = []
        caches = [Path(os.environ.get(name) or Path(default).expanduser()) for name, default in _CACHES.items()]
        self._writable = tuple(os.path.realpath(folder) for folder in (*writable, *caches))
        self._home = os.path.realpath(model.parent)
        self._not_home = tuple(os.path.realpath(folder) for folder in {sys.prefix, sys.base_prefix, _package()})
        self._local_names = {"", "localhost", "localhost.localdomain", "ip6-localhost", socket.gethostname()}
        self._judging = threading.local()

    def install(self) -> None:
        """From here to the end of this process: an audit hook cannot be taken out again."""
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        judge = _JUDGES.get(event)
        if judge is None or getattr(self._judging, "now", False):
            return
        self._judging.now = True  # to judge may itself look at files
        try:
            what = judge(self, event, arguments)
        finally:
            self._judging.now = False
        if what is not None:
            self._refuse(what)

    def _refuse(self, what: str) -> None:
        where = self._in_model()
        if where is None:
            self.refused.append(what)
        else:
            what = f"{what} at {where}"
            self.refused_to_model.append(what)
        raise PermissionError(f"refused by vitport: {what}")

    def _in_model(self) -> str | None:
        """File and line of the innermost frame that is the model's own code.

        What a library does while it is imported is its own affair, whoever imports it.
        """
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(_IMPORT):
                return None
            if not name.startswith("<"):
                path = os.path.realpath(name)
                if _below(path, (self._home,)) and not _below(path, self._not_home):
                    return f"{Path(path).name}:{frame.f_lineno}"
            frame = frame.f_back
        return None

    def _judge_open(self, event: str, arguments: tuple[Any, ...]) -> str | None:
        path, _, flags = arguments
        return self._judge_path(path) if isinstance(flags, int) and flags & _WRITING else None

    def _judge_change(self, event: str, arguments: tuple[Any, ...]) -> str | None:
        for place, folder in _CHANGES[event]:
            relative_to = arguments[folder] if folder is not None and folder < len(arguments) else -1
            what = self._judge_path(arguments[place], relative_to if isinstance(relative_to, int) else -1)
            if what is not None:
                return what
        return None

    def _judge_path(self, path: object, folder: int = -1) -> str | None:
        if isinstance(path, int) or not isinstance(path, (str, bytes, os.PathLike)):
            return None
        name = os.fsdecode(path)
        if folder >= 0:
            try:
                name = str(Path(f"/proc/self/fd/{folder}").readlink() / name)
            except OSError:
                return None
        if name.startswith(_DEVICES):
            return None
        # What is changed is the name itself, so a link at the end is not followed for its folder but for its target.
        real = os.path.realpath(name)
        return None if _below(real, self._writable) else f"writing to {real}"

    def _judge_address(self, event: str, arguments: tuple[Any, ...]) -> str | None:
        address = arguments[1] if len(arguments) > 1 else None
        if not isinstance(address, tuple) or not address or self._is_local(address[0]):
            return None  # None, or the path of a socket in the file system
        return f"connecting to {address[0]}" + (f" port {address[1]}" if len(address) > 1 else "")

    def _judge_lookup(self, event: str, arguments: tuple[Any, ...]) -> str | None:
        host = arguments[0] if arguments else None
        return None if self._is_local(host, numeric_is_fine=True) else f"looking up {host!r} in the network"

    def _is_local(self, host: object, numeric_is_fine: bool = False) -> bool:
        if host is None or not isinstance(host, (str, bytes)):
            return True
        name = os.fsdecode(host)
        try:
            address = ipaddress.ip_address(name.partition("%")[0])
        except ValueError:
            return name in self._local_names
        return numeric_is_fine or address.is_loopback or address.is_unspecified


_JUDGES: dict[str, Callable[[Guard, str, tuple[Any, ...]], str | None]] = {
    "open": Guard._judge_open,
    **dict.fromkeys(_CHANGES, Guard._judge_change),
    **dict.fromkeys(_ADDRESSES, Guard._judge_address),
    **dict.fromkeys(_LOOKUPS, Guard._judge_lookup),
}


def _below(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)


def _package() -> str:
    """The folder of this program's own code, which is not the model's wherever the model lies."""
    return str(Path(__file__).parents[1])

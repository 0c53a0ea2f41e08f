"""Whether the demo can listen where it is told to: looked at before anything that takes long."""

from __future__ import annotations

import errno
import socket

ANYWHERE = "give 127.0.0.1 for this machine only, or 0.0.0.0 for all its addresses"


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; `port` 0 is any that is free.

    Raises ValueError where that cannot be: one line, with the option and what to give it.
    """
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise ValueError(f"--host {host} is no address: {ANYWHERE}") from None
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # also where a demo has just ended
        made.bind(place)
        made.listen()
    except OSError as problem:
        made.close()
        raise ValueError(_refused(host, port, problem)) from None
    return made


def _refused(host: str, port: int, problem: OSError) -> str:
    if problem.errno == errno.EADDRNOTAVAIL:
        return f"--host {host} is no address of this machine: {ANYWHERE}"
    if problem.errno == errno.EACCES:
        return f"--port {port} is not for everybody: give one from 1024 on, or 0 for any that is free"
    if problem.errno == errno.EADDRINUSE:
        return taken(port)
    return f"--host {host} --port {port} cannot be listened at ({problem.strerror}): give others"


def taken(port: int) -> str:
    return f"--port {port} is taken: give another, or 0 for any that is free"


def free_port(host: str, port: int) -> int:
    """`port`, or any that is free for 0. Raises ValueError as `listening` does."""
    with listening(host, port) as probe:
        found: int = probe.getsockname()[1]
        return found

"""What `python -m demo_app` takes, and what it brings up."""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from demo_app import interrupt, listening
from demo_app.engines.interface import ChatEngine, DrawingEngine

VL_URL, T2I_URL = "VITPORT_VL_URL", "VITPORT_T2I_URL"
BAD_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Exits 2, with a line, where it cannot do what is asked."""
    options = parser().parse_args(arguments)
    try:
        if options.omni_compat:
            from demo_app import omni_compat

            return omni_compat.serve(listening.listening(options.host, options.port))
        return serve(options)
    except (ImportError, OSError, ValueError) as problem:
        reason = (
            f"{problem.name} is not installed: install the extra `demo`"
            if isinstance(problem, ImportError)
            else problem
        )
        print(f"demo_app: {reason}", file=sys.stderr)
        return BAD_USAGE


class Parser(argparse.ArgumentParser):
    """One that complains in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_USAGE, f"demo_app: {message.removeprefix('argument ')}\n")


def port(text: str) -> int:
    """The value of --port. Raises ArgumentTypeError."""
    number = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is no port: give a number up to 65535, or 0 for any that is free")
    return number


def patience(text: str) -> float:
    """The value of --patience. Raises ArgumentTypeError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no time to wait: give seconds, more than 0")
    return seconds


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="python -m demo_app",
        description="Bring up a page that draws pictures with words and talks about pictures. Without a server it uses "
        "two small models that know coloured shapes, in this process, and no network.",
    )
    made.add_argument(
        "--vl-url", metavar="URL", help=f"an OpenAI-compatible chat server, such as vLLM's (also ${VL_URL})"
    )
    made.add_argument("--t2i-url", metavar="URL", help=f"a vllm-omni server that draws (also ${T2I_URL})")
    made.add_argument(
        "--host", default="127.0.0.1", help="the address to listen at (default: %(default)s, this machine only)"
    )
    made.add_argument("--port", type=port, default=7860, help="0: any that is free (default: %(default)s)")
    made.add_argument(
        "--patience",
        type=patience,
        default=300,
        metavar="SECONDS",
        help="how long a server may be silent (default: %(default)s)",
    )
    made.add_argument(
        "--omni-compat", action="store_true", help="no page: serve the small drawing model as vllm-omni serves one"
    )
    return made


def engines(options: argparse.Namespace) -> tuple[ChatEngine, DrawingEngine]:
    """Who answers and who draws. Raises ValueError for an address that is none."""
    vl_url = options.vl_url or os.environ.get(VL_URL)
    t2i_url = options.t2i_url or os.environ.get(T2I_URL)
    chat: ChatEngine
    drawing: DrawingEngine
    if vl_url:
        from demo_app.engines.server_chat import ServerChat

        chat = ServerChat(vl_url, options.patience)
    else:
        from demo_app.engines.embedded_chat import EmbeddedChat

        chat = EmbeddedChat()
    if t2i_url:
        from demo_app.engines.server_drawing import ServerDrawing

        drawing = ServerDrawing(t2i_url, options.patience)
    else:
        from demo_app.engines.embedded_drawing import EmbeddedDrawing

        drawing = EmbeddedDrawing()
    return chat, drawing


def serve(options: argparse.Namespace) -> NoReturn:
    """The page, until Ctrl-C."""
    listening.free_port(options.host, options.port)  # what cannot be is said before anything is loaded
    chat, drawing = engines(options)
    from demo_app.page import layout

    page = layout.build(chat, drawing)
    _, address, _ = layout.launch(page, options.host, options.port, prevent_thread_lock=True)
    print(f"Open {address} (stop with Ctrl+C)", flush=True)

    def tidy() -> None:
        """Cut what still goes on, so that files of pictures are removed."""
        logging.disable()
        page.server.config.timeout_graceful_shutdown = 0
        page.close(verbose=False)

    interrupt.wait(tidy)

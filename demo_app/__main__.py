"""The command: `python -m demo_app`."""

from __future__ import annotations

import sys

from demo_app import interrupt
from demo_app.environment import prepare_process

prepare_process()  # before anything imports Gradio, torch or diffusers

if __name__ == "__main__":
    interrupt.at_once()
    from demo_app.command import main

    sys.exit(main())

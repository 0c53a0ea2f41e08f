"""One question through the original and the ported vision tower of the example plugin."""

from __future__ import annotations

import gradio as gr


def show() -> None:
    gr.HTML("")

"""The tab that asks one question through the original and the ported vision tower of the example plugin."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from demo_app import pictures
from demo_app.before_after.client import Compared, Worker, missing
from demo_app.engines.interface import EngineError, with_ticks
from demo_app.page import chat, examples
from demo_app.page.notice import LATE, notice, too_long
from demo_app.pictures import Picture
from porting.reports.heat_map import draw

ABOUT = (
    "The example plugin was written for vLLM 0.12. Its vision tower runs here twice inside the installed vLLM, with "
    "the weights of the small chat model: the original as it is, and a copy that codemods has ported. "
    "What they see of a picture must be the same."
)


def show() -> None:
    """Put it on the page that is being built."""
    gr.HTML(f"<p>{ABOUT}</p>", container=False, padding=False)
    if why := missing():
        gr.HTML(notice(why), container=False, padding=False)
        return
    worker = Worker()
    with gr.Row(equal_height=False):
        with gr.Column(min_width=320):
            picture = gr.Image(
                label="Picture",
                type="filepath",
                sources=["upload", "clipboard"],
                height=260,
                buttons=[],
                elem_id="seen",
            )
            question = gr.Textbox(chat.DESCRIBE, label="Question")
            broken = gr.Checkbox(
                label="Break the port first", info="Its layers forget their windows: what a wrong port would look like."
            )
            compare = gr.Button("Compare", variant="primary", elem_id="compare")
            values = [[example["files"][0], example["text"]] for (example,) in examples.questions()]
            gr.Examples(values, [picture, question], cache_examples=False, label="Examples")
        with gr.Column(min_width=320):
            said = gr.HTML(container=False, padding=False, elem_id="compare-notice")
            original = gr.Textbox(label="With the original tower", interactive=False)
            ported = gr.Textbox(label="With the ported tower", interactive=False)
            numbers = gr.HTML(container=False, padding=False, elem_id="apart")

    async def ask(picture: str | None, question: str, broken: bool) -> AsyncGenerator[tuple[Any, ...], None]:
        """One question through both towers."""
        nothing = (gr.skip(),) * 3
        if not picture or not (question or "").strip():
            yield notice("Give a picture and a question."), *nothing
            return
        if len(question) > chat.LONGEST:
            yield notice(too_long("question", question, chat.LONGEST), bad=True), *nothing
            return
        begun = time.perf_counter()
        try:
            seen = pictures.read(Path(picture))
            async with aclosing(with_ticks(worker.ask(seen, question.strip(), broken))) as steps:
                async for step in steps:
                    if isinstance(step, Compared):
                        yield "", step.original, step.ported, apart(step, seen)
                    elif (seconds := time.perf_counter() - begun) > LATE:
                        yield notice(f"vLLM starts, which takes a minute: {seconds:.0f} s so far."), *nothing
        except (pictures.BadPicture, EngineError) as problem:
            yield notice(str(problem), bad=True), *nothing

    compare.click(
        ask,
        [picture, question, broken],
        [said, original, ported, numbers],
        concurrency_id="before and after",
        concurrency_limit=1,
        show_progress_on=said,
        api_name="compare",
    )


def apart(found: Compared, picture: Picture) -> str:
    """How far the towers are apart, as a line and over the picture."""
    if found.difference == 0:
        line = "All numbers of both towers are the same, bit for bit."
    else:
        line = (
            f"Largest difference {found.difference:.3g}, where the largest number is {found.largest:.3g}: "
            f"{found.difference / found.largest:.1%} of it."
        )
    svg = str(draw("difference of each visual token", found.grid))
    heat = svg.replace("<svg ", '<svg preserveAspectRatio="none" ', 1)  # stretched like the picture itself
    return (
        f'<figure class="heat-map"><div><img src="{picture.url}" alt="The picture">{heat}</div>'
        f"<figcaption>{escape(line)} Both answers in {found.seconds:.2f} s.</figcaption></figure>"
    )

"""The drawing side."""

from __future__ import annotations

import random
import re
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import gradio as gr

from demo_app.conversation import Drawing, Visitor
from demo_app.engines.interface import DrawingEngine, Drawn, EngineError, Range, Step, Wish, with_ticks
from demo_app.page import chat, examples, files
from demo_app.page.notice import LATE, notice, too_long
from demo_app.page.status import Strip

LONGEST = 1000  # characters of a prompt
GRAIN = 16  # pixels; a side is so many times as long
SEEDS = 2**31
LUCKY = 1_000_000  # seeds that are short enough to be told
CANCELLED = "Cancelled. Earlier drawings are kept."
FOCUS = "() => document.querySelector('#question textarea').focus()"


class BadWish(Exception):
    """What is wished cannot be asked for; the message is one line."""


def show(engine: DrawingEngine, visitor: gr.State, strip: Strip, status: gr.HTML, talk: chat.Talk) -> None:
    """Put the drawing side on the page that is being built."""
    offered = engine.range
    gr.HTML("<h2>Draw with words</h2>", container=False, padding=False)
    prompt = gr.Textbox("", label="What to draw", placeholder=examples.PROMPTS[0], lines=2, elem_id="prompt")
    with gr.Row():
        draw = gr.Button("Draw", variant="primary", min_width=120, elem_id="draw")
        cancel = gr.Button("Cancel", min_width=120, elem_id="cancel")
    said = gr.HTML(container=False, padding=False, elem_id="drawing-notice")
    result = gr.Gallery(
        label="Drawing",
        columns=1,
        height=320,
        object_fit="contain",
        format="png",
        interactive=False,
        buttons=["download", "fullscreen"],
        elem_id="drawing",
    )
    about = gr.Button("Ask the chat about this picture", size="sm", elem_id="about")
    with gr.Accordion("Settings", open=False, elem_id="settings"):
        negative = gr.Textbox("", label="What not to draw (negative prompt)")
        with gr.Row():
            seed = gr.Number(label="Seed", value=0, precision=0, minimum=0, maximum=SEEDS, min_width=100)
            lucky = gr.Checkbox(label="A new seed each time", value=True, min_width=100)
        with gr.Row():
            steps = gr.Slider(1, offered.most_steps, offered.steps, step=1, label="Steps", min_width=140)
            guidance = gr.Slider(0, 20, offered.guidance, step=0.1, label="Guidance", min_width=140)
        with gr.Row():
            sizes = ["{}x{}".format(*size) for size in offered.sizes]
            size = gr.Dropdown(
                sizes,
                value=sizes[0],
                label=f"Size in pixels, at most {offered.largest}x{offered.largest}",
                allow_custom_value=True,
                min_width=140,
            )
            count = gr.Slider(1, offered.most_pictures, 1, step=1, label="Pictures", min_width=140)
    gr.Examples(examples.prompts(), prompt, cache_examples=False, label="Examples", elem_id="prompt-examples")
    with gr.Accordion("Earlier drawings", open=False, elem_id="earlier"):
        history = gr.Gallery(
            label="Earlier drawings",
            show_label=False,
            columns=6,
            object_fit="contain",
            format="png",
            interactive=False,
            allow_preview=False,
            buttons=["download_all"],
            elem_id="history",
        )
    with gr.Accordion("The same from a shell", open=False):
        command = gr.Code(language="shell", interactive=False, label="Command of the latest drawing", wrap_lines=True)
    chosen = gr.State(0)  # which of the pictures in `result`
    current = gr.State([])  # their numbers in the visitor's drawings

    async def make(
        visitor: Visitor,
        prompt: str,
        negative: str,
        seed: float | None,
        lucky: bool,
        steps: float,
        guidance: float,
        size: str,
        count: float,
        progress: Any = gr.Progress(),  # noqa: B008  Gradio looks for it here
    ) -> AsyncGenerator[tuple[Any, ...], None]:
        """Draw what is wished for."""
        nothing = (gr.skip(),) * 6
        try:
            wish = wished(offered, prompt, negative, seed, lucky, steps, guidance, size, count)
        except BadWish as problem:
            yield notice(str(problem), bad=True), *nothing
            return
        visitor.wish = wish
        begun, seen = time.perf_counter(), False
        try:
            async with aclosing(with_ticks(engine.draw(wish))) as items:
                async for item in items:
                    if visitor.wish is not wish:  # cancelled: see the chat's answer
                        yield gr.skip() if visitor.wish else notice(CANCELLED), *nothing
                        return
                    seconds = time.perf_counter() - begun
                    if isinstance(item, Step):
                        seen = True
                        progress((item.done, item.of), desc="Drawing", unit=unit(item.of))
                    elif isinstance(item, Drawn):
                        drawn = [
                            Drawing(wish, picture, wish.seed + number, seconds)
                            for number, picture in enumerate(item.pictures)
                        ]
                        visitor.wish = None
                        visitor.keep(drawn)
                        strip.drew(seconds, len(drawn))
                        yield (
                            notice(told(wish, seconds)),
                            gallery(drawn),
                            earlier(visitor),
                            wish.seed,
                            drawn,
                            await strip.html(),
                            engine.command(wish),
                        )
                    elif not seen and seconds > LATE:
                        yield notice(f"Waiting for {engine.where} for {seconds:.0f} s."), *nothing
        except EngineError as problem:
            if visitor.wish is wish:
                visitor.wish = None
            yield notice(f"{problem} Earlier drawings are kept.", bad=True), *nothing[2:], await strip.html(), gr.skip()

    def cancelled(visitor: Visitor) -> str:
        if not visitor.wish:
            return notice("Nothing is being drawn.")
        visitor.wish = None
        return notice(CANCELLED)

    def again(visitor: Visitor, event: gr.SelectData) -> tuple[Any, ...]:
        """Show an earlier drawing, with its settings."""
        newest_first = visitor.drawings[::-1]
        if not 0 <= event.index < len(newest_first):
            return (gr.skip(),) * 10
        drawing = newest_first[event.index]
        wish = drawing.wish
        settings = (wish.prompt, wish.negative, drawing.seed, False, wish.steps, wish.guidance)
        return (
            notice(told(wish, drawing.seconds)),
            gallery([drawing]),
            [drawing],
            *settings,
            "{}x{}".format(*wish.size),
        )

    def which(event: gr.SelectData) -> int:
        return int(event.index)

    def hand_over(drawn: list[Drawing], index: int) -> tuple[Any, str]:
        if not drawn:
            return gr.skip(), notice("There is no drawing yet: draw something first.")
        picture = drawn[min(index, len(drawn) - 1)].picture
        return {"text": chat.DESCRIBE, "files": [files.of(picture)]}, ""

    form = [prompt, negative, seed, lucky, steps, guidance, size, count]
    drawing = gr.on(
        [draw.click, prompt.submit],
        make,
        [visitor, *form],
        [said, result, history, seed, current, status, command],
        concurrency_id="drawing",
        concurrency_limit=engine.at_once,
        show_progress_on=said,
        api_name="draw",
    )
    quiet = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    cancel.click(cancelled, visitor, said, cancels=drawing, **quiet)
    result.select(which, None, chosen, **quiet)
    history.select(again, visitor, [said, result, current, *form[:-1]], **quiet)
    about.click(hand_over, [current, chosen], [talk.box, said], **quiet).then(None, js=FOCUS)


def wished(
    offered: Range,
    prompt: str,
    negative: str,
    seed: float | None,
    lucky: bool,
    steps: float,
    guidance: float,
    size: str,
    count: float,
) -> Wish:
    """The wish of a form, its bounds checked: a page is not alone in sending forms. Raises BadWish."""
    if not prompt.strip():
        raise BadWish("Write what to draw, for instance: " + examples.PROMPTS[0])
    for what, text in (("prompt", prompt), ("negative prompt", negative)):
        if len(text) > LONGEST:
            raise BadWish(too_long(what, text, LONGEST))
    sides = re.fullmatch(r"\s*(\d{1,4})\s*x\s*(\d{1,4})\s*", size or "")
    width, height = map(int, sides.groups()) if sides else (0, 0)
    possible = range(GRAIN, offered.largest + 1, GRAIN)
    if width not in possible or height not in possible:
        raise BadWish(
            f"A size is like {'{}x{}'.format(*offered.sizes[0])}, in steps of {GRAIN}, "
            f"at most {offered.largest}x{offered.largest}."
        )
    if not (1 <= steps <= offered.most_steps and 0 <= guidance <= 20 and 1 <= count <= offered.most_pictures):
        raise BadWish("A setting is out of its range.")
    if steps != int(steps) or count != int(count):
        raise BadWish("Steps and pictures are whole numbers.")
    if not lucky and (seed is None or not 0 <= seed <= SEEDS):
        raise BadWish(f"A seed is a whole number from 0 to {SEEDS}.")
    chosen = random.randrange(LUCKY) if lucky or seed is None else int(seed)
    return Wish(prompt.strip(), negative.strip(), chosen, int(steps), float(guidance), (width, height), int(count))


def told(wish: Wish, seconds: float) -> str:
    return (
        f"“{wish.prompt}”, seed {wish.seed}, {wish.steps} {unit(wish.steps)}, guidance {wish.guidance:g}, "
        f"{wish.size[0]}x{wish.size[1]}, in {seconds:.1f} s"
    )


def unit(steps: int) -> str:
    return "step" if steps == 1 else "steps"


def gallery(drawn: list[Drawing]) -> gr.Gallery:
    captions = [f"{drawing.wish.prompt} (seed {drawing.seed})" for drawing in drawn]
    return gr.Gallery(
        [(files.of(drawing.picture), caption) for drawing, caption in zip(drawn, captions)],
        columns=min(2, len(drawn)),
    )


def earlier(visitor: Visitor) -> list[tuple[str, str]]:
    return [
        (files.of(drawing.picture), f"{drawing.wish.prompt} · {drawing.seed}") for drawing in visitor.drawings[::-1]
    ]

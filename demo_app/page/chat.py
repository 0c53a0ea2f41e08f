"""The chat side."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from demo_app import pictures
from demo_app.conversation import Turn, Visitor, shown
from demo_app.engines.interface import ChatEngine, EngineError, with_ticks
from demo_app.page import examples, files
from demo_app.page.notice import LATE, notice, too_long
from demo_app.page.status import Strip

LONGEST = 4000  # characters of a question
PASTED = 1_000_000  # characters; Gradio makes a file of more
DESCRIBE = "Describe the picture."
OFTEN = 0.05  # seconds between two pieces that are shown
STOPPED = "Stopped. What was said is kept."
NOTHING_TO_SAY = "The conversation is empty. Add a picture of coloured shapes, and ask what is on it."


@dataclass(frozen=True)
class Talk:
    """What the drawing side hands a picture to."""

    box: gr.MultimodalTextbox


def show(engine: ChatEngine, visitor: gr.State, strip: Strip, status: gr.HTML) -> Talk:
    """Put the chat on the page that is being built."""
    gr.HTML("<h2>Chat about pictures</h2>", container=False, padding=False)
    log = gr.Chatbot(
        label="Conversation",
        height=420,
        buttons=[],  # they would copy what `typed` has made of a text
        render_markdown=False,
        latex_delimiters=[],
        placeholder=NOTHING_TO_SAY,
        feedback_options=None,
        elem_id="conversation",
    )
    said = gr.HTML(container=False, padding=False, elem_id="chat-notice")
    box = gr.MultimodalTextbox(
        label="Your question",
        show_label=False,
        placeholder="Ask something; add or paste a picture",
        file_types=["image"],
        file_count="multiple" if engine.pictures > 2 else "single",
        sources=["upload"],
        max_plain_text_length=PASTED,
        html_attributes=gr.InputHTMLAttributes(autocomplete="off"),
        elem_id="question",
    )
    with gr.Row():
        stop = gr.Button("Stop", size="sm", min_width=80, elem_id="stop")
        again = gr.Button("Ask again", size="sm", min_width=80, elem_id="again")
        clear = gr.Button("Start over", size="sm", min_width=80, elem_id="clear")
    gr.Examples(examples.questions(), box, cache_examples=False, label="Examples", elem_id="question-examples")
    with gr.Accordion("The same from a shell", open=False):
        command = gr.Code(language="shell", interactive=False, label="Command of the latest question", wrap_lines=True)

    def say(sent: dict[str, Any], visitor: Visitor) -> tuple[Any, Any, Any]:
        """Take a question with its pictures. What cannot be taken is said, and the question stays in its box."""
        kept = {"text": sent["text"], "files": []}
        text = sent["text"].strip()
        try:
            taken = [pictures.read(Path(file)) for file in sent["files"]]
        except pictures.BadPicture as problem:
            return kept, gr.skip(), notice(str(problem), bad=True)
        if not text and not taken:
            return gr.skip(), gr.skip(), notice("Write a question, or add a picture.")
        if visitor.open_turn:
            return gr.skip(), gr.skip(), notice("The answer before is still coming: wait for it, or press Stop.")
        if len(text) > LONGEST:
            return gr.skip(), gr.skip(), notice(too_long("question", text, LONGEST), bad=True)
        visitor.ask(text or DESCRIBE, taken)
        return {"text": "", "files": []}, messages(visitor), ""

    async def answer(visitor: Visitor) -> AsyncGenerator[tuple[Any, Any, Any, Any], None]:
        """The answer to the question that is open, as it comes."""
        turn = visitor.open_turn
        if turn is None or turn.taken:
            yield gr.skip(), gr.skip(), gr.skip(), gr.skip()  # of a generator that yields nothing, Gradio shows nothing
            return
        turn.taken = True
        asked = shown(visitor.turns, engine.turns, engine.pictures)
        begun = painted = time.perf_counter()
        first, tokens, waited = 0.0, 0, False
        try:
            async with aclosing(with_ticks(engine.answer(asked))) as pieces:
                async for piece in pieces:
                    if not turn.open:  # a browser's own cancelling gets lost where the next event is just being sent
                        # What is shown last must be this: a line sent before may reach the browser after Stop's own.
                        latest = bool(visitor.turns) and visitor.turns[-1] is turn
                        yield messages(visitor), notice(STOPPED) if latest else gr.skip(), gr.skip(), gr.skip()
                        return
                    now = time.perf_counter()
                    if piece is None:
                        late = now - begun if not turn.answer else 0
                        if late > LATE:
                            waited = True
                            waits = notice(f"Waiting for {engine.where} for {late:.0f} s.")
                            yield gr.skip(), waits, gr.skip(), gr.skip()
                        continue
                    first = first or now - begun
                    turn.answer, tokens = turn.answer + piece.text, piece.tokens
                    if now - painted > OFTEN:
                        painted = now
                        yield messages(visitor), "" if waited else gr.skip(), gr.skip(), gr.skip()
                        waited = False
            strip.answered(first, time.perf_counter() - begun, tokens)
            turn.ended = True
        except EngineError as problem:
            turn.problem, turn.ended = str(problem), True
        finally:
            turn.open = False
        yield messages(visitor), notice(turn.problem, bad=True), await strip.html(), engine.command(asked)

    def ask_again(visitor: Visitor) -> tuple[Any, Any]:
        """Open the latest turn once more."""
        if visitor.turns and not visitor.open_turn:
            last = visitor.turns.pop()
            visitor.ask(last.question, last.pictures)
        return messages(visitor), ""

    def stopped(visitor: Visitor) -> tuple[Any, Any]:
        if not visitor.stop():
            return gr.skip(), notice("Nothing is being answered.")
        return messages(visitor), notice(STOPPED)

    def forget(visitor: Visitor) -> tuple[list[Any], str, str]:
        visitor.stop()
        visitor.turns = []
        return [], "", ""

    asking = {
        "fn": answer,
        "inputs": visitor,
        "outputs": [log, said, status, command],
        "concurrency_id": "chat",
        "concurrency_limit": engine.at_once,
        "show_progress_on": said,
    }
    quiet = {"queue": False, "show_progress": "hidden"}
    sent = box.submit(say, [box, visitor], [box, log, said], api_name="say", **quiet)
    answering = sent.then(api_name="answer", **asking)
    retried = again.click(ask_again, visitor, [log, said], api_visibility="private", **quiet)
    answering_again = retried.then(api_visibility="private", **asking)
    running = [answering, answering_again]
    stop.click(stopped, visitor, [log, said], cancels=running, api_name="stop", **quiet)
    for cleared in (clear.click, log.clear):
        cleared(forget, visitor, [log, said, command], cancels=running, api_visibility="private", **quiet)
    return Talk(box)


def messages(visitor: Visitor) -> list[dict[str, Any]]:
    """The conversation as the Chatbot takes it."""
    return [message for turn in visitor.turns for message in _messages(turn)]


def typed(text: str) -> str:
    """What the Chatbot shows as `text` was typed: what would begin a tag or an entity of HTML does not."""
    return re.sub("[<&](?=[A-Za-z/!?#])", lambda found: escape(found[0]), text)


def _messages(turn: Turn) -> list[dict[str, Any]]:
    pictures = [{"path": files.of(picture), "alt_text": "Picture of the question"} for picture in turn.pictures]
    said = turn.answer or ("…" if turn.open else "")
    if turn.problem:
        said = f"{said} (broken off)" if said else "(no answer)"
    elif not said:
        said = "(stopped)"
    return [
        {"role": "user", "content": [*pictures, {"type": "text", "text": typed(turn.question)}]},
        {"role": "assistant", "content": [{"type": "text", "text": typed(said)}]},
    ]

"""The whole page, and how it is brought up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from demo_app import pictures
from demo_app.conversation import Visitor
from demo_app.engines.interface import ChatEngine, DrawingEngine
from demo_app.listening import free_port, taken
from demo_app.page import before_after, chat, drawing, safety
from demo_app.page.status import Strip

TITLE = "Draw and ask"
STYLE = Path(__file__).with_name("style.css")
WAITING = 256  # requests in the queues of both sides together
KEPT = 3600  # seconds after which files of pictures and visitors that left are forgotten

TOGGLE = "() => { document.body.classList.toggle('dark'); }"  # Gradio follows the system by itself
# Gradio shows this box's label to nobody.
LABEL = "() => { document.querySelector('#question textarea')?.setAttribute('aria-label', 'Your question'); }"


def build(chat_engine: ChatEngine, drawing_engine: DrawingEngine) -> gr.Blocks:
    """The page over two engines."""
    strip = Strip(chat_engine, drawing_engine)
    with gr.Blocks(title=TITLE, fill_width=True, analytics_enabled=False, delete_cache=(KEPT, KEPT)) as page:
        visitor = gr.State(Visitor(), time_to_live=KEPT)
        with gr.Row(elem_classes="top"):
            gr.HTML(f"<h1>{TITLE}</h1>", container=False, padding=False)
            dark = gr.Button("Light or dark", size="sm", scale=0, min_width=110)
        dark.click(None, js=TOGGLE)
        status = strip.show()
        with gr.Tab("Chat and draw"), gr.Row(equal_height=False):
            with gr.Column(min_width=380, elem_id="chat-side"):
                talk = chat.show(chat_engine, visitor, strip, status)
            with gr.Column(min_width=380, elem_id="drawing-side"):
                drawing.show(drawing_engine, visitor, strip, status, talk)
        with gr.Tab("Before and after"):
            before_after.show()
        page.load(None, js=LABEL)
    safety.refuse_links(page)
    return page.queue(max_size=WAITING, default_concurrency_limit=8)


def launch(page: gr.Blocks, host: str, port: int, **more: Any) -> tuple[Any, str, str]:
    """Serve it. `port` 0 is any that is free. Raises ValueError where it cannot listen there."""
    place = free_port(host, port)
    try:
        return _launched(page, host, place, **more)
    except OSError:  # Gradio wants the port on 127.0.0.1 too
        raise ValueError(taken(place)) from None


def _launched(page: gr.Blocks, host: str, port: int, **more: Any) -> tuple[Any, str, str]:
    served: tuple[Any, str, str] = page.launch(
        server_name=f"[{host}]" if ":" in host else host,
        server_port=port,
        share=False,
        quiet=True,
        show_error=False,
        max_file_size=f"{pictures.MEGABYTES}mb",
        footer_links=[],
        run_history=False,
        enable_monitoring=False,
        mcp_server=False,
        ssr_mode=False,
        pwa=False,
        app_kwargs={"middleware": safety.middleware()},
        theme=_theme(),
        css_paths=STYLE,
        **more,
    )
    return served


def _theme() -> gr.themes.Base:
    """Gradio's, with fonts that are here already, and darker where its text is hard to read."""
    fonts = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
    return gr.themes.Soft(primary_hue="indigo", **fonts).set(
        block_label_text_color="*primary_700",
        block_title_text_color="*primary_700",
        body_text_color_subdued="*neutral_500",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_500",
        input_placeholder_color="*neutral_500",
    )

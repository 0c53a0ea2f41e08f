"""The panels of a served port: start and stop it, ask it about a picture, open the demo app beside it."""

from __future__ import annotations

import base64
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import ipywidgets

from porting.models.server import NoServer
from porting.widgets.bench import Port
from porting.widgets.panel import Panel, html, show
from porting.widgets.served import Served
from porting.widgets.session import NotYet
from porting.widgets.work import Progress, Work

_PROBLEMS = (NotYet, NoServer, ValueError)
_LARGEST = 10 * 2**20  # bytes of a picture


class Serve(Panel):
    """A server that starts at once; Stop ends it, while it starts or later."""

    def __init__(self, served: Served, port: Port, checkpoint: Path, architecture: str, dtype: str) -> None:
        self._wanted = (port, checkpoint, architecture, dtype)
        self._what = f"{checkpoint} is served as {architecture}, by the plugin in {port.after}"
        self.served = served
        self.work = Work("Starting")
        self.again = ipywidgets.Button(description="Start", icon="play", tooltip="Start the server anew")
        self.end = ipywidgets.Button(description="End", icon="power-off", tooltip="End the server")
        super().__init__([ipywidgets.HBox([self.again, self.end]), self.work.widget])
        self.again.on_click(lambda _: self.start())
        self.end.on_click(self._end)
        self.work.stop.on_click(lambda _: served.end())
        self.start()

    def start(self) -> None:
        """Start, in a thread."""
        self.work.start(self._serve, _PROBLEMS)

    def _serve(self, progress: Progress) -> str:
        self.served.start(*self._wanted, progress)
        return self._what

    def _end(self, _: Any) -> None:
        self.served.end()
        self.work.say("The server is ended.")

    def story(self) -> str:
        return self.work.story()

    def plain(self) -> str:
        return self.work.said


class Chat(Panel):
    """A picture, a question, an answer; the first is asked at once."""

    def __init__(self, served: Served, picture: str, question: str) -> None:
        self.served = served
        self.picture = data_address(Path(picture).read_bytes()) if picture else red_circle()
        self.answers: list[tuple[str, str, str]] = []  # picture, question, answer
        self.upload = ipywidgets.FileUpload(accept="image/*", description="Another picture", layout={"width": "14em"})
        self.question = ipywidgets.Text(value=question, description="Question", layout={"width": "min(100%, 40em)"})
        self.ask = ipywidgets.Button(description="Ask", icon="comment", tooltip="Ask about the picture")
        self.work = Work("Asking")
        self._shown = html()
        super().__init__([self.upload, self.question, self.ask, self.work.widget, self._shown])
        self.upload.observe(self._take, "value")
        self.ask.on_click(lambda _: self.start())
        self.start()

    def start(self) -> None:
        """Ask, in a thread."""
        self.work.start(self._ask, _PROBLEMS)

    def _take(self, change: Any) -> None:
        for file in change["new"]:
            if file["size"] > _LARGEST:
                return self.work.say(
                    f"{file['name']} is larger than {_LARGEST >> 20} MiB; give a smaller one", bad=True
                )
            try:
                self.picture = data_address(bytes(file["content"]), file["type"])
            except ValueError as problem:
                return self.work.say(str(problem), bad=True)
            show(self._shown, self._conversation())

    def _ask(self, progress: Progress) -> str:
        progress(0, 1)
        answer = self.served.say(self.question.value, self.picture, tokens=48)
        self.answers.append((self.picture, self.question.value, answer))
        show(self._shown, self._conversation())
        return f"{self.question.value} {answer}"

    def _conversation(self) -> str:
        told = [
            f'<p><img src="{picture}" width="112" alt="the picture that was asked about"><br>'
            f"<strong>{escape(question)}</strong> {escape(answer)}</p>"
            for picture, question, answer in reversed(self.answers)
        ]
        new = not self.answers or self.answers[-1][0] != self.picture
        waiting = f'<p><img src="{self.picture}" width="112" alt="the picture to ask about"></p>' if new else ""
        return waiting + "".join(told)

    def story(self) -> str:
        return self._conversation() if self.answers else self.work.story()

    def plain(self) -> str:
        return self.work.said


class Demo(Panel):
    """The demo app over the same server, behind a link: its page may not be framed by another."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.work = Work("Starting")
        self.open_it = ipywidgets.Button(description="Start the demo app", icon="play", layout={"width": "14em"})
        self._link = html()
        super().__init__([self.open_it, self.work.widget, self._link])
        self.open_it.on_click(lambda _: self.start())
        self.work.stop.on_click(lambda _: served.end_demo())
        self.start()

    def start(self) -> None:
        """Open it, in a thread."""
        self.work.start(self._open, _PROBLEMS)

    def _open(self, progress: Progress) -> str:
        address = self.served.open_demo(progress)
        link = (
            f'<p><a href="{address}" target="_blank" rel="noopener">Open the demo app in a tab beside this one</a></p>'
        )
        show(self._link, link)
        return "The demo app talks to the served port."

    def story(self) -> str:
        return self.work.story()

    def plain(self) -> str:
        return self.work.said


def data_address(data: bytes, kind: str = "image/png") -> str:
    """A picture as a `data:` address."""
    if not kind.startswith("image/"):
        raise ValueError(f"{kind} is no picture; give a PNG or a JPEG")
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def red_circle() -> str:
    """Something to ask about."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (112, 112), "white")
    ImageDraw.Draw(picture).ellipse((28, 28, 84, 84), fill=(220, 30, 30))
    png = BytesIO()
    picture.save(png, "PNG")
    return data_address(png.getvalue())

"""A person at the page, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, expect

WAIT = 120_000  # milliseconds; machines that test are busy
expect.set_options(timeout=WAIT)


class Visit:
    """The page as a person sees it. `trouble`: what the console complained of; `elsewhere`: what others were asked."""

    def __init__(self, browser: Browser, address: str, **context: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
        self.context.set_default_timeout(WAIT)
        self.page = self.context.new_page()
        self.trouble: list[str] = []
        self.elsewhere: list[str] = []
        self.page.on("console", lambda m: self.trouble.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("request", self._note)
        self.page.goto(address)
        expect(self.question).to_be_visible()

    def _note(self, request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            self.elsewhere.append(request.url)

    @property
    def question(self) -> Locator:
        return self.page.get_by_label("Your question", exact=True).and_(self.page.locator("textarea"))

    @property
    def prompt(self) -> Locator:
        return self.page.get_by_label("What to draw", exact=True)

    @property
    def answers(self) -> Locator:
        return self.page.locator("#conversation .bot.message")

    @property
    def chat_notice(self) -> Locator:
        return self.page.locator("#chat-notice .notice")

    @property
    def drawing_notice(self) -> Locator:
        return self.page.locator("#drawing-notice .notice")

    @property
    def drawings(self) -> Locator:
        return self.page.locator("#drawing img")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def unfold(self, name: str) -> None:
        self.page.get_by_role("button", name=name).click()

    def upload(self, file: Path, taken: bool = True) -> None:
        """Add a file to the question; wait until it is there, unless it will not be `taken`."""
        self.page.locator("#question input[type=file]").set_input_files(file)
        if taken:
            expect(self.page.locator("#question .thumbnail-image")).to_have_count(1)

    def ready(self) -> None:
        """Wait until both engines are."""
        expect(self.page.locator("#strip .ready")).to_have_count(2)

    def ask(self, question: str) -> None:
        self.question.fill(question)
        self.question.press("Enter")

    def answered(self, times: int) -> None:
        """Wait until so many questions are answered to the end."""
        expect(self.answers).to_have_count(times)
        expect(self.answers.last).not_to_have_text("…")
        expect(self.page.locator("#chat-notice .wrap.hide")).to_have_count(1)

    def draw(self, prompt: str) -> None:
        self.prompt.fill(prompt)
        self.button("Draw").click()

    def nothing_odd(self) -> None:
        assert self.trouble == []
        assert self.elsewhere == []


@contextmanager
def visit(browser: Browser, address: str, **context: Any) -> Iterator[Visit]:
    visitor = Visit(browser, address, **context)
    yield visitor
    visitor.context.close()

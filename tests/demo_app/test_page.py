"""What a person does at the page, in a real browser: over the small models, and over servers that let one down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from demo_app.engines.server_chat import ServerChat
from demo_app.engines.server_drawing import ServerDrawing
from demo_app.page.examples import STAR
from demo_app.training.shapes import draw
from tests.browser import chromium
from tests.demo_app.conftest import served
from tests.demo_app.fake_servers import Exchange, FakeServer, running
from tests.demo_app.visit import Visit, visit

SOON = 60  # seconds; machines that test are busy
PHONE = {"viewport": {"width": 375, "height": 800}, "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def star(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pictures") / "star.png"
    draw(STAR, 224).save(file)
    return file


def test_upload_ask_draw_cancel_and_ask_about_the_drawing(browser: Browser, page: str, star: Path) -> None:
    with visit(browser, page) as person:
        person.ready()
        person.upload(star)
        person.ask("What do you see?")
        person.answered(1)
        person.ask("Which background is it?")
        person.answered(2)
        expect(person.page.locator("#strip")).to_contain_text("whole answer")

        person.draw("a red circle on a white background")
        expect(person.drawings).to_have_count(1)
        expect(person.drawing_notice).to_contain_text("20 steps")
        first = person.drawings.get_attribute("src")

        person.unfold("Settings")
        person.page.get_by_label("number input for Steps").fill("50")
        person.page.get_by_label("Size in pixels").fill("256x256")  # so that it takes a while
        person.page.get_by_label("Size in pixels").press("Tab")
        person.button("Draw").click()
        expect(person.page.locator("#drawing-notice")).to_contain_text("/50 steps")
        person.button("Cancel").click()
        expect(person.drawing_notice).to_have_text("Cancelled. Earlier drawings are kept.")
        assert person.drawings.get_attribute("src") == first

        person.page.get_by_label("Size in pixels").fill("64x64")
        person.page.get_by_label("Size in pixels").press("Tab")
        person.page.get_by_label("number input for Steps").fill("2")
        person.page.get_by_label("number input for Pictures").fill("2")
        person.draw("a blue star on a grey background")
        expect(person.drawings).to_have_count(2)
        person.unfold("Earlier drawings")
        expect(person.page.locator("#history img")).to_have_count(3)
        person.page.locator("#history img").last.click()
        expect(person.prompt).to_have_value("a red circle on a white background")
        expect(person.drawings).to_have_count(1)

        person.button("Ask the chat about this picture").click()
        expect(person.question).to_have_value("Describe the picture.")
        expect(person.question).to_be_focused()
        person.question.press("Enter")
        person.answered(3)
        expect(person.page.locator("#conversation .user img")).to_have_count(2)

        person.button("Start over").click()
        expect(person.answers).to_have_count(0)
        person.nothing_odd()


def test_stop_and_cancel_say_so_where_nothing_runs(browser: Browser, page: str) -> None:
    with visit(browser, page) as person:
        for _ in range(2):  # before anything was done, and after it has ended
            person.button("Stop").click()
            expect(person.chat_notice).to_have_text("Nothing is being answered.")
            person.button("Cancel").click()
            expect(person.drawing_notice).to_have_text("Nothing is being drawn.")
            person.ask("Hello")
            person.answered(1 + _)
            person.draw("a red circle")
            expect(person.drawing_notice).to_contain_text("a red circle")
        person.nothing_odd()


def test_a_setting_that_cannot_be_is_said_and_nothing_is_drawn(browser: Browser, page: str) -> None:
    with visit(browser, page) as person:
        person.draw("a red circle " * 100)
        expect(person.drawing_notice).to_contain_text("The prompt has 1300 characters, at most 1000 are taken")
        person.unfold("Settings")
        steps, size = person.page.get_by_label("number input for Steps"), person.page.get_by_label("Size in pixels")
        steps.fill("1.5")
        steps.press("Tab")
        person.draw("a red circle")
        expect(person.drawing_notice).to_have_text("Steps and pictures are whole numbers.")
        steps.fill("1")
        steps.press("Tab")
        size.fill("2048x2048")
        size.press("Tab")
        person.button("Draw").click()
        expect(person.drawing_notice).to_contain_text("in steps of 16, at most 256x256.")
        expect(person.drawings).to_have_count(0)
        size.fill("64x64")
        size.press("Tab")
        person.button("Draw").click()
        expect(person.drawing_notice).to_contain_text(", 1 step, ")
        person.nothing_odd()


TYPED = "# Title\n    **bold** <img src=x> <b>b</b> [a](b) $$x$$ a < b && c &amp; &copy <!-- d"


def test_what_was_typed_stands_there_as_it_was_typed(browser: Browser, page: str) -> None:
    with visit(browser, page) as person:
        person.ask(TYPED)
        person.answered(1)
        mine = person.page.locator("#conversation .user.message")
        assert TYPED in mine.inner_text()
        assert mine.locator("h1, b, strong, a, img, .katex").count() == 0
        person.ask("a" * 4001)
        expect(person.chat_notice).to_contain_text("The question has 4001 characters, at most 4000 are taken")
        person.nothing_odd()


def test_what_is_no_picture_is_said_and_the_question_is_kept(browser: Browser, page: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.png"
    wrong.write_text("not a picture")
    with visit(browser, page) as person:
        person.upload(wrong)
        person.ask("What is it?")
        person.page.wait_for_timeout(1000)  # what follows a question must not wipe out what was said of it
        expect(person.chat_notice).to_contain_text("wrong.png is no picture that can be read")
        expect(person.question).to_have_value("What is it?")
        expect(person.answers).to_have_count(0)
        person.nothing_odd()


def test_a_huge_file_is_turned_away(browser: Browser, page: str, tmp_path: Path) -> None:
    huge = tmp_path / "huge.png"
    with huge.open("wb") as file:
        file.truncate(12_000_000)
    with visit(browser, page) as person:
        person.upload(huge, taken=False)
        expect(person.page.get_by_text("exceed the maximum allowed size")).to_be_visible()
        person.ask("Hello")
        person.answered(1)
        assert person.elsewhere == []


def test_the_keyboard_is_enough(browser: Browser, page: str) -> None:
    with visit(browser, page) as person:
        person.ready()
        reach(person, "Your question")
        person.page.keyboard.type("Hello")
        person.page.keyboard.press("Enter")
        person.answered(1)
        reach(person, "What to draw")
        person.page.keyboard.type("a red circle")
        reach(person, "Draw")
        person.page.keyboard.press("Enter")
        expect(person.drawings).to_have_count(1)
        reach(person, "Ask the chat about this picture")
        person.page.keyboard.press("Enter")
        expect(person.question).to_be_focused()
        person.nothing_odd()


def reach(person: Visit, name: str) -> None:
    """Press Tab until the thing of that name has the focus."""
    now = "() => { const e = document.activeElement; return e.ariaLabel || e.labels?.[0]?.innerText || e.innerText }"
    seen = []
    for _ in range(60):
        person.page.keyboard.press("Tab")
        seen.append((person.page.evaluate(now) or "").strip())
        if seen[-1] == name:
            return
    raise AssertionError(f"Tab does not lead to {name!r}, but to {seen}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(browser: Browser, page: str, scheme: str) -> None:
    with visit(browser, page, color_scheme=scheme) as person:
        for place in ("h1", "#strip b", "#drawing-side h2", "#prompt label span", "#draw", "#stop", "#about"):
            assert contrast(person, place) >= 4.5, place
        lightness = person.page.evaluate(BACKGROUND)
        assert (lightness > 128) == (scheme == "light")
        person.button("Light or dark").click()
        assert (person.page.evaluate(BACKGROUND) > 128) != (scheme == "light")


BACKGROUND = "() => Number(getComputedStyle(document.querySelector('gradio-app')).backgroundColor.match(/[0-9.]+/g)[0])"
CONTRAST = """(e) => {
  const part = (v) => v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4
  const light = (c) => { const [r, g, b] = c.match(/[0-9.]+/g).map(part); return .2126 * r + .7152 * g + .0722 * b }
  const colour = (e) => getComputedStyle(e).backgroundColor
  let behind = e
  while (/, 0\\)$|transparent/.test(colour(behind))) behind = behind.parentElement
  const both = [light(getComputedStyle(e).color), light(colour(behind))]
  return (Math.max(...both) + .05) / (Math.min(...both) + .05) }"""


def contrast(person: Visit, place: str) -> float:
    return float(person.page.locator(place).first.evaluate(CONTRAST))


def test_a_phone_shows_one_side_below_the_other_and_nothing_beside(browser: Browser, page: str) -> None:
    with visit(browser, page, **PHONE) as person:
        chat, drawing = (person.page.locator(f"#{side}-side").bounding_box() for side in ("chat", "drawing"))
        assert chat and drawing and chat["y"] + chat["height"] <= drawing["y"]
        assert person.page.evaluate("document.documentElement.scrollWidth") <= 375
        person.ask("Hello")
        person.answered(1)
        person.nothing_odd()


def test_everything_has_a_name_for_screen_readers(browser: Browser, page: str) -> None:
    with visit(browser, page) as person:
        for name in ("Settings", "Earlier drawings"):
            person.unfold(name)
        unnamed = person.page.evaluate(UNNAMED)
        assert unnamed == []


UNNAMED = """() => [...document.querySelectorAll('button, input, textarea, select, img, [role=button], [role=slider]')]
  .filter(e => e.checkVisibility() && e.tabIndex >= 0 || e.tagName == 'IMG' && e.checkVisibility())
  .filter(e => !(e.ariaLabel || e.title || e.alt || e.labels?.length || e.innerText?.trim()
      || e.getAttribute('aria-labelledby') || e.closest('button')?.innerText.trim()))
  .map(e => e.outerHTML.slice(0, 200))"""


# -- servers ---------------------------------------------------------------------------------------------------------


async def slow(exchange: Exchange) -> None:
    """Counts until the client has had enough; to "die" it breaks off in the middle."""
    asked = exchange.body["messages"][-1]["content"]
    await exchange.head(200, "text/event-stream")
    for number in range(1, 4 if asked in ("die", "three") else 1000):
        await exchange.word(f"{number} ")
        await asyncio.sleep(0.05)
    if asked == "die":
        exchange.cut()
    else:
        await exchange.event("[DONE]")


@pytest.fixture
def slow_server() -> Iterator[FakeServer]:
    with running(slow) as server:
        yield server


def test_stop_keeps_what_was_said_and_tells_the_server(
    browser: Browser, embedded: tuple[object, object], slow_server: FakeServer
) -> None:
    with served(ServerChat(slow_server.url, 5), embedded[1]) as address, visit(browser, address) as person:
        person.ask("count")
        expect(person.answers.last).to_contain_text("1 2 3")
        person.ask("and this?")
        expect(person.chat_notice).to_contain_text("wait for it, or press Stop")
        person.button("Stop").click()
        expect(person.chat_notice).to_have_text("Stopped. What was said is kept.")
        assert slow_server.gone.wait(SOON)
        assert len(slow_server.bodies) == 1
        expect(person.answers.last).to_contain_text("1 2 3")
        person.ask("three")
        person.answered(2)
        expect(person.answers.last).to_have_text("1 2 3")
        said = [message["content"] for message in slow_server.bodies[-1]["messages"]]
        assert said[0] == "count" and said[1].startswith("1 2 3") and said[2] == "three"
        person.nothing_odd()


def test_stop_and_cancel_end_the_work_even_when_the_browser_cannot_cancel_it(browser: Browser) -> None:
    """Where an event is just being sent, its cancelling has no number to name, and Gradio refuses it."""

    async def silent(exchange: Exchange) -> None:
        await asyncio.sleep(3600)

    with running(slow) as chat, running(silent) as drawing:
        engines = ServerChat(chat.url, 60), ServerDrawing(drawing.url, 60)
        with served(*engines) as address, visit(browser, address) as person:
            person.page.route("**/cancel", lambda route: route.fulfill(status=422, json={}))
            person.ask("count")
            expect(person.answers.last).to_contain_text("1 2 3")
            person.button("Stop").click()
            expect(person.chat_notice).to_have_text("Stopped. What was said is kept.")
            assert chat.gone.wait(SOON)
            person.ask("three")
            expect(person.answers.last).to_have_text("1 2 3")
            person.draw("a star")
            expect(person.page.locator("#drawing-notice")).to_contain_text(
                f"Waiting for the drawing server at {drawing.url}"
            )
            person.button("Cancel").click()
            expect(person.drawing_notice).to_have_text("Cancelled. Earlier drawings are kept.")
            assert drawing.gone.wait(SOON)


def test_a_server_that_dies_is_named_and_is_asked_again_when_it_is_back(
    browser: Browser, embedded: tuple[object, object]
) -> None:
    with running(slow) as server:
        chat = ServerChat(server.url, 5)
        with served(chat, embedded[1]) as address, visit(browser, address) as person:
            person.ask("die")
            expect(person.chat_notice).to_contain_text("broke off in the middle")
            expect(person.answers.last).to_contain_text("1 2 3")
            server.stop()
            person.ask("three")
            expect(person.chat_notice).to_contain_text("does not answer: start it, or correct --vl-url")
            expect(person.page.locator("#strip .down")).to_contain_text("does not answer")
            with running(slow, port=server.port):
                person.button("Ask again").click()
                expect(person.answers.last).to_have_text("1 2 3")
                expect(person.page.locator("#strip")).to_contain_text("Chat ready: fake-model")
            person.nothing_odd()

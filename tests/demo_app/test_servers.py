"""Servers as engines: what is sent, what comes back, and one line for each way in which a server can let one down."""

from __future__ import annotations

import asyncio
import base64
import json
import socket

import pytest
from PIL import Image

from demo_app.engines.interface import Drawn, Message, Wish
from demo_app.engines.server import address
from demo_app.engines.server_chat import ServerChat
from demo_app.engines.server_drawing import ServerDrawing
from demo_app.pictures import encode
from tests.demo_app.fake_servers import Exchange, collected, running

RED = encode(Image.new("RGB", (8, 8), "red"))
ASKED = [Message("user", "What is it?", (RED,))]


async def answers(exchange: Exchange) -> None:
    await exchange.head(200, "text/event-stream")
    for word in ("A ", "red ", "square."):
        await exchange.word(word)
    await exchange.event({"choices": [], "usage": {"completion_tokens": 7}})
    await exchange.event("[DONE]")


async def draws(exchange: Exchange) -> None:
    await exchange.json(200, {"created": 1, "data": [{"b64_json": base64.b64encode(RED.data).decode()}]})


def said(server_url: str, patience: float = 5) -> tuple[str, str]:
    """What a chat server has said, and the line that it failed with."""
    pieces, problem = collected(ServerChat(server_url, patience).answer(ASKED))
    return "".join(piece.text for piece in pieces), problem


# -- all is well -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "most"), [({}, 1024), ({"max_model_len": 256}, 128), ({"max_model_len": 32768}, 1024)]
)
def test_no_longer_answer_is_asked_for_than_the_model_has_room_for(listed: dict[str, int], most: int) -> None:
    with running(answers, listed=listed) as server:
        said(server.url)
    assert [body["max_tokens"] for body in server.bodies] == [most]


def test_an_answer_comes_in_pieces_with_its_tokens() -> None:
    with running(answers) as server:
        pieces, problem = collected(ServerChat(server.url, 5).answer(ASKED))
    assert not problem
    assert [piece.text for piece in pieces] == ["A ", "red ", "square.", ""]
    assert pieces[-1].tokens == 7
    (body,) = server.bodies
    assert body["model"] == "fake-model"
    assert body["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": RED.url}},
        {"type": "text", "text": "What is it?"},
    ]


def test_a_drawing_is_asked_for_as_vllm_omni_wants_it() -> None:
    wish = Wish("a circle", "", 7, 30, 4.0, (1024, 768), 2)
    with running(draws) as server:
        items, problem = collected(ServerDrawing(server.url, 5).draw(wish))
    assert not problem
    (drawn,) = items
    assert isinstance(drawn, Drawn) and drawn.pictures == (RED,)
    assert server.bodies == [
        {
            "model": "fake-model",
            "prompt": "a circle",
            "negative_prompt": " ",
            "n": 2,
            "size": "1024x768",
            "response_format": "b64_json",
            "num_inference_steps": 30,
            "true_cfg_scale": 4.0,
            "seed": 7,
        }
    ]


def test_the_key_comes_from_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITPORT_VL_KEY", "s3cret")
    engine = ServerChat("http://127.0.0.1:1", 5)
    assert engine.client().headers["authorization"] == "Bearer s3cret"
    assert "s3cret" not in engine.command(ASKED) and '"Authorization: Bearer $VITPORT_VL_KEY"' in engine.command(ASKED)


def test_white_space_around_the_key_is_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITPORT_VL_KEY", " s3cret\n")
    assert ServerChat("http://127.0.0.1:1", 5).client().headers["authorization"] == "Bearer s3cret"


@pytest.mark.parametrize("key", ["schlüssel", "two\nlines", "two words"])
def test_what_cannot_be_a_key_is_said_at_the_start(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITPORT_T2I_KEY", key)
    with pytest.raises(ValueError, match=r"^VITPORT_T2I_KEY is no key: give it the key alone, without spaces"):
        ServerDrawing("http://127.0.0.1:1", 5)


def test_the_health_names_the_model_and_is_looked_at_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demo_app.engines.server.FRESH", 0.0)
    with running(answers, models=["first"]) as server:
        engine = ServerChat(server.url, 5)
        assert (asyncio.run(engine.health()).state, asyncio.run(engine.health()).model) == ("ready", "first")
        server.models = ["second"]
        assert asyncio.run(engine.health()).model == "second"
        port = server.port
    down = asyncio.run(engine.health())
    assert (down.state, down.problem.startswith("The chat server at")) == ("down", True)
    with running(answers, port=port):
        assert asyncio.run(engine.health()).state == "ready"


# -- a server lets one down ------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    assert said(url) == ("", f"The chat server at {url}/v1 does not answer: start it, or correct --vl-url.")
    _, problem = collected(ServerDrawing(url, 5).draw(Wish("a circle")))
    assert problem == f"The drawing server at {url}/v1 does not answer: start it, or correct --t2i-url."


def test_a_server_that_dies_in_the_middle_of_an_answer() -> None:
    async def dies(exchange: Exchange) -> None:
        await exchange.head(200, "text/event-stream")
        await exchange.word("A red")
        exchange.cut()

    with running(dies) as server:
        text, problem = said(server.url)
    assert text == "A red"
    assert problem.endswith("broke off in the middle: look into its log, and try again when it is back.")


def test_a_server_that_ends_an_answer_without_saying_so() -> None:
    async def stops(exchange: Exchange) -> None:
        await exchange.head(200, "text/event-stream")
        await exchange.word("A red")

    with running(stops) as server:
        text, problem = said(server.url)
    assert (text, "broke off in the middle" in problem) == ("A red", True)


def test_a_server_that_says_nothing() -> None:
    async def silent(exchange: Exchange) -> None:
        await asyncio.sleep(60)

    with running(silent) as server:
        _, problem = said(server.url, patience=0.3)
    assert "has sent nothing for 0.3 s: it may be busy: try again, or give it longer (--patience)." in problem


@pytest.mark.parametrize(
    ("code", "answer", "line"),
    [
        (401, {"error": "Unauthorized"}, "wants a key (401): set VITPORT_VL_KEY to it and start again."),
        (
            404,
            {"error": {"message": "no such model."}},
            "does not know that model or request: no such model: does --vl-url name the right server?",
        ),
        (503, {"detail": "loading"}, "is busy (503: loading): try again in a while."),
        (400, {"error": {"message": "context\nfull"}}, "refuses (400: context full): try something else"),
        (500, ["?"], 'refuses (500: ["?"])'),
    ],
)
def test_a_server_that_refuses(code: int, answer: object, line: str) -> None:
    async def refuses(exchange: Exchange) -> None:
        await exchange.json(code, answer)

    with running(refuses) as server:
        problem = said(server.url)[1]
    assert line in problem
    assert not problem.endswith(("?.", "..")) and problem.endswith((".", "?"))


@pytest.mark.parametrize("code", [401, 403])
def test_a_server_that_refuses_the_key(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuses(exchange: Exchange) -> None:
        await exchange.json(code, {"error": "Unauthorized"})

    monkeypatch.setenv("VITPORT_VL_KEY", "wr0ng")
    with running(refuses) as server:
        problem = said(server.url)[1]
    assert problem.endswith(f"refuses the key of VITPORT_VL_KEY ({code}): correct it and start again.")


def test_a_server_of_another_kind() -> None:
    async def page(exchange: Exchange) -> None:
        await exchange.json(200, {"hello": "world"})

    with running(page, models=[]) as server:
        assert said(server.url)[1].endswith(
            "lists no model at /v1/models: is the address of --vl-url that of such a server?"
        )


@pytest.mark.parametrize("chunk", ["{", "[]", '{"choices": [{}]}', '{"choices": 3}'])
def test_a_stream_that_is_no_answer(chunk: str) -> None:
    async def nonsense(exchange: Exchange) -> None:
        await exchange.head(200, "text/event-stream")
        await exchange.event(chunk)

    with running(nonsense) as server:
        assert said(server.url)[1].endswith("sends something that is no answer: is it an OpenAI-compatible server?")


def test_a_server_that_gives_up_in_the_stream() -> None:
    async def gives_up(exchange: Exchange) -> None:
        await exchange.head(200, "text/event-stream")
        await exchange.word("A")
        await exchange.event({"error": {"message": "out of memory"}})

    with running(gives_up) as server:
        assert said(server.url) == (
            "A",
            f"The chat server at {server.url}/v1 gave up: out of memory: try again, or look into its log.",
        )


@pytest.mark.parametrize(
    "answer", [{"data": [{"url": "http://example.org/x.png"}]}, {"data": [{"b64_json": "QUJD"}]}, []]
)
def test_a_drawing_that_is_none(answer: object) -> None:
    async def nonsense(exchange: Exchange) -> None:
        await exchange.json(200, answer)

    with running(nonsense) as server:
        _, problem = collected(ServerDrawing(server.url, 5).draw(Wish("a circle")))
    assert problem.endswith("sends something that is no drawing: does it serve a text-to-image model?")


def test_a_server_that_draws_nothing() -> None:
    async def nothing(exchange: Exchange) -> None:
        await exchange.json(200, {"data": []})

    with running(nothing) as server:
        items, problem = collected(ServerDrawing(server.url, 5).draw(Wish("a circle")))
    assert items == []
    assert problem.endswith("has drawn nothing: ask for something else, or look into its log.")


def test_a_server_that_answers_without_a_word() -> None:
    async def nothing(exchange: Exchange) -> None:
        await exchange.head(200, "text/event-stream")
        await exchange.event("[DONE]")

    with running(nothing) as server:
        assert said(server.url)[1].endswith("answers without a word: ask again, or in other words.")


def test_an_answer_that_cannot_be_unpacked() -> None:
    async def damaged(exchange: Exchange) -> None:
        exchange.writer.write(b"HTTP/1.1 200 X\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\nnot zipped")
        await exchange.writer.drain()

    with running(damaged) as server:
        assert "broke off in the middle" in said(server.url)[1]


def test_closing_the_answer_tells_the_server_at_once() -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.head(200, "text/event-stream")
        while True:
            await exchange.word("and ")
            await asyncio.sleep(0.01)

    with running(endless) as server:
        pieces, _ = collected(ServerChat(server.url, 5).answer(ASKED), most=3)
        assert len(pieces) == 3
        assert server.gone.wait(5)


# -- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", ["http://here:8000", "http://here:8000/", "http://here:8000/v1", "http://here:8000/v1/"]
)
def test_an_address_may_be_given_with_or_without_v1(given: str) -> None:
    assert address(given) == "http://here:8000/v1"


@pytest.mark.parametrize(
    "given",
    [
        "here:8000",
        "file:///etc/passwd",
        "http://",
        "http://me:pw@here",
        "http://here/?a=b",
        "http://[",
        "http://he re",
        "http://xn--:80",
    ],
)
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match=r"is no address of a server: give one like http://127\.0\.0\.1:8000"):
        address(given)


def test_a_command_that_asks_the_same(tmp_path: object) -> None:
    with running(draws) as server:
        engine = ServerDrawing(server.url, 5)
        asyncio.run(engine.health())
        assert json.dumps("it's a circle") in engine.command(Wish("it's a circle")).replace("'\"'\"'", "'")

"""What an engine is shown of a conversation, and how much is kept of it."""

from __future__ import annotations

from PIL import Image

from demo_app.conversation import MOST_DRAWINGS, MOST_TURNS, Drawing, Turn, Visitor, shown
from demo_app.engines.interface import Message, Wish
from demo_app.pictures import encode

RED, BLUE = (encode(Image.new("RGB", (8, 8), colour)) for colour in ("red", "blue"))


def test_a_conversation_is_shown_in_order() -> None:
    turns = [Turn("Hello", (), "Hi.", open=False), Turn("And now?", (RED,))]
    assert shown(turns, 20, 8) == [
        Message("user", "Hello"),
        Message("assistant", "Hi."),
        Message("user", "And now?", (RED,)),
    ]


def test_only_the_last_turns_are_shown() -> None:
    turns = [Turn(str(number), (), "Yes.", open=False) for number in range(5)] + [Turn("last")]
    assert [message.text for message in shown(turns, 2, 8)] == ["4", "Yes.", "last"]
    assert [message.text for message in shown(turns, 1, 8)] == ["last"]


def test_a_picture_that_stands_further_back_is_still_seen() -> None:
    turns = [Turn("a picture", (RED,), "Red.", open=False)]
    turns += [Turn(str(number), (), "Yes.", open=False) for number in range(3)]
    first, *others = shown([*turns, Turn("last")], 2, 8)
    assert first == Message("user", "2", (RED,))
    assert not any(message.pictures for message in others)


def test_the_latest_pictures_are_seen_where_there_are_too_many() -> None:
    turns = [Turn("two", (RED, RED), "Red.", open=False), Turn("one", (BLUE,))]
    messages = shown(turns, 20, 2)
    assert [message.pictures for message in messages] == [(RED,), (), (BLUE,)]


def test_what_was_never_answered_is_not_shown() -> None:
    turns = [Turn("lost", (), "", open=False, problem="broke off"), Turn("again")]
    assert shown(turns, 20, 8) == [Message("user", "again")]


def test_a_visitor_keeps_the_latest() -> None:
    visitor = Visitor()
    for number in range(MOST_TURNS + 3):
        visitor.ask(str(number), ())
        visitor.turns[-1].open = False
    drawing = Drawing(Wish("a circle"), RED, 0, 1.0)
    visitor.keep([drawing] * (MOST_DRAWINGS + 3))
    assert [visitor.turns[0].question, visitor.turns[-1].question] == ["3", str(MOST_TURNS + 2)]
    assert (len(visitor.turns), len(visitor.drawings)) == (MOST_TURNS, MOST_DRAWINGS)

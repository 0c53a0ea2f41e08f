"""Pictures from outside: what is taken, what is refused and how, and that only pixels go on."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image, PngImagePlugin

from demo_app import pictures
from demo_app.pictures import BadPicture, decode, encode, read


def file(image: Image.Image, kind: str = "PNG", **more: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **more)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])
def test_the_usual_kinds_are_taken(kind: str) -> None:
    picture = decode(file(Image.new("RGB", (40, 30), "red"), kind), "a picture")
    assert (picture.width, picture.height, picture.kind) == (40, 30, "png")
    red, green, blue = picture.image().getpixel((20, 15))
    assert red > 240 and green < 15 and blue < 15


def test_what_else_a_file_holds_does_not_go_on() -> None:
    secret = PngImagePlugin.PngInfo()
    secret.add_text("comment", "taken at home")
    with_secret = file(Image.new("RGB", (8, 8)), pnginfo=secret)
    assert b"taken at home" in with_secret
    assert b"taken at home" not in decode(with_secret, "a picture").data


def test_a_picture_taken_sideways_is_turned() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: turn right
    picture = decode(file(Image.new("RGB", (40, 20)), "JPEG", exif=exif), "a picture")
    assert (picture.width, picture.height) == (20, 40)


def test_what_is_transparent_is_white() -> None:
    picture = decode(file(Image.new("RGBA", (4, 4), (255, 0, 0, 0))), "a picture")
    assert picture.image().getpixel((0, 0)) == (255, 255, 255)


def test_a_large_picture_is_scaled_down_and_goes_on_as_jpeg() -> None:
    picture = encode(Image.new("RGB", (4000, 2000)))
    assert (picture.width, picture.height, picture.kind) == (pictures.SIDE, pictures.SIDE // 2, "jpeg")
    assert picture.url.startswith("data:image/jpeg;base64,")


@pytest.mark.parametrize(
    "data",
    [b"", b"not a picture", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"\x89PNG\r\n\x1a\n" + b"\0" * 100],
    ids=["empty", "text", "svg", "damaged"],
)
def test_what_is_no_picture_is_refused_with_one_line(data: bytes) -> None:
    with pytest.raises(BadPicture, match=r"^notes\.txt is no picture that can be read: give a .* file$"):
        decode(data, "notes.txt")


@pytest.mark.parametrize(("size", "taken"), [((10_000, 100), True), ((10_000, 2), False), ((2, 10_000), False)])
def test_a_picture_that_is_too_thin_for_models_is_refused(size: tuple[int, int], taken: bool) -> None:
    data = file(Image.new("RGB", size))
    if taken:
        decode(data, "thin.png")
        return
    with pytest.raises(BadPicture, match=r"thin\.png is \d+x\d+; at most 100 times as long as wide: cut out a part"):
        decode(data, "thin.png")


def test_half_a_picture_is_refused() -> None:
    whole = file(Image.effect_noise((64, 64), 50))
    with pytest.raises(BadPicture):
        decode(whole[: len(whole) // 2], "half.png")


def test_a_small_file_of_very_many_pixels_is_refused_before_it_is_decoded() -> None:
    bomb = file(Image.new("1", (8_000, 8_000)))
    assert len(bomb) < 20_000
    with pytest.raises(BadPicture, match=r"bomb\.png is 8000x8000; at most 40 million pixels: scale it down first"):
        decode(bomb, "bomb.png")
    with pytest.raises(BadPicture, match=r"bomb\.png has far more than 40 million pixels: scale it down first"):
        decode(file(Image.new("1", (13_400, 13_400))), "bomb.png")


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    large = tmp_path / "large.png"
    with large.open("wb") as opened:
        opened.truncate(11_000_000)
    with pytest.raises(BadPicture, match=r"large\.png has 11 MB; at most 10 MB"):
        read(large)

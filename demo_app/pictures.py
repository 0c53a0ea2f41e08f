"""Pictures from outside: looked at before they are decoded, bounded, and written anew, so that only pixels go on."""

from __future__ import annotations

import base64
import io
import warnings
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageOps

MEGABYTES = 10  # of a file
MEGAPIXELS = 40  # of a picture, before it is scaled down
LONGEST = 100  # times as long as wide; models take up to 200
SIDE = 1280  # the longest side of what goes on
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
LOSSLESS = 512 * 512  # pixels; larger pictures go on as JPEG


class BadPicture(Exception):
    """A file is no picture that can be taken; the message is one line with what to do."""


@dataclass(frozen=True)
class Picture:
    """The bytes of a PNG or JPEG file of our own writing, with its size in pixels."""

    data: bytes
    kind: str  # "png" or "jpeg"
    width: int
    height: int

    @property
    def url(self) -> str:
        """As a `data:` link, which is how servers are given pictures."""
        return f"data:image/{self.kind};base64,{base64.b64encode(self.data).decode()}"

    def image(self) -> Image.Image:
        """RGB."""
        return Image.open(io.BytesIO(self.data)).convert("RGB")


def read(path: Path) -> Picture:
    """A picture from a file somebody gave us. Raises BadPicture."""
    size = path.stat().st_size
    if size > MEGABYTES * 1_000_000:
        raise BadPicture(f"{path.name} has {size / 1e6:.0f} MB; at most {MEGABYTES} MB: make it smaller")
    return decode(path.read_bytes(), path.name)


def decode(data: bytes, name: str) -> Picture:
    """A picture from the bytes of a file. Raises BadPicture."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of very many pixels: they are counted here
            with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
                width, height = opened.size
                if width * height > MEGAPIXELS * 1_000_000:
                    raise BadPicture(
                        f"{name} is {width}x{height}; at most {MEGAPIXELS} million pixels: scale it down first"
                    )
                if max(width, height) > LONGEST * min(width, height):
                    raise BadPicture(
                        f"{name} is {width}x{height}; at most {LONGEST} times as long as wide: cut out a part of it"
                    )
                opened.draft("RGB", (SIDE, SIDE))
                opened.load()
                return encode(ImageOps.exif_transpose(opened))
    except BadPicture:
        raise
    except Image.DecompressionBombError:
        raise BadPicture(f"{name} has far more than {MEGAPIXELS} million pixels: scale it down first") from None
    except Exception:  # decoders of damaged files raise all kinds
        raise BadPicture(f"{name} is no picture that can be read: give a {', '.join(FORMATS)} file") from None


def encode(image: Image.Image) -> Picture:
    """Our own file of a picture, transparency on white, without anything but its pixels."""
    if image.mode in ("LA", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        layer = image.convert("RGBA")
        image = Image.new("RGB", layer.size, "white")
        image.paste(layer, mask=layer.getchannel("A"))
    image = image.convert("RGB")
    image.thumbnail((SIDE, SIDE))
    kind = "png" if image.width * image.height <= LOSSLESS else "jpeg"
    file = io.BytesIO()
    image.save(file, kind, **({"quality": 92} if kind == "jpeg" else {}))
    return Picture(file.getvalue(), kind, image.width, image.height)

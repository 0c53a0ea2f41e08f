"""Files of pictures for the browser, in Gradio's own cache, which forgets them after a while."""

from __future__ import annotations

import hashlib
from pathlib import Path

from gradio import utils

from demo_app.pictures import Picture


def of(picture: Picture) -> str:
    """The path of a picture's file, named by its content; written anew where it has been forgotten."""
    folder = Path(utils.get_upload_folder()) / hashlib.sha256(picture.data).hexdigest()
    file = folder / f"picture.{'jpg' if picture.kind == 'jpeg' else 'png'}"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture.data)
    return str(file)

"""`python -m demo_app.before_after.worker`: answers questions through both towers, a line of JSON each.

First it writes `{"ready": true}`. A question is `{"picture": base64 of a PNG or JPEG, "question": text, "broken":
whether to break the port}`. Its answer has `original` and `ported`, what the model says with each tower; `difference`,
the largest between their embeddings, and `largest`, the largest number of the original's; `grid`, the largest
difference of each visual token, in rows and columns; `seconds`. Where it cannot answer, the line has `problem` alone.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from porting.environment import prepare_process


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer

    def say(value: dict[str, Any]) -> None:
        print(json.dumps(value), file=answers, flush=True)

    prepare_process()
    with tempfile.TemporaryDirectory(prefix="vitport-") as folder:
        try:
            asker = Asker(Path(folder))
        except Exception as error:
            return say({"problem": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"})
        say({"ready": True})
        for line in sys.stdin:
            try:
                say(asker.ask(**json.loads(line)))
            except Exception as error:
                say({"problem": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"})
    return None


class Asker:
    """The small chat model with two towers for its one. `folder` is for the ported copy."""

    def __init__(self, folder: Path) -> None:
        from demo_app.before_after import towers
        from demo_app.engines.embedded_chat import load
        from demo_app.small_models import CHAT
        from demo_app.small_models import folder as model_folder
        from porting import host

        host.start_groups()
        self.chat = load(model_folder(CHAT))
        model = self.chat.model
        self.towers = towers.both(folder, model.config, dict(model.model.visual.named_parameters()))

    def ask(self, picture: str, question: str, broken: bool) -> dict[str, Any]:
        import torch

        from demo_app.engines.interface import Message
        from demo_app.pictures import decode

        begun = time.perf_counter()
        seen = decode(base64.b64decode(picture), "the picture")
        inputs = self.chat.inputs([Message("user", question, (seen,))])
        said, embeddings = [], []
        self.towers[1].breaking(broken)
        with torch.inference_mode():
            for tower in self.towers:
                self.chat.model.model.visual = tower
                made = self.chat.model.generate(**inputs, do_sample=False)
                said.append(self.chat.decode(made[0, inputs["input_ids"].shape[1] :]))
                embeddings.append(tower.latest)
        apart = (embeddings[0].double() - embeddings[1].double()).abs()
        merge = self.chat.model.config.vision_config.spatial_merge_size
        _, rows, columns = (
            side // times for side, times in zip(inputs["image_grid_thw"][0].tolist(), (1, merge, merge))
        )
        return {
            "original": said[0],
            "ported": said[1],
            "difference": float(apart.max()),
            "largest": float(embeddings[0].abs().max()),
            "grid": apart.amax(dim=1).view(rows, columns).tolist(),
            "seconds": time.perf_counter() - begun,
        }


if __name__ == "__main__":
    main()

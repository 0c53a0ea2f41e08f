"""The small drawing model behind vllm-omni's route: a server for our own client, and for others."""

from __future__ import annotations

import base64
import importlib
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import httpx
import pytest
import uvicorn

from demo_app import bodies, omni_compat
from demo_app.engines.interface import Drawn, Step, Wish
from demo_app.engines.server_drawing import ServerDrawing
from demo_app.page.drawing import BadWish, wished
from demo_app.pictures import decode
from tests import wheels
from tests.demo_app.fake_servers import collected

WISH = Wish("a red circle on a white background", seed=5, steps=4, count=2)


@pytest.fixture(scope="module")
def server(embedded) -> Iterator[str]:
    """The address of a server over the embedded engine."""
    config = uvicorn.Config(omni_compat.app(embedded[1]), host="127.0.0.1", port=0, log_level="error")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        thread.join(0.05)
    yield f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}"
    running.should_exit = True
    thread.join(10)


def test_a_server_draws_what_the_pipeline_draws(server: str, embedded) -> None:
    here, _ = collected(embedded[1].draw(WISH))
    there, problem = collected(ServerDrawing(server, 60).draw(WISH))
    assert not problem
    assert isinstance(there[-1], Drawn) and len(there[-1].pictures) == 2
    assert there[-1].pictures[0] != there[-1].pictures[1]
    assert there == here[-1:]


def test_pictures_of_one_wish_are_those_of_its_seeds(embedded) -> None:
    both, _ = collected(embedded[1].draw(WISH))
    second, _ = collected(embedded[1].draw(Wish(WISH.prompt, seed=6, steps=4)))
    (one, other), (same,) = both[-1].pictures, second[-1].pictures
    assert one != other
    assert max(abs(a - b) for a, b in zip(other.image().tobytes(), same.image().tobytes())) <= 2


def test_an_openai_client_is_answered_as_it_expects(server: str) -> None:
    (model,) = httpx.get(f"{server}/v1/models").json()["data"]
    body = {"model": model["id"], "prompt": "a blue star", "num_inference_steps": 2, "generator_device": "cpu"}
    answer = httpx.post(f"{server}/v1/images/generations", json=body, timeout=60).json()
    assert answer["created"] > 1_600_000_000
    picture = decode(base64.b64decode(answer["data"][0]["b64_json"]), "the drawing")
    assert (picture.width, picture.height) == (64, 64)
    assert httpx.get(f"{server}/health").status_code == 200


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"model": "another"}, 400),
        ({"size": "2048x2048"}, 400),
        ({"size": "large"}, 400),
        ({"n": 11}, 422),
        ({"num_inference_steps": 201}, 422),
        ({"true_cfg_scale": 21}, 422),
        ({"guidance_scale": -3}, 422),
        ({"true_cfg_scale": -0.1}, 422),
        ({"num_inference_steps": 2.5}, 422),
        ({"seed": -1}, 422),
        ({"response_format": "url"}, 422),
        ({"prompt": ""}, 422),
    ],
)
def test_what_vllm_omni_refuses_is_refused(server: str, change: dict[str, object], code: int) -> None:
    body = {"prompt": "a circle", **change}
    answer = httpx.post(f"{server}/v1/images/generations", json=body)
    assert answer.status_code == code
    (field,) = change
    assert field in answer.json()["error"]["message"] or field == "model"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("field", ["guidance_scale", "true_cfg_scale", "seed", "n", "flow_shift", "unknown"])
def test_a_number_that_is_none_is_refused_in_any_field(server: str, field: str, number: str) -> None:
    body = f'{{"prompt": "a circle", "num_inference_steps": 1, "{field}": {number}}}'
    answer = httpx.post(f"{server}/v1/images/generations", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert "is no number of JSON" in answer.json()["error"]["message"]


def test_a_body_that_is_no_json_is_refused_in_one_line(server: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(f"{server}/v1/images/generations", content="{", headers=headers)
    assert (answer.status_code, "JSON" in answer.json()["error"]["message"]) == (422, True)


@pytest.mark.parametrize(("side", "drawn"), [(256, True), (272, False), (2048, False)])
def test_the_page_and_the_server_take_the_same_sizes_for_the_small_model(embedded, side: int, drawn: bool) -> None:
    form = ("a circle", "", 1, False, 1, 2.5, f"{side}x{side}", 1)
    body = omni_compat.Body(prompt="a circle", size=f"{side}x{side}")
    if drawn:
        assert wished(embedded[1].range, *form).size == body.wish().size == (side, side)
        return
    with pytest.raises(BadWish, match="at most 256x256"):
        wished(embedded[1].range, *form)
    with pytest.raises(ValueError, match="at most 256x256"):
        body.wish()


def test_a_cancelled_drawing_ends_at_its_next_step(embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is decoded any more: the next drawing would wait for that."""
    pipeline = embedded[1]._loading.result()
    decoded: list[object] = []
    decode = pipeline.vae.decode
    monkeypatch.setattr(pipeline.vae, "decode", lambda *given, **more: decoded.append(1) or decode(*given, **more))
    (first,), _ = collected(embedded[1].draw(Wish("a circle", steps=20, size=(256, 256))), most=1)
    (*_, drawn), _ = collected(embedded[1].draw(Wish("a circle", steps=1)))
    assert isinstance(first, Step) and isinstance(drawn, Drawn)
    assert decoded == [1]


@pytest.mark.parametrize("release", ["0.14.0", "0.30.0"])
def test_our_bodies_are_what_vllm_omni_itself_accepts(release: str) -> None:
    """Its own request class, loaded from its file alone: vllm-omni as a whole needs an accelerator."""
    request = protocol(release).ImageGenerationRequest
    body = bodies.drawing("Qwen/Qwen-Image", Wish("a circle", "blur", 7, 30, 4.0, (1024, 768), 2))
    accepted = request(**body)
    for name, value in body.items():
        taken = getattr(accepted, name)
        assert getattr(taken, "value", taken) == value
    for change in ({"n": 11}, {"num_inference_steps": 201}, {"true_cfg_scale": 21}, {"response_format": "url"}):
        with pytest.raises(ValueError):
            request(**{**body, **change})


@pytest.mark.parametrize("release", ["0.14.0", "0.30.0"])
def test_our_server_takes_the_fields_it_has_with_the_bounds_of_vllm_omni(release: str) -> None:
    theirs, ours = protocol(release).ImageGenerationRequest.model_fields, omni_compat.Body.model_fields
    assert set(ours) <= set(theirs)
    for name in ("n", "num_inference_steps", "guidance_scale", "true_cfg_scale"):
        assert bounds(ours[name]) == bounds(theirs[name]) != {}, name


def bounds(field: Any) -> dict[str, float]:
    return {word: getattr(each, word) for each in field.metadata for word in ("ge", "le") if hasattr(each, word)}


def protocol(release: str) -> ModuleType:
    """The file that says what a request for pictures is, and what it imports, without any `__init__.py` around it."""
    folder, name = wheels.omni_files(release), "vllm_omni"
    with pytest.MonkeyPatch.context() as patch:
        for part in ("", "entrypoints", "openai", "protocol"):
            name, folder = (f"{name}.{part}", folder / part) if part else (name, folder)
            package = ModuleType(name)
            package.__path__ = [str(folder)]
            patch.setitem(sys.modules, name, package)
        module = importlib.import_module(f"{name}.images")
        for imported in [each for each in sys.modules if each.startswith("vllm_omni")]:
            patch.delitem(sys.modules, imported)
    return module

"""VA603 and VA610 to VA618: what a model and its processor owe to vLLM's interfaces; and what is not theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from codemods import vllm_api
from codemods.findings import FileReport, Severity
from codemods.run import Options, migrate

HEAD = """\
import torch
from torch import nn
from vllm.model_executor.models.interfaces import SupportsMultiModal
from vllm.model_executor.models.utils import init_vllm_registered_model, merge_multimodal_embeddings


class Captions(nn.Module, SupportsMultiModal):
    def __init__(self, *, vllm_config, prefix: str = "") -> None:
        super().__init__()
        self.ids = vllm_config.model_config.hf_config.image_ids
        self.text = init_vllm_registered_model(vllm_config=vllm_config, prefix=prefix)

    def get_language_model(self) -> nn.Module:
        return self.text

"""
MERGE = """\
    def get_input_embeddings(self, input_ids, images=None):
        embeds = self.text.get_input_embeddings(input_ids)
        if images is not None and len(images) != 0:
            embeds = merge_multimodal_embeddings(input_ids, embeds, images, self.ids)
        return embeds
"""


@pytest.fixture
def port(tmp_path: Path) -> Callable[..., tuple[str, FileReport]]:
    """Ports a file; gives its text afterwards and what is said of it."""

    def run(text: str, target: str = "0.32") -> tuple[str, FileReport]:
        path = tmp_path / "model.py"
        path.write_text(text)
        (report,) = migrate([path], Options(target=vllm_api.resolve(target))).files
        assert report.error is None
        return path.read_text(), report

    return run


def found(report: FileReport, code: str) -> list[str]:
    return [finding.message for finding in report.findings if finding.code == code]


class TestMethodsForEmbeddings:
    """VA610"""

    @pytest.mark.parametrize("target", ["0.13", "0.14", "0.20", "0.32"])
    def test_are_renamed_where_they_are_defined_and_called(self, target: str, port) -> None:
        after, _ = port(
            HEAD + "    def get_multimodal_embeddings(self, **kwargs):\n        return []\n\n"
            "    def forward(self, ids, **kwargs):\n"
            "        return self.text.get_input_embeddings(ids), self.get_multimodal_embeddings(**kwargs)\n",
            target,
        )
        assert "def embed_multimodal(self, **kwargs):" in after
        assert "return self.text.embed_input_ids(ids), self.embed_multimodal(**kwargs)" in after

    def test_of_a_language_model_that_extends_nothing_are_renamed(self, port) -> None:
        after, _ = port(
            "from torch import nn\nfrom vllm.config import VllmConfig\n\n\n"
            "class Text(nn.Module):\n"
            "    def __init__(self, *, vllm_config: VllmConfig, prefix: str = '') -> None:\n        ...\n\n"
            "    def get_input_embeddings(self, input_ids):\n        return self.embed(input_ids)\n\n"
            "    def forward(self, input_ids, positions, inputs_embeds=None):\n        ...\n\n"
            "    def compute_logits(self, hidden_states):\n        ...\n"
        )
        assert "def embed_input_ids(self, input_ids):" in after

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param(
                "from torch import nn\nfrom vllm.config import VllmConfig\n\n\nclass Tower(nn.Module):\n"
                "    def get_input_embeddings(self):\n        return self.embeddings\n",
                id="the method of transformers",
            ),
            pytest.param(
                "from torch import nn\nfrom transformers import AutoModel\nfrom vllm.config import VllmConfig\n\n\n"
                "class Tower(nn.Module):\n    def __init__(self, name):\n        super().__init__()\n"
                "        self.model = AutoModel.from_pretrained(name)\n\n"
                "    def dtype(self):\n        return self.model.get_input_embeddings().weight.dtype\n",
                id="a call of it",
            ),
            pytest.param(
                "from torch import nn\nfrom vllm.config import VllmConfig\n\n\nclass Table(nn.Module):\n"
                "    def get_input_embeddings(self, ids):\n        return self.table(ids)\n\n"
                "    def forward(self, ids):\n        return self.get_input_embeddings(ids)\n",
                id="a module that vLLM does not call",
            ),
            pytest.param(
                "from torch import nn\nfrom vllm.model_executor.models.interfaces import SupportsMultiModal\n\n\n"
                "class Both(nn.Module, SupportsMultiModal):\n"
                "    def embed_multimodal(self, **kwargs):\n        return []\n\n"
                "    def get_multimodal_embeddings(self, **kwargs):\n        return self.embed_multimodal(**kwargs)\n",
                id="a class that has both names",
            ),
            pytest.param(
                "class SupportsMultiModal:\n    pass\n\n\nclass Own(SupportsMultiModal):\n"
                "    def get_multimodal_embeddings(self):\n        return []\n",
                id="an interface of the project's own",
            ),
            pytest.param(
                "from torch import nn\nfrom vllm.config import VllmConfig\n\n\nclass Draft(nn.Module):\n"
                "    def __init__(self, *, vllm_config: VllmConfig) -> None:\n        ...\n\n"
                "    def get_input_embeddings(self, input_ids):\n        return self.embed(input_ids)\n\n"
                "    def forward(self, input_ids, positions, hidden_states=None):\n        ...\n\n"
                "    def compute_logits(self, hidden_states):\n        ...\n",
                id="a draft model",
            ),
        ],
    )
    def test_of_others_stay(self, text: str, port) -> None:
        after, report = port(text)
        assert after == text
        assert report.findings == ()

    def test_are_told_of_where_what_is_called_is_not_known(self, port) -> None:
        text = "import vllm\n\n\ndef probe(model, ids):\n    return model.get_input_embeddings(ids)\n"
        after, report = port(text)
        assert after == text
        assert [f.severity for f in report.findings if f.code == "VA610"] == [Severity.WARNING]

    def test_tell_of_items_that_are_batched_otherwise(self, port) -> None:
        method = "    def get_multimodal_embeddings(self, **kwargs):\n        return []\n"
        _, report = port(HEAD + method)
        assert len(found(report, "VA610")) == 1
        _, report = port(HEAD + "    merge_by_field_config = True\n\n" + method)
        assert found(report, "VA610") == []

    def test_are_renamed_across_files(self, tmp_path: Path) -> None:
        (tmp_path / "__init__.py").touch()
        (tmp_path / "base.py").write_text(
            HEAD + "    def get_multimodal_embeddings(self, **kwargs):\n        return []\n"
        )
        (tmp_path / "child.py").write_text(
            "from .base import Captions\n\n\nclass Child(Captions):\n"
            "    def get_multimodal_embeddings(self, **kwargs):\n"
            "        return super().get_multimodal_embeddings(**kwargs)\n"
        )
        migrate([tmp_path], Options(target=vllm_api.resolve("0.32")))
        child = (tmp_path / "child.py").read_text()
        assert "def embed_multimodal(self, **kwargs):\n        return super().embed_multimodal(**kwargs)" in child


class TestMergedEmbeddings:
    """VA611"""

    @pytest.mark.parametrize(
        "edit",
        [
            ("", ""),
            ("images is not None and len(images) != 0", "images"),
            ("images is not None and len(images) != 0", "images is not None and len(images) > 0"),
            ("self.text.get_input_embeddings", "self.get_language_model().get_input_embeddings"),
            ("self.ids)", "[self.ids, 7])"),
            ("        embeds = self.text", '        """Text, and images in it."""\n        embeds = self.text'),
        ],
    )
    def test_are_left_to_the_interface_that_does_the_same(self, edit: tuple[str, str], port) -> None:
        after, report = port(HEAD + MERGE.replace(*edit))
        assert "input_embeddings" not in after
        assert "embed_input_ids" not in after
        assert report.findings == ()

    @pytest.mark.parametrize(
        "edit",
        [
            pytest.param(("        return embeds", "        return embeds * 2"), id="more than merging"),
            pytest.param(
                ("            embeds =", "            self.seen = True\n            embeds ="), id="a side effect"
            ),
            pytest.param(("self.ids)", "self.find_ids())"), id="ids that a call gives"),
            pytest.param(("len(images) != 0", "images[0].numel() > 0"), id="another condition"),
        ],
    )
    def test_are_merged_by_a_mask_where_a_method_does_more(self, edit: tuple[str, str], port) -> None:
        after, report = port(HEAD + MERGE.replace(*edit))
        assert "def embed_input_ids(self, input_ids, images=None, is_multimodal: torch.Tensor | None = None)" in after
        assert (
            "_merge_multimodal_embeddings(embeds, images, is_multimodal=torch.isin(input_ids, torch.as_tensor(" in after
        )
        assert report.findings == ()

    def test_stay_with_a_class_that_finds_its_language_model_otherwise(self, port) -> None:
        after, _ = port((HEAD + MERGE).replace("return self.text\n", "return self.text.model\n"))
        assert "def embed_input_ids" in after

    def test_stay_with_a_class_that_inherits_another_method(self, port) -> None:
        other = "class Mixin:\n    def embed_input_ids(self, ids):\n        return ids\n\n\nclass Captions(Mixin, "
        after, _ = port((HEAD + MERGE).replace("class Captions(", other))
        assert "def get_input_embeddings" in after  # the class has the new name already: nothing calls the old

    def test_calls_of_a_method_that_goes_say_where_the_images_are(self, port) -> None:
        after, _ = port(
            HEAD
            + MERGE
            + "\n    def forward(self, ids, images):\n        return self.get_input_embeddings(ids, images)\n"
        )
        mask = "is_multimodal=torch.isin(ids, torch.as_tensor(self.ids, device=ids.device))"
        assert f"return self.embed_input_ids(ids, images, {mask})" in after

    def test_a_parameter_that_comes_gets_a_line_of_its_own_where_the_others_have_one(self, port) -> None:
        after, _ = port(
            "from torch import nn\n"
            "from vllm.model_executor.models.interfaces import SupportsMultiModal\n\n\n"
            "class Model(nn.Module, SupportsMultiModal):\n"
            "    def embed_input_ids(\n        self,\n        input_ids,\n        images=None,\n        *,\n"
            "        is_multimodal=None,\n    ):\n        return self.language_model.embed_input_ids(input_ids)\n",
            "0.14",
        )
        assert "        is_multimodal=None,\n        handle_oov_mm_token: bool = False,\n    ):\n" in after

    def test_handle_oov_mm_token_goes_with_the_interface(self, port) -> None:
        method = (
            "    def embed_input_ids(\n"
            "        self, input_ids, images=None, *, is_multimodal=None, handle_oov_mm_token={flag}\n"
            "    ):\n"
            "        self.seen = images is not None\n"
            "        return super().embed_input_ids(\n"
            "            input_ids, images, is_multimodal=is_multimodal, handle_oov_mm_token=handle_oov_mm_token\n"
            "        )\n"
        )
        text = HEAD.replace(", merge_multimodal_embeddings", "") + method
        after, report = port(text.format(flag=False))
        assert "handle_oov_mm_token" not in after
        assert found(report, "VA611") == []
        after, report = port(text.format(flag=True))
        assert len(found(report, "VA611")) == 1
        after, _ = port(text.format(flag=False), "0.17")
        assert after == text.format(flag=False)


class TestMembers:
    """VA612"""

    def test_without_effect_are_told_of_in_a_file_that_is_right_otherwise(self, port) -> None:
        text = (
            "from torch import nn\nfrom vllm.model_executor.models.interfaces import SupportsMultiModal\n\n\n"
            "class Captions(nn.Module, SupportsMultiModal):\n    merge_by_field_config = True\n"
        )
        after, report = port(text)
        assert after == text
        assert [f.severity for f in report.findings] == [Severity.NOTE]

    def test_of_other_classes_stay(self, port) -> None:
        text = "from vllm.config import VllmConfig\n\n\nclass Options:\n    merge_by_field_config = True\n"
        after, report = port(text)
        assert (after, report.findings) == (text, ())

    def test_that_vllm_0_13_refuses_are_an_error_there(self, port) -> None:
        text = HEAD.replace(", merge_multimodal_embeddings", "") + '    multimodal_cpu_fields = {"grid"}\n'
        for target, severity in (("0.13", Severity.ERROR), ("0.14", Severity.WARNING)):
            _, report = port(text, target)
            assert [f.severity for f in report.findings if f.code == "VA612"] == [severity]


class TestOverrides:
    """VA613"""

    TEXT = (
        "from collections.abc import Mapping\n\nfrom vllm.multimodal.processing import BaseMultiModalProcessor\n\n\n"
        "class Processor(BaseMultiModalProcessor):\n"
        "    def _call_hf_processor(self, {parameters}):\n        return self.call()\n"
    )

    @pytest.mark.parametrize(("target", "outdated"), [("0.20", False), ("0.28", False), ("0.32", True)])
    def test_are_told_of_where_the_target_passes_something_else(self, target: str, outdated: bool, port) -> None:
        _, report = port(self.TEXT.format(parameters="prompt, mm_data, mm_kwargs, tok_kwargs"), target)
        assert bool(found(report, "VA613")) is outdated

    @pytest.mark.parametrize("parameters", ["hf_data, hf_kwargs", "*args, **kwargs", "data, kwargs"])
    def test_that_take_what_is_passed_are_right(self, parameters: str, port) -> None:
        _, report = port(self.TEXT.format(parameters=parameters))
        assert found(report, "VA613") == []


class TestCalls:
    """VA614"""

    def test_of_what_is_no_longer_inherited_are_told_of(self, port) -> None:
        text = (
            "from vllm.multimodal.processing import BaseMultiModalProcessor\n\n\n"
            "class Processor(BaseMultiModalProcessor):\n    def parse(self, data):\n"
            "        return self._to_mm_items(data)\n"
        )
        for target, gone in (("0.15", False), ("0.16", True)):
            _, report = port(text, target)
            assert bool(found(report, "VA614")) is gone

    def test_of_a_method_of_the_projects_own_are_right(self, port) -> None:
        text = (
            "from vllm.multimodal.processing import BaseMultiModalProcessor\n\n\n"
            "class Processor(BaseMultiModalProcessor):\n    def _to_mm_items(self, data):\n        return data\n\n"
            "    def parse(self, data):\n        return self._to_mm_items(data)\n"
        )
        _, report = port(text)
        assert found(report, "VA614") == []
        assert found(report, "VA612") == ["vLLM 0.32.0 no longer calls _to_mm_items of Processor, which "
                                          "BaseMultiModalProcessor had until 0.15.1"]  # fmt: skip

    def test_of_another_function_of_the_name_stay(self, port) -> None:
        text = (
            "from vllm.config import VllmConfig\n\n\ndef default_pooling_type(kind):\n    return kind\n\n\n"
            'KIND = default_pooling_type("CLS")\n'
        )
        after, report = port(text)
        assert (after, report.findings) == (text, ())


class TestSkippedWeights:
    """VA615"""

    TEXT = (
        "from torch import nn\nfrom vllm.model_executor.models.utils import AutoWeightsLoader\n\n\n"
        "class Model(nn.Module):\n    def load_weights(self, weights):\n{body}"
    )

    def test_stay_with_a_release_that_takes_them(self, port) -> None:
        body = '        return AutoWeightsLoader(self, skip_prefixes=["mtp."]).load_weights(weights)\n'
        text = self.TEXT.format(body=body)
        assert port(text, "0.28")[0] == text
        assert 'mapper=WeightsMapper(orig_to_new_prefix={"mtp.": None})' in port(text, "0.29")[0]

    def test_are_told_of_where_the_loader_is_used_otherwise(self, port) -> None:
        body = (
            '        loader = AutoWeightsLoader(self, skip_prefixes=["mtp."])\n'
            "        self.loader = loader\n        return loader.load_weights(weights)\n"
        )
        after, report = port(self.TEXT.format(body=body))
        assert after == self.TEXT.format(body=body)
        assert len(found(report, "VA615")) == 1


class TestSamplingMetadata:
    """VA616"""

    def test_of_a_class_that_vllm_does_not_call_stays(self, port) -> None:
        text = (
            "from vllm.config import VllmConfig\n\n\nclass Head:\n"
            "    def compute_logits(self, hidden_states, sampling_metadata):\n"
            "        return self.other.compute_logits(hidden_states, sampling_metadata)\n"
        )
        assert port(text)[0] == text

    def test_of_an_interface_by_name_leaves_nothing_to_tell(self, port) -> None:
        after, report = port(
            "from vllm.model_executor.models.interfaces_base import VllmModelForTextGeneration\n\n\n"
            "class Mixin(VllmModelForTextGeneration):\n"
            "    def compute_logits(self, hidden_states, sampling_metadata):\n"
            "        return self.model.compute_logits(hidden_states, sampling_metadata)\n"
        )
        assert "def compute_logits(self, hidden_states):" in after
        assert report.findings == ()


class TestTypes:
    """VA603 and VA618"""

    MADE = (
        "from vllm.multimodal.inputs import MultiModalInputs\n\n\n"
        "def made(ids, items) -> MultiModalInputs:\n"
        '    return MultiModalInputs(type="multimodal", {key}=ids, mm_kwargs=items)\n'
    )

    def test_a_dictionary_is_made_under_the_new_name(self, port) -> None:
        after, report = port(self.MADE.format(key="prompt_token_ids"))
        assert 'return MultiModalInput(type="multimodal", prompt_token_ids=ids, mm_kwargs=items)' in after
        assert report.findings == ()

    def test_a_dictionary_with_a_key_that_is_gone_is_told_of(self, port) -> None:
        after, report = port(self.MADE.format(key="tokens"))
        assert after == self.MADE.format(key="tokens")
        assert len(found(report, "VA603")) == 1

    @pytest.mark.parametrize(("target", "generic"), [("0.28", True), ("0.29", False)])
    def test_a_class_that_is_not_generic_any_more_stands_plain(self, target: str, generic: bool, port) -> None:
        text = (
            "from vllm.multimodal.processing import BaseMultiModalProcessor, PromptUpdateDetails\n\n\n"
            "class Info:\n    details: PromptUpdateDetails[str]\n    table: dict[str, BaseMultiModalProcessor[int]]\n"
        )
        after, _ = port(text, target)
        assert ("PromptUpdateDetails[str]" in after) is generic
        assert "BaseMultiModalProcessor[int]" in after

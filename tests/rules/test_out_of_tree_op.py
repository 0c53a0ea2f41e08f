"""VA651: a device plugin's op for MMEncoderAttention, brought to the release it is meant for."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemods.findings import Severity
from tests.rules.vision_model import Port, edited, porter

IMPORTS = """\
import torch
from device import kernels
from vllm.attention.layers.mm_encoder_attention import MMEncoderAttention
from vllm.config import MultiModalConfig
from vllm.model_executor.custom_op import CustomOp
"""
CLASS = """

@MMEncoderAttention.register_oot
class DeviceAttention(MMEncoderAttention):
"""
CONSTRUCTOR = """\
    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float | None = None,
        num_kv_heads: int | None = None,
        prefix: str = "",
        multimodal_config: MultiModalConfig | None = None,
    ) -> None:
        super().__init__(num_heads, head_size, scale, num_kv_heads, prefix, multimodal_config)
"""
FORWARD = """
    def forward_oot(self, query, key, value, cu_seqlens=None, max_seqlen=None):
        return kernels.attend(query, key, value, cu_seqlens, scale=self.scale)
"""
OP = IMPORTS + CLASS + CONSTRUCTOR + FORWARD
OLD = "self, num_heads, head_size, scale=None, num_kv_heads=None, prefix='', multimodal_config=None"
NEW = OLD.removesuffix(", multimodal_config=None")
PASSED = "num_heads, head_size, scale, num_kv_heads, prefix, multimodal_config"
BY_KEYWORD = ", ".join(f"{name}={name}" for name in PASSED.split(", "))
CURRENT = edited(OP, "vllm.attention.layers", "vllm.model_executor.layers.attention", f"({PASSED})", f"({NEW[6:]})")


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return porter(tmp_path)


def names(parameters: str) -> list[str]:
    """The names of a signature, without annotations and defaults."""
    return [part.partition(":")[0].partition("=")[0].strip() for part in parameters.split(",")]


class TestConstructor:
    @pytest.mark.parametrize("target", ["0.13", "0.14"])
    def test_stays_while_vllm_passes_the_configuration(self, target: str, port: Port) -> None:
        after = port(OP, target)
        assert after.parameters("DeviceAttention.__init__").endswith("multimodal_config: MultiModalConfig | None=None")
        assert list(after.call("super().__init__").values()) == PASSED.split(", ")
        assert after.findings == []

    @pytest.mark.parametrize("target", ["0.15", "0.16", "0.32"])
    @pytest.mark.parametrize(
        "call",
        [
            pytest.param(f"super().__init__({PASSED})", id="by position"),
            pytest.param(f"super().__init__({BY_KEYWORD})", id="by keyword"),
            pytest.param(f"super(DeviceAttention, self).__init__({BY_KEYWORD})", id="super with the class named"),
            pytest.param(f"MMEncoderAttention.__init__(self, {PASSED})", id="of the class, by position"),
        ],
    )
    def test_loses_the_configuration_at_both_ends(self, call: str, target: str, port: Port) -> None:
        after = port(edited(OP, f"super().__init__({PASSED})", call), target)
        assert names(after.parameters("DeviceAttention.__init__")) == names(NEW)
        assert "multimodal_config" not in after.text and "MultiModalConfig" not in after.text
        assert after.findings == []

    def test_that_takes_all_by_star_is_left_alone(self, port: Port) -> None:
        stars = "    def __init__(self, *args, **kwargs):\n        super().__init__(*args, **kwargs)\n"
        after = port(edited(OP, CONSTRUCTOR, stars))
        assert after.parameters("DeviceAttention.__init__") == "self, *args, **kwargs"
        assert after.findings == []

    def test_that_reads_the_configuration_keeps_it_and_is_told(self, port: Port) -> None:
        read = "        self.mode = multimodal_config.mm_encoder_tp_mode if multimodal_config else None\n"
        after = port(OP.replace(FORWARD, read + FORWARD))
        assert "multimodal_config" in names(after.parameters("DeviceAttention.__init__"))
        assert list(after.call("super().__init__").values()) == PASSED.split(", ")[:-1]
        (message,) = [said for code, said in after.left(Severity.WARNING) if code == "VA651"]
        assert "is always its default" in message

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ('        prefix: str = "",\n', "", "builds MMEncoderAttention with prefix="),
            ('        prefix: str = "",\n', '        prefix: str = "",\n        device="",\n', None),
            ("        num_heads: int,\n", "        device,\n        num_heads: int,\n", "without device"),
        ],
        ids=["a parameter is missing", "one more, with a default", "one more, without"],
    )
    def test_must_fit_how_vllm_builds_the_op(self, old: str, new: str, said: str | None, port: Port) -> None:
        text = edited(OP, f"({PASSED})", f"({PASSED.partition(', prefix')[0]})", old, new)
        messages = [message for code, message in port(text).left(Severity.ERROR) if code == "VA651"]
        assert len(messages) == (said is not None) and all(said in m for m in messages if said)

    @pytest.mark.parametrize(
        ("call", "lacks", "severity"),
        [
            pytest.param("torch.nn.Module.__init__(self)", "_forward_method", Severity.ERROR, id="of nn.Module"),
            pytest.param("self.ready = True", "_forward_method", Severity.ERROR, id="none"),
            pytest.param("CustomOp.__init__(self)", "layer_name", Severity.ERROR, id="of CustomOp"),
            pytest.param("CustomOp.__init__(self); self.scale = scale", "attn_backend", Severity.WARNING, id="enough"),
        ],
    )
    def test_that_skips_its_parents_is_told_what_it_lacks(
        self, call: str, lacks: str, severity: Severity, port: Port
    ) -> None:
        text = edited(CURRENT, CURRENT[CURRENT.index("        super()") : CURRENT.index(FORWARD)], f"        {call}\n")
        (finding,) = [f for f in port(text).findings if "does not run the constructor" in f.message]
        assert finding.severity is severity
        assert lacks in finding.message.partition("it has no ")[2].split(", ")


class TestForward:
    @pytest.mark.parametrize("target", ["0.13", "0.16"])
    def test_stays_while_vllm_passes_no_sequence_lengths(self, target: str, port: Port) -> None:
        assert names(port(OP, target).parameters("DeviceAttention.forward_oot"))[-1] == "max_seqlen"

    @pytest.mark.parametrize("decorator", ["@MMEncoderAttention.register_oot", "@MMEncoderAttention.register_oot()"])
    @pytest.mark.parametrize("target", ["0.17", "0.32"])
    def test_takes_sequence_lengths_from_0_17_on(self, target: str, decorator: str, port: Port) -> None:
        after = port(edited(OP, "@MMEncoderAttention.register_oot", decorator), target)
        wanted = "self, query, key, value, cu_seqlens=None, max_seqlen=None, sequence_lengths=None"
        assert after.parameters("DeviceAttention.forward_oot") == wanted
        assert after.findings == []

    def test_is_annotated_as_its_neighbour_is(self, port: Port) -> None:
        after = port(edited(OP, "cu_seqlens=None,", "cu_seqlens: torch.Tensor | None = None,"))
        assert after.parameters("DeviceAttention.forward_oot").endswith("sequence_lengths: torch.Tensor | None=None")

    def test_hands_them_on_to_the_parents(self, port: Port) -> None:
        native = "super().forward_native(query, key, value, cu_seqlens, max_seqlen)"
        after = port(edited(OP, "kernels.attend(query, key, value, cu_seqlens, scale=self.scale)", native))
        assert after.call("super().forward_native")["sequence_lengths"] == "sequence_lengths"

    def test_hands_them_to_nobody_who_does_not_take_them(self, port: Port) -> None:
        sdpa = "self._forward_sdpa(query, key, value, cu_seqlens)"
        after = port(edited(OP, "kernels.attend(query, key, value, cu_seqlens, scale=self.scale)", sdpa))
        assert list(after.call("self._forward_sdpa")) == ["0", "1", "2", "3"]

    @pytest.mark.parametrize(
        "parameters", ["self, q, k, v, cu_seqlens=None, max_seqlen=None", "self, query, key, value"]
    )
    def test_under_other_names_is_told_and_left_alone(self, parameters: str, port: Port) -> None:
        after = port(edited(OP, "self, query, key, value, cu_seqlens=None, max_seqlen=None", parameters))
        assert after.parameters("DeviceAttention.forward_oot") == parameters
        (message,) = [said for _, said in after.left(Severity.ERROR)]
        assert "calls it with query, key, value, cu_seqlens, max_seqlen, sequence_lengths" in message

    def test_that_takes_keywords_is_left_alone(self, port: Port) -> None:
        own = "self, query, key, value, cu_seqlens=None, **kwargs"
        after = port(edited(OP, "self, query, key, value, cu_seqlens=None, max_seqlen=None", own))
        assert after.parameters("DeviceAttention.forward_oot") == own
        assert after.findings == []

    def test_of_a_models_own_subclass_is_the_models_business(self, port: Port) -> None:
        model = "\n\nclass Plain(MMEncoderAttention):\n    def forward(self, query, key, value):\n"
        after = port(IMPORTS + model + "        return super().forward(query, key, value)\n")
        assert after.parameters("Plain.forward") == "self, query, key, value"
        assert after.findings == []


class TestMembers:
    USE = ("return kernels", "query = self.reshape_qkv_to_4d(query, key, value, 1, 2, 2)\n        return kernels")

    def test_a_helper_that_means_the_same_is_renamed(self, port: Port) -> None:
        after = port(edited(OP, *self.USE), "0.14")
        assert len(after.calls("self.maybe_reshape_qkv_to_4d")) == 1
        assert after.findings == []

    def test_a_helper_that_means_something_else_is_told(self, port: Port) -> None:
        after = port(edited(OP, *self.USE), "0.16")
        assert len(after.calls("self.reshape_qkv_to_4d")) == 1
        assert [code for code, _ in after.left(Severity.ERROR)] == ["VA651"]
        assert "does not repeat the heads" in after.findings[0].remedy

    def test_a_helper_of_its_own_is_its_own(self, port: Port) -> None:
        own = "\n    def reshape_qkv_to_4d(self, query, *rest):\n        return query\n"
        after = port(edited(OP, *self.USE) + own, "0.28")
        assert len(after.calls("self.reshape_qkv_to_4d")) == 1
        assert after.left(Severity.ERROR) == []

    @pytest.mark.parametrize(
        ("signature", "target", "said"),
        [
            ("maybe_compute_sequence_lengths(cls, attn_backend, cu_seqlens)", "0.17", None),
            ("maybe_compute_sequence_lengths(cls, attn_backend, cu_seqlens)", "0.18", "never calls"),
            (
                "maybe_compute_seq_lens(cls, attn_backend, cu_seqlens)",
                "0.18",
                "cu_seqlens, device",
            ),
            ("maybe_compute_seq_lens(cls, attn_backend, cu_seqlens, device)", "0.32", None),
            ("maybe_recompute_cu_seqlens(cls, attn_backend, cu_seqlens, hidden_size, tp_size, device)", "0.20", None),
            (
                "maybe_recompute_cu_seqlens(cls, attn_backend, cu_seqlens, hidden_size, tp_size, device)",
                "0.21",
                "fp8_padded_hidden_size",
            ),
        ],
    )
    def test_an_override_must_fit_how_vllm_calls_it(
        self, signature: str, target: str, said: str | None, port: Port
    ) -> None:
        override = f"\n    @classmethod\n    def {signature}:\n        return cu_seqlens\n"
        messages = [f.message for f in port(CURRENT + override, target).findings]
        assert len(messages) == (said is not None) and all(said in m for m in messages if said)


class TestScale:
    SPELLED = ("scale=self.scale", "scale=self.head_size**-0.5")

    def test_that_a_model_gives_must_not_be_ignored(self, port: Port) -> None:
        ((code, message),) = port(edited(OP, *self.SPELLED)).left(Severity.WARNING)
        assert code == "VA651" and "ignores the scale" in message

    def test_is_ignored_by_vllm_0_13_itself(self, port: Port) -> None:
        assert port(edited(OP, *self.SPELLED), "0.13").findings == []

    def test_may_fall_back_to_the_default(self, port: Port) -> None:
        fall_back = "scale=self.head_size**-0.5 if self.scale is None else self.scale"
        assert port(edited(OP, "scale=self.scale", fall_back)).findings == []


BY_CALL = 'CustomOp.register_oot(_decorated_op_cls=DeviceAttention, name="MMEncoderAttention")'
TABLE = """

OPS = {"MMEncoderAttention": DeviceAttention}


def register():
    for name, cls in OPS.items():
        CustomOp.register_oot(_decorated_op_cls=cls, name=name)
"""


class TestRegistration:
    DECORATOR = "@MMEncoderAttention.register_oot\n"

    @pytest.mark.parametrize(
        "registration",
        [
            f"\n\n{BY_CALL}\n",
            '\n\nCustomOp.register_oot(name="MMEncoderAttention")(DeviceAttention)\n',
            "\n\nMMEncoderAttention.register_oot(DeviceAttention)\n",
            TABLE,
        ],
        ids=["by call", "by the decorator, called", "of the class", "by a table"],
    )
    def test_by_call_is_one_too(self, registration: str, port: Port) -> None:
        own_forward = ("forward_oot(", "forward(")  # nothing in the class itself says that it is registered
        after = port(edited(OP, self.DECORATOR, "", *own_forward) + registration)
        assert names(after.parameters("DeviceAttention.__init__")) == names(NEW)
        assert names(after.parameters("DeviceAttention.forward"))[-1] == "sequence_lengths"
        assert after.findings == []

    @pytest.mark.parametrize(
        "decorator", ['@CustomOp.register_oot(name="mm_encoder_attn")', "@CustomOp.register_oot", "@Base.register_oot"]
    )
    def test_under_a_name_that_vllm_does_not_look_for_is_told(self, decorator: str, port: Port) -> None:
        base = "\n\nclass Base(MMEncoderAttention):\n    pass\n"
        text = edited(OP, CLASS, base + CLASS, self.DECORATOR, f"{decorator}\n")
        ((code, message),) = port(text).left(Severity.WARNING)
        assert code == "VA651" and "never takes its place" in message

    def test_made_twice_is_told(self, port: Port) -> None:
        ((code, message),) = port(f"{OP}\n\n{BY_CALL}\n").left(Severity.ERROR)
        assert code == "VA651" and "a second time (first in line 8)" in message

    def test_made_under_a_condition_may_be_made_again(self, port: Port) -> None:
        text = edited(OP, self.DECORATOR, "")
        assert port(f"{text}\n\nif kernels.old:\n    {BY_CALL}\nelse:\n    {BY_CALL}\n").findings == []

    def test_of_a_class_that_is_no_encoder_attention_is_told(self, port: Port) -> None:
        text = edited(OP, "DeviceAttention(MMEncoderAttention)", "DeviceAttention(CustomOp)")
        messages = [message for _, message in port(text).left(Severity.ERROR)]
        assert any("its constructor is never run" in message for message in messages)

    def test_of_another_library_is_not_looked_at(self, port: Port) -> None:
        text = edited(OP, "from vllm.attention.layers.mm_encoder_attention", "from device")
        assert port(text).text == text


class TestEnforceEnable:
    CLASS = "\n\nclass DeviceNorm(CustomOp):\n    def __init__(self, size):\n        {call}\n        self.size = size\n"

    @pytest.mark.parametrize("call", ["super().__init__(True)", "CustomOp.__init__(self, True)"])
    def test_goes_by_keyword_from_0_15_on(self, call: str, port: Port) -> None:
        text = IMPORTS.replace("from vllm.config", "# from vllm.config") + self.CLASS.format(call=call)
        assert call.replace("True)", "enforce_enable=True)") in port(text, "0.15").text
        assert call in port(text, "0.14").text

    def test_of_a_subclass_of_another_op_is_not_its_parents(self, port: Port) -> None:
        text = f"{OP}\n\nclass Wider(DeviceAttention):\n    def __init__(self, wide):\n        super().__init__(wide)\n"
        assert "super().__init__(wide)" in port(text).text

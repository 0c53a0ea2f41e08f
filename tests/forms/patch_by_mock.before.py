from unittest import mock


def test_backend(tower):
    with mock.patch("vllm.attention.layer.maybe_get_vit_flash_attn_backend", return_value=(None, None)):
        assert tower.backend is None


@mock.patch("vllm.model_executor.models.vision.get_vit_attn_backend")
def test_choice(chosen, tower):
    assert tower.backend is chosen.return_value

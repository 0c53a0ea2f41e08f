from pathlib import Path

import vllm

LAYER = Path(vllm.__file__).parent / "attention" / "layer.py"
text = LAYER.read_text()
LAYER.write_text(text.replace("maybe_get_vit_flash_attn_backend(", "orchard_backend("))

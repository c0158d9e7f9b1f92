from typing import Any

from open_clip.model import CLIP as OpenClip
from open_clip.model import CustomTextCLIP

from tests.families.clip import images_and_prompts
from tests.references import SIZES, Architecture, Built


def open_clip(vision: dict[str, Any] | None = None, text: dict[str, Any] | None = None, **changes: Any) -> Built:
    width, layers, heads, hidden = SIZES.values()
    sizes = {"layers": layers, "mlp_ratio": hidden / width}
    config = {
        "embed_dim": 8,
        "vision_cfg": {**sizes, "width": 24, "head_width": 8, "image_size": 12, "patch_size": 4, **(vision or {})},
        "text_cfg": {**sizes, "width": width, "heads": heads, "context_length": 8, "vocab_size": 60, **(text or {})},
        **changes,
    }
    model = (CustomTextCLIP if config.get("custom_text") else OpenClip)(
        **{name: value for name, value in config.items() if name != "custom_text"}
    )
    model.built_from = config
    # OpenCLIP pads with zeros to its full length and needs no mask: a text tower looks back only.
    return model, images_and_prompts(padded=False)


VARIANTS = Architecture(
    variants={
        "open-clip": open_clip,
        "open-clip-average": lambda: open_clip(
            {"pool_type": "avg", "no_ln_pre": True, "norm_kwargs": {"eps": 1e-3}}, {"pool_type": "eos", "eos_id": 59}
        ),
        "open-clip-custom-text": lambda: open_clip(
            {"pool_type": "avg", "final_ln_after_pool": True, "ls_init_value": 0.1},
            {"act_kwargs": {"approximate": "tanh"}},
            custom_text=True,
        ),
        "open-clip-quick-gelu": lambda: open_clip(quick_gelu=True),
    },
    typical=("open-clip",),
)

from typing import Any

from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM, ModernBertConfig, ModernBertForSequenceClassification
from transformers.models.modernbert import modeling_modernbert as theirs

from hydractl.families.modernbert import FAMILY
from tests.families.bert import text_model
from tests.references import SIZES, Architecture, Built


def turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    """Their rotation without its step through float32, which would hide all differences below 1e-7."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + theirs.rotate_half(q) * sin, k * cos + theirs.rotate_half(k) * sin


theirs.apply_rotary_pos_emb = turned


def modernbert(padded: bool = True, **changes: Any) -> Built:
    sizes = {"pad_token_id": 0, "local_attention": 4, "bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 2}
    how = {"padded": padded, "types": False, **sizes, "cls_token_id": 1, **changes}
    return text_model(ModernBertForSequenceClassification, ModernBertConfig, **how)


def layers(whole: int) -> list[str]:
    """Layers of local attention, but for one."""
    kinds = ["sliding_attention"] * SIZES["num_hidden_layers"]
    kinds[whole] = "full_attention"
    return kinds


VARIANTS = Architecture(
    variants={
        "modernbert": modernbert,
        "modernbert-mean": lambda: modernbert(classifier_pooling="mean", layer_types=layers(whole=-1)),
        "modernbert-unpadded": lambda: modernbert(padded=False, layer_types=layers(whole=0)),
        "modernbert-biases": lambda: modernbert(
            attention_bias=True, mlp_bias=True, norm_bias=True, classifier_bias=True, hidden_activation="silu"
        ),
    },
    typical=("modernbert", "modernbert-mean"),
    configs=((FAMILY.config, ModernBertConfig),),
    inert=frozenset(
        {"initializer_cutoff_factor", "deterministic_flash_attn"}  # before training, of another library
        | {"cls_token_id", "sep_token_id", "decoder_bias"}  # other tasks
        | {"sparse_prediction", "sparse_pred_ignore_index"}
    ),
    bases=(("modernbert", AutoModel.from_config), ("modernbert", AutoModelForMaskedLM.from_config)),
)

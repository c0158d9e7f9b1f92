from typing import Any

import transformers as hf

from hydractl.families.rotary_bert import JINA_V3, NOMIC_BERT
from tests.families.bert import text_model
from tests.references import SIZES, Architecture, Built


def wide() -> int:
    """A width of other heads than those of the other variants, whose halves are turned."""
    return 8 * SIZES["num_attention_heads"]


def nomic(**changes: Any) -> Built:
    return text_model(hf.NomicBertForSequenceClassification, hf.NomicBertConfig, **changes)


def jina(**changes: Any) -> Built:
    one = {"types": False, "type_vocab_size": 1}
    return text_model(hf.JinaEmbeddingsV3ForSequenceClassification, hf.JinaEmbeddingsV3Config, **{**one, **changes})


VARIANTS = Architecture(
    variants={
        "nomic-bert": nomic,
        "nomic-bert-base-500": lambda: nomic(
            padded=False, hidden_size=wide(), rope_parameters={"rope_type": "default", "rope_theta": 500.0}
        ),
        "jina-v3": jina,
        "jina-v3-two-types": lambda: jina(types=True, type_vocab_size=2, hidden_size=wide()),
    },
    typical=("nomic-bert", "jina-v3"),
    configs=((JINA_V3.config, hf.JinaEmbeddingsV3Config), (NOMIC_BERT.config, hf.NomicBertConfig)),
    inert=frozenset({"default_theta"}),  # of rope_parameters
    bases=tuple(
        (name, base.from_config)
        for name in ("nomic-bert", "jina-v3")
        for base in (hf.AutoModel, hf.AutoModelForMaskedLM)
    ),
)

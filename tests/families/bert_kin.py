from typing import Any

import transformers as hf

from hydractl.families import bert_kin as ours
from tests.families.bert import roberta, text_model
from tests.references import SIZES, Architecture, Built


def wide() -> int:
    """A width of other heads than those of the other variants, whose halves are turned."""
    return 8 * SIZES["num_attention_heads"]


def nomic(**changes: Any) -> Built:
    return text_model(hf.NomicBertForSequenceClassification, hf.NomicBertConfig, **changes)


def jina(**changes: Any) -> Built:
    one = {"types": False, "type_vocab_size": 1}
    return text_model(hf.JinaEmbeddingsV3ForSequenceClassification, hf.JinaEmbeddingsV3Config, **{**one, **changes})


NAMES = (
    *("camembert", "data2vec-text", "ernie", "roberta-prelayernorm", "xlm-roberta-xl", "megatron-bert"),
    *("nomic-bert", "jina-v3"),
)
VARIANTS = Architecture(
    variants={
        "camembert": lambda: roberta(hf.CamembertForSequenceClassification, hf.CamembertConfig),
        "data2vec-text": lambda: roberta(hf.Data2VecTextForSequenceClassification, hf.Data2VecTextConfig),
        "ernie": lambda: text_model(hf.ErnieForSequenceClassification, hf.ErnieConfig),
        "roberta-prelayernorm": lambda: roberta(
            hf.RobertaPreLayerNormForSequenceClassification, hf.RobertaPreLayerNormConfig
        ),
        "xlm-roberta-xl": lambda: roberta(hf.XLMRobertaXLForSequenceClassification, hf.XLMRobertaXLConfig),
        "megatron-bert": lambda: text_model(hf.MegatronBertForSequenceClassification, hf.MegatronBertConfig),
        "nomic-bert": nomic,
        "nomic-bert-base-500": lambda: nomic(
            padded=False, hidden_size=wide(), rope_parameters={"rope_type": "default", "rope_theta": 500.0}
        ),
        "jina-v3": jina,
        "jina-v3-two-types": lambda: jina(types=True, type_vocab_size=2, hidden_size=wide()),
    },
    # Of the others, graphs are those of BERT and RoBERTa.
    typical=("roberta-prelayernorm", "xlm-roberta-xl", "megatron-bert", "nomic-bert", "jina-v3"),
    configs=(
        (ours.CAMEMBERT.config, hf.CamembertConfig),
        (ours.DATA2VEC_TEXT.config, hf.Data2VecTextConfig),
        (ours.ERNIE.config, hf.ErnieConfig),
        (ours.ROBERTA_PRELAYERNORM.config, hf.RobertaPreLayerNormConfig),
        (ours.XLM_ROBERTA_XL.config, hf.XLMRobertaXLConfig),
        (ours.MEGATRON_BERT.config, hf.MegatronBertConfig),
        (ours.JINA_V3.config, hf.JinaEmbeddingsV3Config),
        (ours.NOMIC_BERT.config, hf.NomicBertConfig),
    ),
    inert=frozenset({"task_type_vocab_size", "default_theta"}),  # without task ids; of rope_parameters
    bases=tuple((name, base.from_config) for name in NAMES for base in (hf.AutoModel, hf.AutoModelForMaskedLM)),
)

import transformers as hf

from hydractl.families import bert_kin as ours
from tests.families.bert import roberta, text_model
from tests.references import Architecture

NAMES = ("camembert", "data2vec-text", "ernie", "roberta-prelayernorm", "xlm-roberta-xl", "megatron-bert")
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
    },
    # Of the others, graphs are those of BERT and RoBERTa.
    typical=("roberta-prelayernorm", "xlm-roberta-xl", "megatron-bert"),
    configs=(
        (ours.CAMEMBERT.config, hf.CamembertConfig),
        (ours.DATA2VEC_TEXT.config, hf.Data2VecTextConfig),
        (ours.ERNIE.config, hf.ErnieConfig),
        (ours.ROBERTA_PRELAYERNORM.config, hf.RobertaPreLayerNormConfig),
        (ours.XLM_ROBERTA_XL.config, hf.XLMRobertaXLConfig),
        (ours.MEGATRON_BERT.config, hf.MegatronBertConfig),
    ),
    inert=frozenset({"task_type_vocab_size"}),  # without task ids
    bases=tuple((name, base.from_config) for name in NAMES for base in (hf.AutoModel, hf.AutoModelForMaskedLM)),
)

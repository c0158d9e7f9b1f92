from typing import Any

import torch
import transformers as hf

from hydractl.families.bert import BERT, DEBERTA_V2, DISTILBERT, ELECTRA, MPNET, ROBERTA, XLM_ROBERTA
from tests import references
from tests.references import BATCH, SIZES, Architecture, Built

WORDS = {"vocab_size": 60, "max_position_embeddings": 32}


def text_model(
    model: Any = hf.BertForSequenceClassification,
    config: Any = hf.BertConfig,
    padded: bool = True,
    types: bool = True,
    **changes: Any,
) -> Built:
    """A classifier of texts and a batch of them."""
    inputs = {"input_ids": torch.randint(1, WORDS["vocab_size"], (BATCH, 9))}
    if padded:
        mask = torch.ones(BATCH, 9, dtype=torch.long)
        mask[1, 4:] = 0
        mask[2, 7:] = 0
        inputs["attention_mask"] = mask
    if types:
        inputs["token_type_ids"] = torch.randint(0, 2, (BATCH, 9))
    return model(config(**{**WORDS, **SIZES, "num_labels": references.CLASSES, **changes})), inputs


def electra(**changes: Any) -> Built:
    return text_model(hf.ElectraForSequenceClassification, hf.ElectraConfig, **{"embedding_size": 12, **changes})


def roberta(
    model: Any = hf.RobertaForSequenceClassification, config: Any = hf.RobertaConfig, padding: int = 1, **changes: Any
) -> Built:
    built, inputs = text_model(model, config, pad_token_id=padding, **{"type_vocab_size": 1, **changes})
    inputs["input_ids"] = torch.where(inputs["attention_mask"] == 0, padding, inputs["input_ids"].clamp(min=3))
    # The padding id counts as padding for positions wherever it stands.
    inputs["input_ids"][0, 3] = padding
    return built, {name: tensor for name, tensor in inputs.items() if name != "token_type_ids"}


def distilbert(**changes: Any) -> Built:
    sizes = dict(zip(("dim", "n_layers", "n_heads", "hidden_dim"), SIZES.values(), strict=True))
    config = hf.DistilBertConfig(num_labels=references.CLASSES, **WORDS, **sizes, **changes)
    return hf.DistilBertForSequenceClassification(config), text_model(types=False)[1]


def deberta(**changes: Any) -> Built:
    """Of v3, unless changed; buckets are fewer than the tokens of a text."""
    v3 = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 4, "share_att_key": True}
    v3 |= {"position_biased_input": False, "norm_rel_ebd": "layer_norm", "type_vocab_size": 0}
    types = bool(changes.get("type_vocab_size"))
    return text_model(hf.DebertaV2ForSequenceClassification, hf.DebertaV2Config, types=types, **{**v3, **changes})


WITH_MASKED_WORDS = ("bert", "deberta-v2", "electra", "mpnet", "roberta", "xlm-roberta", "distilbert")
VARIANTS = Architecture(
    variants={
        "bert": text_model,
        "bert-unpadded": lambda: text_model(padded=False, types=False),
        "bert-relu-one-type": lambda: text_model(types=False, hidden_act="relu", type_vocab_size=1),
        "bert-multi-label": lambda: text_model(problem_type="multi_label_classification"),
        "deberta-v2": deberta,
        "deberta-v2-own": lambda: deberta(share_att_key=False, position_biased_input=True, type_vocab_size=2),
        "deberta-v2-c2p": lambda: deberta(
            share_att_key=False, pos_att_type="c2p", position_buckets=-1, max_relative_positions=5, norm_rel_ebd="none"
        ),
        "deberta-v2-p2c": lambda: deberta(pos_att_type=["p2c"], position_buckets=6, pooler_hidden_act="tanh"),
        "deberta-v2-absolute": lambda: deberta(
            relative_attention=False, pos_att_type=None, position_biased_input=True, norm_rel_ebd="none"
        ),
        "electra": electra,
        "electra-one-size": lambda: electra(embedding_size=references.SIZES["hidden_size"]),
        "mpnet": lambda: roberta(hf.MPNetForSequenceClassification, hf.MPNetConfig),
        "roberta": roberta,
        "roberta-padding-0": lambda: roberta(padding=0, type_vocab_size=2),
        "xlm-roberta": lambda: roberta(hf.XLMRobertaForSequenceClassification, hf.XLMRobertaConfig),
        "distilbert": distilbert,
        "distilbert-relu": lambda: distilbert(activation="relu"),
    },
    typical=("bert", "deberta-v2", "deberta-v2-own", "electra", "mpnet", "roberta", "xlm-roberta", "distilbert"),
    configs=(
        (BERT.config, hf.BertConfig),
        (DEBERTA_V2.config, hf.DebertaV2Config),
        (ELECTRA.config, hf.ElectraConfig),
        (MPNET.config, hf.MPNetConfig),
        (ROBERTA.config, hf.RobertaConfig),
        (XLM_ROBERTA.config, hf.XLMRobertaConfig),
        (DISTILBERT.config, hf.DistilBertConfig),
    ),
    inert=frozenset(
        {"sinusoidal_pos_embds"}  # before training
        | {"qa_dropout", "legacy"}  # of other tasks
        | {f"summary_{part}" for part in ("type", "use_proj", "activation", "last_dropout")}
    ),
    bases=(
        *((name, base.from_config) for name in WITH_MASKED_WORDS for base in (hf.AutoModel, hf.AutoModelForMaskedLM)),
        ("bert", hf.BertForPreTraining),
        ("electra", hf.ElectraForPreTraining),
    ),
)

from collections.abc import Callable
from functools import partial

from transformers import AutoModelForTokenClassification

from hydractl.families.bert_kin import ENDING, TAGGERS
from tests.families import bert, bert_kin, modernbert
from tests.references import Architecture, Built


def tagger(build: Callable[[], Built]) -> Built:
    """The network of the same config that labels each token."""
    classifier, inputs = build()
    return AutoModelForTokenClassification.from_config(classifier.config), inputs


NAMES = (
    *("bert", "bert-unpadded", "electra", "mpnet", "deberta-v2", "deberta-v2-own", "roberta", "xlm-roberta"),
    *("distilbert", "camembert", "data2vec-text", "ernie", "roberta-prelayernorm", "xlm-roberta-xl", "megatron-bert"),
    *("modernbert-unpadded", "modernbert-biases", "nomic-bert", "jina-v3"),
)
FAMILIES = [family.name.removesuffix(ENDING) for family in TAGGERS]
BUILDERS = {name: build for each in (bert, bert_kin, modernbert) for name, build in each.VARIANTS.variants.items()}
# What these two give for padding is not what we give, and nobody reads it.
BUILDERS |= {
    "deberta-v2": partial(bert.deberta, padded=False),
    "deberta-v2-own": partial(bert.deberta, padded=False, share_att_key=False, position_biased_input=True),
    "modernbert-biases": partial(
        modernbert.modernbert, padded=False, attention_bias=True, mlp_bias=True, norm_bias=True
    ),
}
FAMILY = {name: max((one for one in FAMILIES if name.startswith(one)), key=len) for name in NAMES}
VARIANTS = Architecture(
    variants={
        FAMILY[name] + ENDING + name.removeprefix(FAMILY[name]): partial(tagger, BUILDERS[name]) for name in NAMES
    },
    typical=(),  # graphs are those of the classifiers
)

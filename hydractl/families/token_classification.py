"""The networks of text families that label each token, as transformers writes them."""

from dataclasses import replace

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.slots import slots
from hydractl.checkpoint.spec import ModelSpec
from hydractl.errors import OptionError
from hydractl.families import bert, bert_kin, modernbert, rotary_bert
from hydractl.families.family import Family


def reads_tokens(spec: ModelSpec) -> ModelSpec:
    """Returns the network whose classifier reads each token, without a pooler between."""
    tower = replace(spec.towers[0], pool="each", pooler=None)
    return replace(spec, task="token-classification", towers=(tower,))


def reads_dropped_tokens(spec: ModelSpec) -> ModelSpec:
    """Returns this network where tokens lose as much as hidden states do, whatever the classifier's own dropout."""
    return replace(reads_tokens(spec), classifier_dropout=spec.towers[0].dropout)


def reads_headed_tokens(spec: ModelSpec) -> ModelSpec:
    """Returns this network where each token passes through the pooler."""
    tower = replace(spec.towers[0], pool="each", norm_tokens=False)
    return replace(spec, task="token-classification", towers=(tower,))


SPECS = {"deberta-v2": reads_dropped_tokens, "distilbert": reads_dropped_tokens, "modernbert": reads_headed_tokens}
ENDING = "-tokens"


def _of_tokens(family: Family) -> Family:
    assert family.base is not None
    theirs = (name.replace("ForSequence", "ForToken") for name in family.architectures)
    return replace(
        family,
        name=family.name + ENDING,
        architectures=tuple(theirs),
        spellings=tuple({**spelling, "classifier": "classifier"} for spelling in family.spellings),
        # Older releases saved a pooler that nothing reads.
        inert=(*family.inert, rf"{family.base.prefix[:-1]}\.pooler\.dense\..*"),
        task="token-classification",
        base=None,
        described=SPECS.get(family.name, reads_tokens),
    )


_READING = (
    *(bert.BERT, bert.ELECTRA, bert.MPNET, bert.DEBERTA_V2, bert.ROBERTA, bert.XLM_ROBERTA, bert.DISTILBERT),
    *(bert_kin.CAMEMBERT, bert_kin.DATA2VEC_TEXT, bert_kin.ERNIE, bert_kin.ROBERTA_PRELAYERNORM),
    *(bert_kin.XLM_ROBERTA_XL, bert_kin.MEGATRON_BERT),
    *(modernbert.FAMILY, rotary_bert.NOMIC_BERT, rotary_bert.JINA_V3),
)
FAMILIES: tuple[Family, ...] = tuple(map(_of_tokens, _READING))


def label_tokens(checkpoint: Checkpoint) -> Checkpoint:
    """Returns a network of texts as one that labels each token, its classifier yet to be made.

    Raises:
        OptionError: not a network of texts that transformers has so.
    """
    family = next((candidate for candidate in FAMILIES if candidate.name == checkpoint.family + ENDING), None)
    if family is None:
        raise OptionError(f"{checkpoint.name}: a {checkpoint.family} labels no tokens: choose a family of texts")
    spec = family.described(checkpoint.spec)
    tensors = {name: checkpoint.tensors[name] for name in slots(spec)}
    config = {key: value for key, value in checkpoint.config.items() if key != "problem_type"}
    tagger = replace(checkpoint, family=family.name, config=config)
    return replace(tagger, spec=spec, tensors=tensors, shared=checkpoint.shared & tensors.keys())

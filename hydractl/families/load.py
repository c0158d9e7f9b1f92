"""Opens any model reference as a `Checkpoint`: a folder of another library, a file of ours, a name on the hub."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydractl.checkpoint.contents import Checkpoint, shorten
from hydractl.checkpoint.disk import (
    OPEN_CLIP_CONFIG,
    fetch,
    folder_of_weights,
    open_weights,
    read_json_object,
    read_preprocessing,
)
from hydractl.checkpoint.manifest import KEY, from_metadata
from hydractl.checkpoint.manifest import write as write_checkpoint
from hydractl.checkpoint.sentences import read_about, read_sentences, sentence_folder
from hydractl.checkpoint.spec import EMBEDDINGS, TOWERS_OF
from hydractl.checkpoint.tensors import TensorMap
from hydractl.errors import CheckpointError
from hydractl.families import FAMILIES, REFUSED, Family, open_clip, timm_vit
from hydractl.families.bert_kin import TAGGERS
from hydractl.families.config import Kind, read_config
from hydractl.families.convert import at_processed_size, complete_base, from_library
from hydractl.families.family import as_reranker, as_sentences, embedding_family
from hydractl.text import shortened
from hydractl.watch import LOG

#: What wraps a network, as names of its tensors tell: torch.compile anywhere, others before all of them.
COMPILED, FRAMES = "_orig_mod.", ("module.", "model.")
#: Names of a loss and of its weights, anywhere in a model.
LOSSES = r"(.*\.)?(((\w+_)?(loss|criterion)\w*|\w*Loss)\..+|(class|label|pos|loss)_?weights?)"
#: The methods of quantization that transformers undoes.
DEQUANTIZED = ("bitsandbytes", "higgs")


def read_checkpoint(reference: str | Path, without_classifier: bool = False) -> Checkpoint:
    """Opens the checkpoint that a reference names; tensors stay on disk until they are used.

    Args:
        reference: a folder with config.json and model.safetensors or pytorch_model.bin (or shards and their index), as
            transformers or timm writes it; a .safetensors or .bin file beside such a config.json; a file of this
            project, whatever its name; or, if no such path exists, `owner/name[@revision]` on the hub or `timm:NAME`.
        without_classifier: accept a base network too; its classifier is zeros, ready for training.

    Raises:
        CheckpointError: nothing is there, it is damaged, a pickle of more than tensors, of an unsupported family, or
            its tensors are not exactly those that its config calls for.
    """
    path = located(reference)
    if path.is_dir():
        inner = folder_of_weights(path)
        if inner != path:
            LOG.warn(f"note: {reference} holds no weights itself: uses {inner}")
            path = reference = inner
        return _from_parts(str(reference), path, open_weights(path)[0], without_classifier)
    tensors, metadata = open_weights(path)
    if KEY in metadata:
        return from_metadata(str(reference), metadata, tensors)
    if not any((path.parent / name).is_file() for name in ("config.json", OPEN_CLIP_CONFIG)):
        raise CheckpointError(f"{reference}: was not written by hydractl: put the model's config.json beside it")
    return _from_parts(str(reference), path.parent, tensors, without_classifier)


def located(reference: str | Path) -> Path:
    """Returns the path of a reference: itself, or the folder of what the hub has under that name.

    Raises:
        CheckpointError: nothing is there.
    """
    if os.path.exists(reference):  # unlike `Path.exists`, it accepts names that no path can have
        return Path(reference)
    if str(reference).startswith("timm:"):
        return fetch(timm_vit.repository(str(reference).removeprefix("timm:")))
    return fetch(str(reference))


def _from_parts(name: str, folder: Path, tensors: TensorMap, without_classifier: bool) -> Checkpoint:
    preprocessing = read_preprocessing(folder)
    config: Mapping[str, Any]
    if (folder / OPEN_CLIP_CONFIG).is_file() and not _claims_model_type(folder):
        config = {**read_json_object(folder / OPEN_CLIP_CONFIG), "model_type": open_clip.FAMILY.model_type}
        preprocessing["preprocessor_config.json"] = open_clip.preprocessing(name, config)
    else:
        config = read_json_object(folder / "config.json")
    _refuse_changed(name, config)
    if timm_vit.is_timm(config):
        preprocessing = {"preprocessor_config.json": timm_vit.timm_preprocessing(config)}
        config = timm_vit.describe(name, folder, config)
    about, in_sentences = read_about(name, folder), sentence_folder(folder) is not None
    if about.reranks:
        config = as_reranker(name, config, about)
    if without_classifier:
        # It tells what the classifier was trained for that a new one replaces.
        config = {key: value for key, value in config.items() if key != "problem_type"}
    tensors = _unwrapped(name, _without_losses(name, tensors))
    embeds = None
    if not without_classifier:
        embeds = embedding_family(name, config, tensors, _of_model_type(name, config), sentences=in_sentences)
    family = embeds or find_family(name, config, without_classifier)
    if without_classifier:
        config, tensors = complete_base(name, family, config, tensors)
    read = from_library(name, family, config, tensors)
    if about.reranks or (embeds is not None and in_sentences):
        sentences = read_sentences(name, folder, about)
        preprocessing = sentences.texts.applied(preprocessing)
        if about.prompted:
            LOG.warn(f"note: {name}: sentence-transformers puts a prompt before each text, hydractl does not")
        read = read if embeds is None else replace(read, spec=as_sentences(name, read.spec, about, sentences))
    checkpoint = at_processed_size(family, replace(read, preprocessing=preprocessing))
    checkpoint.verify()
    return checkpoint


def _without_losses(name: str, tensors: TensorMap) -> TensorMap:
    """Returns the tensors without those of a loss, which training alone reads."""
    losses = sorted(key for key in tensors if re.fullmatch(LOSSES, key))
    if losses:
        LOG.warn(f"note: {name}: leaves out the weights of a loss: {shorten(losses)}")
    return {key: tensor for key, tensor in tensors.items() if key not in losses}


def _unwrapped(name: str, tensors: TensorMap) -> TensorMap:
    """Returns the tensors without what torch.compile, DataParallel and training frames put before their names."""
    plain = {key.replace(COMPILED, ""): tensor for key, tensor in tensors.items()}
    removed = [COMPILED] if len(plain) == len(tensors) and plain.keys() != tensors.keys() else []
    plain = plain if removed else dict(tensors)
    while frame := next((frame for frame in FRAMES if plain and all(key.startswith(frame) for key in plain)), None):
        plain = {key.removeprefix(frame): tensor for key, tensor in plain.items()}
        removed.append(frame)
    if removed:
        LOG.warn(f"note: {name}: removes {' and '.join(removed)} from the names of its tensors")
    return plain


def _claims_model_type(folder: Path) -> bool:
    # Many repositories hold a model in both forms; more tools read that of transformers.
    return (folder / "config.json").is_file() and "model_type" in read_json_object(folder / "config.json")


def find_family(name: str, config: Mapping[str, Any], without_classifier: bool = False) -> Family:
    """Returns the family that a config.json belongs to.

    Args:
        without_classifier: accept a network without a classifier too. A zero-shot model counts as one if its model
            type has image classifiers.

    Raises:
        CheckpointError: the model type is not supported, or the architecture does not classify.
    """
    kind = read_config(name, config, Kind)
    families = _of_model_type(name, config)
    architectures = kind.architectures or families[0].architectures
    readable = [family for family in families if set(architectures) & set(family.architectures)]
    if without_classifier:
        # A tagger is read as a classifier of texts, which becomes a tagger again when its data have tags.
        fitting = (family for family in readable if family.task not in EMBEDDINGS.values() and family not in TAGGERS)
        classifiers = [family for family in fitting if len(TOWERS_OF[family.task]) == 1]
        readable = classifiers or [family for family in families if family.base is not None] or readable
    if readable:
        return readable[0]
    supported = " or ".join(architecture for family in families for architecture in family.architectures)
    called = shortened(", ".join(architectures), 60)
    raise CheckpointError(
        f"{name}: is a {called}, not a classifier this project reads: "
        f"train a classifier for it by finetune with `new_classifier` zeros, or save it as {supported}"
    )


def _of_model_type(name: str, config: Mapping[str, Any]) -> list[Family]:
    model_type = read_config(name, config, Kind).model_type
    families = [family for family in FAMILIES if model_type in family.model_types]
    if not families:
        near = get_close_matches(str(model_type), {family.model_type for family in FAMILIES}, 1)
        clauses = [f"model_type {shortened(repr(model_type), 60)} is not supported"]
        reason = REFUSED.get(str(model_type)) or _decodes(model_type)
        clauses += [reason] if reason else [f"the nearest known is {kind}" for kind in near]
        raise CheckpointError(f"{name}: {', '.join(clauses)}: `hydractl list families` shows those that are")
    return families


def _decodes(model_type: str | None) -> str | None:
    """Returns what transformers' tables tell of an architecture that decodes; None if it does not."""
    from transformers.models.auto import modeling_auto as auto

    if model_type in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
        return "it has an encoder and a decoder"
    # An encoder can be made a decoder, but only it guesses masked words.
    decoders = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys() - auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.keys()
    return "it is a decoder" if model_type in decoders else None


def _refuse_changed(name: str, config: Mapping[str, Any]) -> None:
    """Raises CheckpointError for weights that are quantized, or of which transformers removed heads."""
    if quantized := config.get("quantization_config"):
        how = quantized.get("quant_method") if isinstance(quantized, dict) else None
        again = "load it with transformers, then model.dequantize() and model.save_pretrained(NEW)"
        remedy = again if how in DEQUANTIZED else "name the model that it was made from"
        raise CheckpointError(
            f"{name}: its weights are quantized by {shortened(str(how or 'an unknown method'), 60)}: {remedy}"
        )
    if config.get("pruned_heads"):
        raise CheckpointError(
            f"{name}: config.json has pruned_heads, so its layers differ in size: name the network before prune_heads, "
            "and remove its heads by hydractl prune"
        )


__all__ = ["find_family", "read_checkpoint", "write_checkpoint"]

"""ONNX files of ours as a service runs them: by onnxruntime, Pillow and tokenizers, without torch.

torch takes seconds and hundreds of megabytes to start, for nothing that such a file needs. What prepares images is that
of `hydractl.load`, but for Pillow, which resizes them; texts go through the tokenizer as `export` opened it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import ImageEmbeddings, TextEmbeddings
from hydractl.data.images import is_one_image, with_channels
from hydractl.data.processors import failing_as, plain_images, refuse_bare, refuse_unembedded, unembedded
from hydractl.errors import CheckpointError, DataError
from hydractl.schema import Items, Origin, Schema, document
from hydractl.systems.onnx_file import Arrays, OnnxGraph, open_onnx
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Answers

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: The inputs of a graph, and the parts of an encoded text that they are.
PARTS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
#: From samples to a graph's inputs.
Prepare = Callable[[Sequence[Any]], Arrays]


@dataclass(frozen=True, eq=False)
class ServedModel:
    """An ONNX file that is ready to answer."""

    graph: OnnxGraph
    prepare: Prepare

    @property
    def spec(self) -> ModelSpec:
        """The sizes of its network, and whether that reads images or texts."""
        return self.graph.file.checkpoint.spec

    def predict(self, samples: Any) -> Answers:
        """Answers images or texts in one pass.

        Args:
            samples: one image (of Pillow, a file's content or path, or an array) or text, or a list of them.

        Raises:
            DataError: there are none, or one cannot be read.
        """
        alone = isinstance(samples, str) or is_one_image(samples)
        several = [samples] if alone else list(samples)
        if not several:
            raise DataError("no samples to predict: give at least one")
        outputs, checkpoint = self.graph.run(self.prepare(several)), self.graph.file.checkpoint
        return Answers(
            task=find_task(checkpoint.spec.task),
            member_logits=outputs["member_logits"],
            classes=checkpoint.labels,
            calibration=checkpoint.calibration,
            ood_score=outputs.get("ood_score"),
            typicality=outputs.get("typicality"),
            profile=outputs.get("profile"),
        )


def load_onnx(path: str | Path, threads: int = 1) -> ServedModel:
    """Loads an ONNX file that `export` wrote.

    Args:
        threads: that a pass runs on; 0 for one per core.

    Raises:
        CheckpointError: it is missing, damaged, or prepares its samples in a way that only its library knows.
        OptionError: onnx or onnxruntime is not installed.
    """
    file = open_onnx(path)
    if file.checkpoint.spec.by_token:
        raise _needs_torch(file.checkpoint, "the place of each word")
    prepare = prepare_texts(file.checkpoint) if file.texts else _images(file.checkpoint)
    return ServedModel(file.start(threads), prepare)


def _images(checkpoint: Checkpoint) -> Prepare:
    embeddings = checkpoint.spec.towers[0].embeddings
    assert isinstance(embeddings, ImageEmbeddings)
    channels = embeddings.channels
    processor = plain_images(checkpoint.preprocessing, channels)
    if processor is None:
        raise _needs_torch(checkpoint, "its image processor")

    def prepare(images: Sequence[Any]) -> Arrays:
        return {"pixel_values": np.stack([processor.without_torch(with_channels(image, channels)) for image in images])}

    return prepare


def prepare_texts(checkpoint: Checkpoint) -> Prepare:
    """Returns what turns texts into a graph's inputs, by the tokenizer that `export` put into its file."""
    embeddings = checkpoint.spec.towers[0].embeddings
    assert isinstance(embeddings, TextEmbeddings)
    tokenizer, settings = _tokenizer(checkpoint, embeddings)
    strange = unembedded(tokenizer.get_vocab(), embeddings)
    parts = {name: part for name, part in PARTS.items() if name in settings.model_input_names}

    def prepare(texts: Sequence[Any]) -> Arrays:
        if wrong := [text for text in texts if not isinstance(text, str | tuple)]:
            raise DataError(f"the model takes texts, not {type(wrong[0]).__name__}: leave it out")
        with failing_as(lambda reason: _unusable(checkpoint, f"fails on a text ({reason})")):
            encodings = tokenizer.encode_batch(texts)
        refuse_bare(encodings, texts)
        if strange:
            refuse_unembedded((number for encoding in encodings for number in encoding.ids), strange)
        return {
            name: np.array([getattr(encoding, part) for encoding in encodings], np.int64)
            for name, part in parts.items()
        }

    return prepare


class _Settings(Schema, extra="ignore"):
    """Holds what `export` writes beside a tokenizer that has no place for it."""

    model_input_names: Items[str]
    split_special_tokens: bool


def _tokenizer(checkpoint: Checkpoint, embeddings: TextEmbeddings) -> tuple[Tokenizer, _Settings]:
    """Returns the tokenizer of a file, which `export` made cut and pad as `TextPreprocessor` does, and its settings."""
    from tokenizers import Tokenizer

    files = checkpoint.preprocessing
    if not files.keys() >= {"tokenizer.json", "tokenizer_config.json"} or embeddings.filled:
        raise _needs_torch(checkpoint, "its tokenizer")
    try:
        tokenizer = Tokenizer.from_str(json.dumps(files["tokenizer.json"]))
    except Exception as error:  # tokenizers raises Exception itself
        raise _unusable(checkpoint, f"cannot be used ({error})") from error
    cut, padded = tokenizer.truncation, tokenizer.padding
    if cut is None or padded is None or cut["max_length"] > embeddings.max_tokens:
        raise _unusable(checkpoint, "does not cut and pad texts as the network takes them")
    tokenizer.enable_truncation(cut["max_length"], direction=cut["direction"])
    tokenizer.enable_padding(pad_id=padded["pad_id"], pad_token=padded["pad_token"], pad_type_id=padded["pad_type_id"])
    origin = Origin(f"{checkpoint.name}: tokenizer_config.json", CheckpointError, "export it again")
    settings = document(files["tokenizer_config.json"], origin).read(_Settings)
    tokenizer.encode_special_tokens = settings.split_special_tokens
    return tokenizer, settings


def _unusable(checkpoint: Checkpoint, finding: str) -> CheckpointError:
    return CheckpointError(f"{checkpoint.name}: tokenizer.json {finding}: export it again")


def _needs_torch(checkpoint: Checkpoint, what: str) -> CheckpointError:
    return CheckpointError(f"{checkpoint.name}: {what} needs its library, and so torch: use hydractl predict")

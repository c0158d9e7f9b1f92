"""Reads one network layer by layer, once per data set, and keeps what it says in a folder.

A data set becomes `NAME.npz`, all float32 but labels: `mean` and `first` `[N,L+1,D]` of the embeddings' output and of
each layer's (the mean over tokens that count, and the first token), `pooled` `[N,D']` that the classifier reads,
`logits` `[N,C]`, and `labels` `[N]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, JpegImagePlugin
from torch import Tensor

from hydractl.checkpoint.tower_spec import ImageEmbeddings
from hydractl.data.images import Lazy
from hydractl.data.samples import Samples

Features = dict[str, np.ndarray]


class Recorder:
    """Hooks on a network of one member, which note the tokens of each layer as they pass."""

    def __init__(self, model: Any) -> None:
        self.tower = model.text if hasattr(model, "text") else model.vision
        embeddings = self.tower.spec.embeddings
        self.prefix = embeddings.prefix if isinstance(embeddings, ImageEmbeddings) else 0
        self.mask: Tensor | None = None
        self.mean: list[Tensor] = []
        self.first: list[Tensor] = []
        self.tower.layers[0].register_forward_pre_hook(lambda _, given: self.note(given[0]))
        for layer in self.tower.layers:
            layer.register_forward_hook(lambda _, given, hidden: self.note(hidden))

    def note(self, hidden: Tensor) -> None:
        """Keeps the first token and the mean of those that count, `[B,D]` each of `[1,B,T,D]`."""
        x = hidden[0]
        counts = x.new_ones(x.shape[:2]) if self.mask is None else self.mask.to(x.dtype)
        counts[:, : self.prefix] = 0  # class tokens of images
        self.mean.append((x * counts[..., None]).sum(1) / counts.sum(1, keepdim=True))
        self.first.append(x[:, 0])


def read(model: Any, samples: Samples, batch: int = 64) -> Features:
    """Runs a network over samples and returns what its layers say of them, in their order."""
    recorder = model.layer_recorder if hasattr(model, "layer_recorder") else Recorder(model)
    model.layer_recorder = recorder
    found: dict[str, list[Tensor]] = {"mean": [], "first": [], "pooled": [], "logits": []}
    for start in range(0, len(samples), batch):
        chunk = [samples.inputs[place] for place in range(start, min(start + batch, len(samples)))]
        inputs = model.preprocessor(chunk)
        recorder.mask, recorder.mean, recorder.first = inputs.get("attention_mask"), [], []
        with torch.inference_mode():
            output = model(**inputs)
        found["mean"].append(torch.stack(recorder.mean, 1))
        found["first"].append(torch.stack(recorder.first, 1))
        found["pooled"].append(output.features[0])
        found["logits"].append(output.member_logits[0])
    arrays = {name: torch.cat(parts).float().numpy() for name, parts in found.items()}
    labels = np.full(len(samples), -1) if samples.labels is None else samples.labels
    return arrays | {"labels": labels}


def cached(path: Path, model: Any, samples: Samples) -> Features:
    """Returns what `read` does, from the file if it is there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **read(model, samples))
    with np.load(path) as kept:
        return dict(kept)


def as_stored(samples: Samples, like: Samples, compress: bool = True) -> Samples:
    """Returns images of the size of another set, and compressed as that is, if it holds JPEG."""
    if samples.modality != "image":
        return samples
    example = like.inputs[0]
    alike = partial(_alike, samples.inputs, example=example, compress=compress and example.format == "JPEG")
    return replace(samples, inputs=Lazy(range(len(samples)), alike), hashes=None)


def _alike(images: Sequence[Image.Image], place: int, example: Image.Image, compress: bool) -> Image.Image:
    image = images[place].convert(example.mode)
    image = image.resize(example.size, Image.Resampling.BICUBIC)  # Pillow's averages over all pixels it leaves out
    if not compress:
        return image
    encoded = BytesIO()
    sampling = JpegImagePlugin.get_sampling(example)
    image.save(encoded, "JPEG", qtables=example.quantization, subsampling=sampling)
    return Image.open(encoded)


def dimmed(samples: Samples) -> Samples:
    """Returns images half as bright."""
    return replace(samples, inputs=Lazy(range(len(samples)), partial(_dimmed, samples.inputs)), hashes=None)


def _dimmed(images: Sequence[Image.Image], place: int) -> Image.Image:
    return images[place].point(lambda level: level // 2)

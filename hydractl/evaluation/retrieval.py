"""Retrieval: how often the partner of an image or a text is among the nearest of all, by members' mean cosine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydractl.data.batching import make_batches
from hydractl.data.open import open_samples
from hydractl.data.pairs import open_pairs
from hydractl.data.preprocess import preprocessor_from_json
from hydractl.data.reading import DataLike, Reading
from hydractl.data.samples import Samples
from hydractl.errors import DataError, OptionError
from hydractl.evaluation.checkpoints import NetworkSystem
from hydractl.evaluation.results import Difference
from hydractl.evaluation.sets import EvaluationData, SetKey, find_leaks, refuse_leaks
from hydractl.inference import load_to_compute
from hydractl.metrics.bootstrap import draw_places, percentile_interval
from hydractl.metrics.neighbours import partner_ranks
from hydractl.model.finite import finite_on_cpu
from hydractl.model.hydra import Hydra
from hydractl.run_options import Compute

AT = (1, 5, 10)  # how many of the nearest are looked at

Ranks = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Recall:
    """A system's recall in one direction of the pairs.

    Attributes:
        system: its name.
        direction: such as "image to text".
        ranks: `[N]`, the place of each partner among all, from 1.
        differences: by how many of the nearest, to the first system; empty for that one.
    """

    system: str
    direction: str
    ranks: Ranks
    differences: Mapping[int, Difference]

    def at(self, most: int) -> float:
        """Returns the share of partners among the first so many."""
        return float((self.ranks <= most).mean())


def open_both(
    systems: Sequence[tuple[str, NetworkSystem]], pairs: DataLike, reading: Reading, allow_leak: bool
) -> Samples:
    """Opens pairs of images and texts, or of texts, as the systems read them.

    Raises:
        DataError: they cannot be read, or a system was made with them.
        OptionError: a system embeds no pairs, or pairs of another kind than the first.
    """
    of_first = systems[0][1].checkpoints[0].spec
    for name, system in systems:
        spec = system.checkpoints[0].spec
        if not spec.prompted and not (spec.embeds and spec.modality == "text"):
            raise OptionError(f"`pairs`: {name} embeds no pairs: name a zero-shot model, or one that embeds texts")
        if spec.prompted != of_first.prompted:
            raise OptionError(f"`pairs`: {name} reads pairs of another kind than {systems[0][0]}: name one kind")
    if of_first.prompted:
        samples = open_pairs(pairs, reading)
    else:
        samples = open_samples(pairs, "text", reading)
        if not isinstance(samples.inputs[0], tuple):
            raise DataError(f"{samples.name}: holds no pairs of texts: name two columns with `text_column`")
    data = EvaluationData({SetKey("id", samples.name, labelled=False): samples})
    for name, system in systems:
        if not allow_leak:
            refuse_leaks(name, find_leaks(name, system.histories, data))
    return samples


def retrieve(
    system: NetworkSystem,
    pairs: Samples,
    compute: Compute,
    *,
    device: torch.device,
    on_batch: Callable[[int], None],
) -> dict[str, Ranks]:
    """Returns the ranks of partners by direction.

    Args:
        pairs: (image, text) for a zero-shot model, (text, text) for one that embeds texts.
    """
    parts: list[tuple[Tensor, Tensor]] = []
    for checkpoint in system.checkpoints:
        spec, model = checkpoint.spec, load_to_compute(checkpoint, device, compute.torch_dtype).optimize_for_inference()
        if spec.prompted:
            given = (checkpoint.preprocessing, spec, checkpoint.name, checkpoint.config)
            batches = make_batches(pairs, preprocessor_from_json(*given), compute.batch_size)
            parts.append(_embedded(model, batches, on_batch))
        else:
            sides = zip(*pairs.inputs, strict=True)
            first, second = (model.predict(list(side), compute.batch_size).member_logits for side in sides)
            parts.append((first, second))
            on_batch(len(pairs))
    ours, theirs = (_together(side) for side in zip(*parts, strict=True))
    kinds = ("image", "text") if system.checkpoints[0].spec.prompted else ("first", "second")
    return {
        f"{kinds[0]} to {kinds[1]}": partner_ranks(ours, theirs),
        f"{kinds[1]} to {kinds[0]}": partner_ranks(theirs, ours),
    }


@torch.inference_mode()
def _embedded(model: Hydra, batches: Any, on_batch: Callable[[int], None]) -> tuple[Tensor, Tensor]:
    """Returns the members' embeddings `[M,N,P]` of the images and of the texts of pairs."""
    device, sides = next(model.parameters()).device, []
    for batch in batches:
        inputs = {name: tensor.to(device) for name, tensor in batch.inputs.items()}
        images = model.embed("vision", model.vision.forward_image(inputs["pixel_values"]))
        texts = model.embed_texts(inputs["input_ids"], inputs.get("attention_mask"))
        sides.append([finite_on_cpu(one.expand(model.members, -1, -1), "embeddings") for one in (images, texts)])
        on_batch(len(batch.positions))
    images, texts = (torch.cat(side, 1) for side in zip(*sides, strict=True))
    return images, texts


def _together(sides: Sequence[Tensor]) -> NDArray[np.floating[Any]]:
    """Returns members' embeddings at unit length side by side, `[N,M*P]`: cosines of these are means of members'."""
    units = torch.nn.functional.normalize(torch.cat(tuple(sides)).double(), dim=-1)
    joined: NDArray[np.floating[Any]] = units.transpose(0, 1).flatten(1).numpy()
    return joined


def compared(ranks: Mapping[str, Mapping[str, Ranks]], draws: int, seed: int) -> list[Recall]:
    """Returns the recall of every system and direction, with paired differences to the first system.

    Args:
        ranks: by system and direction.
        draws: how often pairs are resampled; 0 for no differences.
    """
    first = next(iter(ranks.values()))
    found = []
    for place, (name, own) in enumerate(ranks.items()):
        for direction, values in own.items():
            base = first[direction]
            differences = {
                most: _difference(values <= most, base <= most, draws, seed) for most in AT if place and draws
            }
            found.append(Recall(name, direction, values, differences))
    return found


def _difference(ours: NDArray[np.bool_], theirs: NDArray[np.bool_], draws: int, seed: int) -> Difference:
    apart = ours.astype(np.float64) - theirs
    values = np.array([apart[places].mean() for [places] in draw_places([len(apart)], draws, seed)])
    return Difference(float(apart.mean()), percentile_interval(values))

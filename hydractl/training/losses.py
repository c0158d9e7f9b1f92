"""The losses of training, for labels, outliers, teachers and pairs.

Sources: outlier exposure, Hendrycks et al. 2019, arXiv 1812.04606; distillation, Hinton et al. 2015, arXiv 1503.02531,
but without a temperature for learning: probabilities are learnt as a network gives them, by its fitted temperature if
it has one, since a member should learn how sure to be; CLIP's loss, arXiv 2103.00020; its two passes as in GradCache,
arXiv 2101.06983.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.batching import Batch
from hydractl.errors import OptionError
from hydractl.inference import load_checkpoint
from hydractl.model.hydra import Hydra
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Task
from hydractl.text import composed_all
from hydractl.training.network import training_dtype
from hydractl.training.recipe import Recipe

LARGEST_LOG_SCALE = math.log(100)


def batch_loss(
    task: Task,
    logits: Tensor,
    labels: Tensor | None,
    recipe: Recipe,
    *,
    taught: Tensor | None = None,
    count: float | None = None,
) -> Tensor:
    """Returns what a batch adds to its step's loss, the members' mean.

    Args:
        logits: `[M,B,C]`.
        labels: `[B]`; None for outliers.
        taught: the teachers' probabilities `[B,C]`, if there are teachers.
        count: the labels of the whole step. Default: its samples.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if labels is None:
        unsureness = task.outlier_losses(logits).sum() / len(logits)
        return recipe.outlier_weight * unsureness / outliers_of_a_step(recipe)
    loss = task.losses(logits, labels, recipe.label_smoothing).sum()
    if taught is not None:
        learnt = task.taught_losses(logits, taught).sum()
        loss = recipe.teacher_weight * learnt + (1 - recipe.teacher_weight) * loss
    return loss / len(logits) / (recipe.batch if count is None else count)


def outliers_of_a_step(recipe: Recipe) -> int:
    """Returns how many outliers a step takes, over all devices and forward passes."""
    return max(1, round(recipe.batch * recipe.outlier_share))


@dataclass(frozen=True, eq=False)
class Teachers:
    """Networks whose mean is learnt: single ones, Hydras, or several that make a Deep Ensemble."""

    checkpoints: Sequence[Checkpoint]
    networks: Sequence[Hydra]

    @classmethod
    def load(cls, checkpoints: Sequence[Checkpoint], device: torch.device) -> Teachers:
        """Loads the networks in the dtypes that they are stored in; half precision is widened."""
        return cls(checkpoints, [load_checkpoint(each, device, training_dtype(each)).eval() for each in checkpoints])

    @torch.no_grad()
    def probabilities(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Returns the networks' mean `[B,C]`, each a mean of its members."""
        return torch.stack([network(**inputs).probabilities for network in self.networks]).mean(0)


def require_fit(teachers: Sequence[Checkpoint], network: Checkpoint) -> None:
    """Raises OptionError if a teacher is zero-shot, has other classes than a network, or preprocesses differently."""
    for teacher in teachers:
        refusal = f"`teacher` {teacher.name}: is a zero-shot model: name a classifier"
        task = find_task(teacher.spec.task)
        task.require_classifier(refusal)
        same = composed_all(teacher.labels) == composed_all(network.labels)
        if task is not find_task(network.spec.task) or not same:
            raise OptionError(
                f"`teacher` {teacher.name}: has other classes than {network.name}: name a teacher with the same ones"
            )
        if teacher.preprocessing != network.preprocessing:
            raise OptionError(
                f"`teacher` {teacher.name}: preprocesses its samples differently from {network.name}: name a teacher "
                "with the same preprocessing"
            )


class Embedder(nn.Module):
    """A zero-shot network that returns the embeddings of pairs; several processes wrap and share it."""

    def __init__(self, network: Hydra) -> None:
        super().__init__()
        self.network = network

    def forward(self, **inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Returns unit-length embeddings `[B,G,P]` of images and of texts."""
        images, texts = model_embeddings(self.network, inputs)
        return images.transpose(0, 1), texts.transpose(0, 1)


def model_embeddings(network: Hydra, inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Returns unit-length embeddings `[G,B,P]` of the images and of the texts of pairs."""
    images = network.embed("vision", network.vision.forward_image(inputs["pixel_values"]))
    return images, network.embed_texts(inputs["input_ids"], inputs.get("attention_mask"))


def pair_logits(images: Tensor, texts: Tensor, logit_scale: Tensor, logit_bias: Tensor | None = None) -> Tensor:
    """Returns the similarity `[G,N,N]` of each image to each text."""
    logits = torch.matmul(images, texts.mT) * logit_scale.exp().view(-1, 1, 1)
    return logits if logit_bias is None else logits + logit_bias.view(-1, 1, 1)


def contrastive_loss(images: Tensor, texts: Tensor, logit_scale: Tensor, logit_bias: Tensor | None = None) -> Tensor:
    """Returns the mean over images and texts of the cross-entropy of their partner, for embeddings `[G,N,P]`.

    With a bias, each pair is a question of its own, answered by a sigmoid (SigLIP): the mean over texts of the sum
    of the cross-entropies of their pairs.
    """
    logits = pair_logits(images, texts, logit_scale, logit_bias)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if logit_bias is not None:
        signs = 2 * torch.eye(logits.shape[1], device=logits.device) - 1
        return -F.logsigmoid(signs * logits).sum(1).mean()
    partners = torch.arange(logits.shape[1], device=logits.device).expand(len(logits), -1)
    return (F.cross_entropy(logits.mT, partners) + F.cross_entropy(logits, partners)) / 2


def bound_scale(network: Hydra) -> None:
    """Keeps a `logit_scale` that trains between 1 and 100, as CLIP and OpenCLIP do after every step; not a SigLIP's."""
    if network.logit_scale.requires_grad and network.logit_bias is None:
        with torch.no_grad():
            network.logit_scale.clamp_(0, LARGEST_LOG_SCALE)


def contrastive_backward(
    model: Any, batches: Sequence[Batch], accelerator: Accelerator, seed: Callable[[int], None]
) -> Tensor:
    """Puts the gradient of a step's contrastive loss into the parameters; returns that loss.

    The loss compares every image of a step with every text of it, over all devices and forward passes. It needs all
    embeddings at once, but the network's activations only a few at a time: embeddings come first, without a graph;
    the loss gives their gradients; then each forward pass is done again and takes its share of them back.

    Args:
        model: an `Embedder`, as accelerate wraps it.
        batches: of this process, as many pairs as every other process has.
        seed: sets the random state of a forward pass, so that its dropout is the same both times.
    """
    network: Hydra = accelerator.unwrap_model(model).network
    inputs = [{name: t.to(accelerator.device) for name, t in batch.inputs.items()} for batch in batches]
    embedded = []
    with torch.no_grad():
        for forward, tensors in enumerate(inputs):
            seed(forward)
            embedded.append(model(**tensors))
    local = [torch.cat(side) for side in zip(*embedded, strict=True)]
    images, texts = (accelerator.gather(side).detach().requires_grad_() for side in local)
    scaling = [network.logit_scale] if network.logit_bias is None else [network.logit_scale, network.logit_bias]
    scales = [each.detach().clone().requires_grad_() for each in scaling]
    loss = contrastive_loss(images.transpose(0, 1), texts.transpose(0, 1), *scales)
    gradients = torch.autograd.grad(loss, [images, texts, *scales])
    start = accelerator.process_index * len(local[0])
    shares = accelerator.num_processes * len(batches)
    for forward, batch in enumerate(inputs):
        end = start + len(batch["pixel_values"])
        with accelerator.accumulate(model):
            seed(forward)
            embeddings = model(**batch)
            surrogate = sum((a * full[start:end]).sum() for a, full in zip(embeddings, gradients[:2], strict=True))
            surrogate = surrogate + sum((a * b).sum() for a, b in zip(scaling, gradients[2:], strict=True)) / shares
            # Accelerate and DDP average over passes and processes; what they add up here is to be a sum.
            accelerator.backward(surrogate * shares)
        start = end
    return loss.detach()

"""ViLU: a small network that tells from a zero-shot model's embeddings whether its prediction is wrong.

Source: Lafon et al. 2025, arXiv 2507.07620.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

LAYERS = 3


@dataclass(frozen=True, eq=False)
class ErrorPredictor:
    """The network's weights, by their names in a file (`checkpoint.attached.Vilu`)."""

    weights: Mapping[str, Tensor]

    def __call__(self, images: Tensor, classes: Tensor, predicted: Tensor) -> Tensor:
        """The log-odds `[B]` that the predictions are wrong.

        Args:
            images: `[B,P]` embeddings of unit length.
            classes: `[C,P]` likewise.
            predicted: `[B]`, which of the classes each image was taken for.
        """
        q, k, v = (self.weights[f"attention.{part}"] for part in "qkv")
        # By associativity the classes are never projected, which would cost C times what one image costs.
        scores = images @ q.T @ k @ classes.T / images.shape[-1] ** 0.5
        weighted = scores.softmax(-1) @ classes @ v.T
        hidden = torch.cat([images, classes[predicted], weighted], -1)
        for layer in range(LAYERS):
            hidden = F.linear(
                F.relu(hidden) if layer else hidden,
                self.weights[f"mlp.{layer}.weight"],
                self.weights[f"mlp.{layer}.bias"],
            )
        return hidden[:, 0]

    def confidence(self, features: Tensor, classes: Tensor, member_logits: Tensor) -> Tensor:
        """How sure it is that the members' mean is right, `[B]`; embeddings of several members are averaged.

        Args:
            features: `[M,B,P]`.
            classes: `[G,C,P]`.
            member_logits: `[M,B,C]`.
        """
        predicted = member_logits.float().softmax(-1).mean(0).argmax(-1)
        wide = next(iter(self.weights.values())).dtype
        images, texts = (F.normalize(one.to(wide).mean(0), dim=-1) for one in (features, classes))
        return -self(images, texts, predicted)

    def multiply_adds(self, classes: int) -> int:
        """For one image."""
        width = self.weights["attention.q"].shape[0]
        layers = sum(self.weights[f"mlp.{layer}.weight"].numel() for layer in range(LAYERS))
        return 3 * width * width + 2 * classes * width + layers

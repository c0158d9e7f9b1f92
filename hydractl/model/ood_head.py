"""The head of a calibrated network, which gives OOD scores and typicality with its answers."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hydractl.checkpoint.calibration import FittedOod, OodFit
from hydractl.ood.ood_scores import find_ood_score
from hydractl.ood.score import PROFILE, QUANTILES, Outputs, State, flagged, typicality


class Oddity(NamedTuple):
    """Oddity of B samples: the score `[B]`, its typicality `[B]`, and that by each layer, `[L,B]`, if it has them."""

    score: Tensor
    typicality: Tensor
    profile: Tensor | None


class OodHead(nn.Module):
    """Gives the OOD score of a calibrated network, and how typical it is of ID samples.

    What was fitted lies in buffers that move with the network.

    Attributes:
        fit: the score's name, and the share of ID samples that should not be flagged.
        row: the score.
    """

    def __init__(self, fit: OodFit, state: State, persistent: bool = False) -> None:
        """
        Args:
            state: the score's numbers and `quantiles`.
            persistent: whether they are part of the state dict.
        """
        super().__init__()
        self.fit, self.row = fit, find_ood_score(fit.score)
        for name, tensor in state.items():
            self.register_buffer(name, tensor, persistent)

    @classmethod
    def of(cls, fitted: FittedOod, device: torch.device | str, dtype: torch.dtype) -> OodHead:
        """Returns the head for a network of this dtype, in float32 at least."""
        wide = torch.promote_types(dtype, torch.float32)
        return cls(fitted.fit, {name: tensor.load().to(device, wide) for name, tensor in fitted.tensors.items()})

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "row"}  # its functions are not pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.row = find_ood_score(self.fit.score)

    def forward(self, answers: Outputs) -> Oddity:
        """Returns the score and its typicality."""
        state = dict(self.named_buffers())
        wide = state[QUANTILES].dtype
        read = None if answers.features is None else answers.features.to(wide)
        hidden = [layer.to(wide) for layer in answers.hidden]
        answers = Outputs(answers.member_logits.to(wide), answers.temperature, read, hidden)
        if self.row.by_layer is None:
            score, profile = self.row.score(state, answers), None
        else:
            parts = self.row.by_layer(state, answers)
            score, profile = parts.sum(0), typicality(parts, state[PROFILE])
        return Oddity(score, typicality(score, state[QUANTILES]), profile)

    def flags(self, typical: Tensor) -> Tensor:
        """Returns where a sample looks OOD: less typical than all but the share of ID samples to accept."""
        return flagged(typical, self.fit.accept)

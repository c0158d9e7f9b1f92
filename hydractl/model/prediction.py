"""Predictions from members' logits: the ensemble's answer, its confidence, and its members' disagreement."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import log

import torch
from torch import Tensor

from hydractl.errors import NotFiniteError

SHOWN = 10  # samples that a readable prediction shows


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """A model's answers for N samples, in their order; tensors are on the CPU, float32 (float64 for a float64 model).

    Attributes:
        classes: names of the C classes.
        labels: `[N]`, the name of each sample's most probable class.
        probabilities: `[N,C]`, the members' mean.
        msp: `[N]`, the maximum softmax probability: confidence; low means likely wrong or OOD.
        entropy: `[N]`, nats, of `probabilities`; high means likely wrong or OOD.
        mutual_information: `[N]`, nats, how much members disagree; 0 for a single member.
        member_logits: `[M,N,C]`.
        ood_score: `[N]`, higher = more OOD; None if the model was not calibrated.
        typicality: `[N]`, the share of calibration samples that look at least as odd, 0 to 1; None likewise.
        profile: `[N,L]`, typicality by each layer alone, the first layer first; None unless the score reads all layers.
        ood: `[N]`, true where a sample looks OOD: less typical than most ID samples; None likewise.
        sure: `[N]`, true where answers are right as often as `calibrate` was asked for; None if it was not.
        truncated: how many texts are too long for the model and lost their end.
    """

    classes: tuple[str, ...]
    labels: list[str]
    probabilities: Tensor
    msp: Tensor
    entropy: Tensor
    mutual_information: Tensor
    member_logits: Tensor
    ood_score: Tensor | None = None
    typicality: Tensor | None = None
    profile: Tensor | None = None
    ood: Tensor | None = None
    sure: Tensor | None = None
    truncated: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        cells = [("label", "msp", "entropy", "mutual information"), *self._rows()]
        width = max(len(row[0]) for row in cells)
        lines = (f"  {label:<{width}}  {'  '.join(numbers)}" for label, *numbers in cells)
        return "\n".join([self._title(), *lines, *([self._more()] if self._more() else [])])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("label", "msp", "entropy", "mutual information"))
        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self._rows())
        return f"<table><caption>{self._title()}</caption><tr>{head}</tr>{rows}</table>{self._more()}"

    def _rows(self) -> Iterator[tuple[str, str, str, str]]:
        columns = (self.msp, self.entropy, self.mutual_information)
        for label, *numbers in zip(self.labels[:SHOWN], *(column[:SHOWN].tolist() for column in columns), strict=True):
            msp, entropy, information = (f"{number:.4f}" for number in numbers)
            yield label, msp, entropy, information

    def _title(self) -> str:
        return f"Prediction: {len(self)} samples, {len(self.member_logits)} members, {len(self.classes)} classes"

    def _more(self) -> str:
        return f"... and {len(self) - SHOWN} more" if len(self) > SHOWN else ""


def prediction(member_logits: Tensor, temperature: float, classes: Sequence[str] | None) -> Prediction:
    """Returns the prediction for logits `[M,N,C]`.

    Args:
        temperature: divides the logits of each member.
        classes: names of the C classes. Default: LABEL_0 and so on.
    """
    probabilities = log_probabilities(member_logits, temperature).exp()
    msp, best = probabilities.max(-1)
    entropy = torch.special.entr(probabilities).sum(-1)
    expected = torch.special.entr((member_logits / temperature).softmax(-1)).sum(-1).mean(0)
    names = tuple(classes or (f"LABEL_{i}" for i in range(probabilities.shape[-1])))
    labels = [names[i] for i in best.tolist()]
    return Prediction(
        classes=names,
        labels=labels,
        probabilities=probabilities,
        msp=msp,
        entropy=entropy,
        mutual_information=(entropy - expected).clamp(min=0),
        member_logits=member_logits,
    )


def log_probabilities(member_logits: Tensor, temperature: float) -> Tensor:
    """Returns the logarithm `[N,C]` of the mean of the members' softmax probabilities, always finite, at least float32.

    Args:
        member_logits: `[M,N,C]`.
    """
    wide = member_logits.to(torch.promote_types(member_logits.dtype, torch.float32))
    own = (wide / temperature).log_softmax(-1)
    return own[0] if len(own) == 1 else own.logsumexp(0) - log(len(own))


def finite_on_cpu(tensor: Tensor, what: str, places: Sequence[int] | None = None) -> Tensor:
    """Returns the tensor `[M,B,...]` on the CPU, at least in float32, as metrics and decisions need it.

    Args:
        what: its name, for the message.
        places: the numbers of the B samples among all, if the error should name the first bad one.

    Raises:
        NotFiniteError: a number of it is NaN or infinite.
    """
    held = tensor.to("cpu", torch.promote_types(tensor.dtype, torch.float32))
    if not (good := torch.isfinite(held)).all():
        error = NotFiniteError(f"the model's {what} are not finite on this data: try `dtype` float32")
        if places is not None:
            error.sample = min(places[at] for at in (~good).transpose(0, 1).flatten(1).any(-1).nonzero().flatten())
        raise error
    return held

"""A model's answers for samples, as a value that shows itself."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from torch import Tensor

SHOWN = 10  # samples that a readable prediction shows


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """A model's answers for N samples, in their order; tensors are on the CPU, float32 (float64 for a float64 model).

    Attributes:
        classes: names of the C classes.
        labels: `[N]`, the name of each sample's most probable class; for a multi-label model the names of those labels
            whose probability reaches their threshold, a tuple for each sample.
        probabilities: `[N,C]`, the members' mean.
        msp: `[N]`, the maximum softmax probability: confidence; low means likely wrong or OOD. For a multi-label
            model the probability of the answer, its labels taken as independent.
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
    labels: Sequence[Any]
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
            yield label if isinstance(label, str) else ", ".join(label), msp, entropy, information

    def _title(self) -> str:
        return f"Prediction: {len(self)} samples, {len(self.member_logits)} members, {len(self.classes)} classes"

    def _more(self) -> str:
        return f"... and {len(self) - SHOWN} more" if len(self) > SHOWN else ""

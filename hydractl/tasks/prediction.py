"""A model's answers for samples, as a value that shows itself."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import Any, ClassVar

from torch import Tensor

SHOWN = 10  # samples that a readable prediction shows


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AnyPrediction:
    """A model's answers for N samples, in their order; tensors are on the CPU, float32 (float64 for a float64 model).

    Attributes:
        classes: names of the C classes, labels or numbers.
        member_logits: `[M,N,C]`.
        ood_score: `[N]`, higher = more OOD; None if the model was not calibrated.
        typicality: `[N]`, the share of calibration samples that look at least as odd, 0 to 1; None likewise.
        profile: `[N,L]`, typicality by each layer alone, the first layer first; None unless the score reads all layers.
        ood: `[N]`, true where a sample looks OOD: less typical than most ID samples; None likewise.
        truncated: how many texts are too long for the model and lost their end.
    """

    called: ClassVar[str] = "classes"  # what its title counts
    classes: tuple[str, ...]
    member_logits: Tensor
    ood_score: Tensor | None = None
    typicality: Tensor | None = None
    profile: Tensor | None = None
    ood: Tensor | None = None
    truncated: int = 0

    def __len__(self) -> int:
        return self.member_logits.shape[1]

    def __repr__(self) -> str:
        cells = self._shown()
        width = max(len(row[0]) for row in cells)
        lines = (f"  {first:<{width}}  {'  '.join(others)}" for first, *others in cells)
        return "\n".join([self._title(), *lines, *([self._more()] if self._more() else [])])

    def _repr_html_(self) -> str:
        names, *rows = self._shown()
        head = "".join(f"<th>{name}</th>" for name in names)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        return f"<table><caption>{self._title()}</caption><tr>{head}</tr>{body}</table>{self._more()}"

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yields the names of the columns that people see, then the cells of each sample."""
        raise NotImplementedError

    def _shown(self) -> list[tuple[str, ...]]:
        return list(islice(self.cells(), SHOWN + 1))

    def _title(self) -> str:
        return f"Prediction: {len(self)} samples, {len(self.member_logits)} members, {len(self.classes)} {self.called}"

    def _more(self) -> str:
        return f"... and {len(self) - SHOWN} more" if len(self) > SHOWN else ""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Prediction(AnyPrediction):
    """A model's classes or labels for N samples.

    Attributes:
        labels: `[N]`, the name of each sample's most probable class; for a multi-label model the names of those labels
            whose probability reaches their threshold, a tuple for each sample; of a model that labels words the spans
            of each sentence, a tuple of `TaggedSpan`.
        probabilities: `[N,C]`, the members' mean.
        msp: `[N]`, the maximum softmax probability: confidence; low means likely wrong or OOD. For a multi-label
            model the probability of the answer, its labels taken as independent.
        entropy: `[N]`, nats, of `probabilities`; high means likely wrong or OOD.
        mutual_information: `[N]`, nats, how much members disagree; 0 for a single member.
        sure: `[N]`, true where answers are right as often as `calibrate` was asked for; None if it was not.
        sets: `[N,C]`, true for the classes of each sample's set, which holds the right one as often as `calibrate` was
            asked for; None if it was not.
    """

    labels: Sequence[Any]
    probabilities: Tensor
    msp: Tensor
    entropy: Tensor
    mutual_information: Tensor
    sure: Tensor | None = None
    sets: Tensor | None = None

    def cells(self) -> Iterator[tuple[str, ...]]:
        yield ("label", "msp", "entropy", "mutual information")
        for label, *numbers in zip(self.labels, self.msp, self.entropy, self.mutual_information, strict=True):
            yield (
                label if isinstance(label, str) else ", ".join(map(str, label)),
                *(f"{number:.4f}" for number in numbers),
            )

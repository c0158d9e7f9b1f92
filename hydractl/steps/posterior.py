"""Calibrating a zero-shot model without labels: the posterior of its projections, fitted on image-text pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.data.like import DataLike
from hydractl.errors import OptionError
from hydractl.steps.inputs import DeviceLike, DtypeLike
from hydractl.steps.result import Result
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.checkpoint.attached import BayesVlm
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.data.columns import Columns


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(Result):
    """A zero-shot model with the posterior of its projections.

    Attributes:
        fitted: how many pairs it was fitted on, what they count as, and the precision of each tower's prior.
    """

    checkpoint: Checkpoint
    fitted: BayesVlm
    output: Path | None = None

    def __str__(self) -> str:
        found = self.fitted
        precision = ", ".join(f"{tower} {value:.4g}" for tower, value in found.precision.items())
        return f"{found.pairs} pairs, which count as {found.pseudo_count:g}; precision of the prior: {precision}"

    def to_json(self) -> dict[str, Any]:
        return {"output": None if self.output is None else str(self.output), **asdict(self.fitted)}

    def lines(self) -> Iterator[str]:
        yield str(self) if self.output is None else str(self.output)

    def facts(self) -> Mapping[str, object]:
        found = self.fitted
        return {
            "pairs": found.pairs,
            "count as": f"{found.pseudo_count:g}",
            **{f"precision, {tower}": f"{value:.4g}" for tower, value in found.precision.items()},
        } | ({"file": self.output} if self.output else {})


@dataclass(frozen=True, eq=False)
class Pairs:
    """What a posterior is fitted on, and how."""

    data: DataLike
    columns: Columns
    limit: int | None
    contrast: int
    batch_size: int
    pseudo_count: float


def fit_posterior(
    checkpoint: Checkpoint,
    asked: Pairs,
    unread: Mapping[str, object],
    device: DeviceLike,
    dtype: DtypeLike | None,
    output: str | Path | None,
    force: bool,
    watch: Watcher,
) -> Posterior:
    """The model with its posterior, written where `output` says.

    Args:
        unread: options that fitting on pairs does not read; one that is given is refused.

    Raises:
        OptionError: no zero-shot model, or an option that is not read.
        DataError: the pairs cannot be read.
    """
    from hydractl.checkpoint.attached import BayesVlm
    from hydractl.families.open import write_checkpoint
    from hydractl.inference import load_checkpoint
    from hydractl.steps.compute import choose_device, choose_dtype, dtype_name
    from hydractl.training.laplace import Fit, with_posterior
    from hydractl.training.pairs import stream_pairs

    if checkpoint.spec.task != "zero-shot":
        raise OptionError(f"{checkpoint.name}: is no zero-shot model: `method` bayesvlm is for CLIP and its kin")
    for option, value in unread.items():
        if value is not None:
            raise OptionError(f"`{option}` has no effect with `method` bayesvlm: leave it out")
    pairs = stream_pairs(asked.data, asked.columns, asked.limit)
    model = load_checkpoint(checkpoint, choose_device(device), choose_dtype(dtype))
    options = {
        "method": "bayesvlm",
        "pseudo_count": asked.pseudo_count,
        "contrast": asked.contrast,
        "batch_size": asked.batch_size,
        "limit": asked.limit,
        "dtype": dtype_name(dtype),
    }
    length = len(pairs) if hasattr(pairs, "__len__") else pairs.length
    with watch.progress("calibrate", length) as advance:
        fit = Fit(asked.contrast, asked.batch_size, advance)
        made = with_posterior(checkpoint, model, pairs, fit, asked.pseudo_count, options)
    form = made.attached and made.attached.form
    assert isinstance(form, BayesVlm)
    found = Posterior(made, form, None if output is None else Path(output))
    if output is not None:
        write_checkpoint(made, output, force)
        watch.note(str(found))
    return found

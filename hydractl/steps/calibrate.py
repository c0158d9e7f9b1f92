"""Calibrating a model: a temperature or scales, and a threshold, fitted on held-out data and kept in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydractl.bounds import real
from hydractl.data.like import DataLike, Modality
from hydractl.errors import OptionError
from hydractl.steps.inputs import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_TEMPLATE,
    BatchSize,
    Classes,
    Device,
    Dtype,
    Force,
    ImageColumn,
    LabelColumn,
    Limit,
    MatchLabels,
    Model,
    Output,
    SkipBad,
    Template,
    TextColumn,
    Workers,
)
from hydractl.steps.options import Option, step
from hydractl.steps.result import Result
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Acceptance, Checkpoint
    from hydractl.metrics.temperature import FittedTemperature
    from hydractl.metrics.vector import FittedVector


#: What it says of the data where the loss still falls at the end of the range.
AT_BOUND = {
    "temperature": "the loss still falls at the highest temperature: the model is hardly ever right on this data",
    "vector": "the loss still falls at the end of the range of scales and shifts: it takes more data to tell them",
}


@dataclass(frozen=True, eq=False, repr=False)
class Calibrated(Result):
    """A model with a temperature or scaled classes, and what that changed on the data it was fitted on.

    Attributes:
        fitted: the temperature or scales, and the negative log-likelihood before and after.
        samples: how many it was fitted on.
        acceptance: how sure the model is of most of them; None for a zero-shot model.
    """

    checkpoint: Checkpoint
    fitted: FittedTemperature | FittedVector
    samples: int
    acceptance: Acceptance | None = None
    output: Path | None = None

    @property
    def temperature(self) -> float:
        """What the logits of every member are divided by."""
        return self.fitted.temperature

    def __str__(self) -> str:
        found = self.fitted
        return (
            f"{found}: NLL {found.nll_before:.4f} -> {found.nll_after:.4f} "
            f"on {self.samples} samples, {100 * found.argmax_changed:.2f} % of predictions changed{self._accepts()}"
        )

    def _accepts(self) -> str:
        if self.acceptance is None:
            return ""
        return f"; {100 * self.acceptance.rate:g} % have an MSP of {self.acceptance.msp:.4f} or more"

    def to_json(self) -> dict[str, Any]:
        accepts = None if self.acceptance is None else asdict(self.acceptance)
        output = None if self.output is None else str(self.output)
        return {"output": output, **asdict(self.fitted), "acceptance": accepts}

    def lines(self) -> Iterator[str]:
        yield str(self) if self.output is None else str(self.output)

    def facts(self) -> Mapping[str, object]:
        found = self.fitted
        return (
            {
                "fitted": str(found),
                "NLL": f"{found.nll_before:.4f} before, {found.nll_after:.4f} after",
                "predictions changed": f"{100 * found.argmax_changed:.2f} %",
                "samples": self.samples,
            }
            | ({"looks OOD": f"below an MSP of {self.acceptance.msp:.4f}"} if self.acceptance else {})
            | ({"file": self.output} if self.output else {})
        )


@step
def calibrate(
    model: Model,
    *,
    data: Annotated[
        DataLike,
        Option(
            "Labelled ID data that nothing was or will be measured on.",
            heading="Data",
            metavar="SOURCE[:SPLIT]",
        ),
    ],
    method: Annotated[
        Literal["temperature", "vector"],
        Option("What is fitted: a temperature, or a scale and shift for each class."),
    ] = "temperature",
    accept: Annotated[
        str,
        Option(
            "Share of ID samples that predict must not flag as OOD, as 0.95 or 95%.",
            metavar="SHARE",
        ),
    ] = "95%",
    limit: Limit = None,
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    image_column: ImageColumn = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    match_labels: MatchLabels = "name",
    skip_bad: SkipBad = False,
    device: Device = "auto",
    dtype: Dtype = None,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    workers: Workers = 0,
    output: Output = None,
    force: Force = False,
    watch: Watcher = LOG,
) -> Calibrated:
    """Fit the temperature of a model and what looks OOD to it.

    Example: hydractl calibrate hydra.safetensors --data cifar10:train[:2000] -o calibrated.safetensors

    One number divides the logits of every member; it is the one with the least negative log-likelihood of the members'
    mean probability. Predictions of the written file use it, and flag what they are less sure of than of `accept` of
    these samples. Evaluations refuse the data it was fitted on.

    Method vector fits a scale and a shift for the logits of each class instead, and puts them into the classifier.

    >>> calibrated = hydractl.calibrate("hydra", data="data/pets")
    >>> hydractl.load(calibrated).temperature == calibrated.temperature
    True

    Raises:
        CheckpointError: the model cannot be read.
        DataError: a sample cannot be read, or labels do not match.
        OptionError: a zero-shot model without classes, `accept` is no share, or a method and a model that do not go
            together.
        OutputError: the output exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.data.columns import Columns
    from hydractl.data.open import notes_of, open_samples
    from hydractl.data.ranks import Ranks, batch_workers
    from hydractl.evaluation.calibrate import calibrated, fit_network
    from hydractl.evaluation.systems import Running
    from hydractl.families.open import write_checkpoint
    from hydractl.model.hydra import Hydra
    from hydractl.steps.compute import choose_device, choose_dtype, dtype_name
    from hydractl.steps.inputs import as_checkpoint
    from hydractl.surgery.classes import require_exact_classifier

    rate = _share(accept)
    if output is not None:
        refuse_existing(Path(output), force)
    checkpoint = as_checkpoint(model)
    if method == "vector":
        require_exact_classifier(checkpoint)
    modality: Modality = "text" if checkpoint.spec.task == "text-classification" else "image"
    columns = Columns(image_column, text_column, label_column)
    samples = open_samples(data, modality, columns=columns, limit=limit, skip_bad=skip_bad, name="calibration data")

    def note(text: str) -> None:
        watch.note(f"note: {text}")

    for text in notes_of(samples):
        note(text)
    place = choose_device(device)
    with batch_workers(place, ahead=1) as in_parallel, watch.progress("calibrate", len(samples)) as advance:
        running = Running(place, choose_dtype(dtype), False, batch_size, workers, 0, classes, template, Ranks(),
                          in_parallel, note)  # fmt: skip
        network = model if isinstance(model, Hydra) else checkpoint
        fitted, acceptance = fit_network(network, samples, match_labels, running, rate, advance, method)
    if fitted.at_bound and fitted.nll_after == fitted.nll_before:
        note(
            "all of this data is predicted right, so it cannot tell how sure to be: nothing is changed, give more of it"
        )
    elif fitted.at_bound:
        note(AT_BOUND[method])
    if of_classes := checkpoint.spec.task == "zero-shot":
        note("the classes of a zero-shot model may change: no threshold of confidence is kept")
    accepts = None if of_classes else acceptance
    options = {"batch_size": batch_size, "limit": limit, "dtype": dtype_name(dtype), "accept": rate}
    options |= {} if method == "temperature" else {"method": method}
    warm = calibrated(checkpoint, fitted, accepts, samples, options)
    if output is None:
        return Calibrated(warm, fitted, len(samples), accepts)
    write_checkpoint(warm, output, force)
    found = Calibrated(warm, fitted, len(samples), accepts, Path(output))
    watch.note(str(found))
    return found


def _share(text: str) -> float:
    """The share of all that a number or a percentage is, over 0 and up to 1."""
    percent = text.endswith("%")
    found = real(text.removesuffix("%"), 0, 100 if percent else 1)
    if not found:
        raise OptionError(f"`accept` {text}: expected a share as in 0.95 or 95%, over 0 and up to 1")
    return found / 100 if percent else found

"""Calibrating a model: a temperature or scales, and a threshold, fitted on held-out data and kept in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from hydractl.bounds import real
from hydractl.data.reading import DataLike, Modality, Reading, SkipBad
from hydractl.errors import OptionError
from hydractl.options import Option, Rows, function, remembered
from hydractl.steps.compute import Compute
from hydractl.steps.inputs import Force, Model, Output, Workers
from hydractl.steps.result import Result
from hydractl.watch import Watcher

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hydractl.checkpoint.contents import Acceptance, Checkpoint
    from hydractl.data.samples import Samples
    from hydractl.metrics.checks import Logits
    from hydractl.metrics.scaling import FittedTemperature, FittedVector


@dataclass(frozen=True)
class Temperature:
    """Divides all logits by one number."""

    name: ClassVar[str] = "temperature"
    help: ClassVar[str] = "one number that divides all logits"
    #: What the step notes if the loss still falls at the end of the range.
    at_bound: ClassVar[str] = "the loss still falls at the highest temperature: the model is rarely right on this data"

    def check(self, checkpoint: Checkpoint) -> None:
        """Accepts every model."""

    def fit(self, member_logits: Logits, labels: NDArray[np.int64]) -> FittedTemperature:
        """Returns the temperature with the lowest NLL."""
        from hydractl.metrics.scaling import fit_temperature

        return fit_temperature(member_logits, labels)


@dataclass(frozen=True)
class Vector:
    """Scales and shifts the logits of each class."""

    name: ClassVar[str] = "vector"
    help: ClassVar[str] = "a scale and a shift for each class"
    at_bound: ClassVar[str] = "the loss still falls at the end of the range of scales and shifts: give more data"

    def check(self, checkpoint: Checkpoint) -> None:
        """Raises OptionError for a model whose classifier cannot be scaled exactly."""
        from hydractl.surgery.numbers import require_exact_classifier

        require_exact_classifier(checkpoint)

    def fit(self, member_logits: Logits, labels: NDArray[np.int64]) -> FittedVector:
        """Returns the scales and shifts with the lowest NLL."""
        from hydractl.metrics.scaling import fit_vector

        return fit_vector(member_logits, labels)


Method = Temperature | Vector
METHODS = (Temperature, Vector)


@dataclass(frozen=True, eq=False, repr=False)
class Calibrated(Result):
    """A model with a temperature or scaled classes, and the change on the data it was fitted on.

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
        """The number that divides the logits of every member."""
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


@dataclass(frozen=True)
class Calibrate:
    """Fit the temperature of a model and what looks OOD to it.

    Example: hydractl calibrate hydra.safetensors --id-data cifar10:train[:2000] -o calibrated.safetensors

    One number divides the logits of every member: the one with the lowest negative log-likelihood of the members' mean
    probability. Predictions of the written file use it. They flag samples whose confidence is below that of the share
    `accept` of these samples. Evaluations refuse the data it was fitted on.

    Method vector fits a scale and a shift for the logits of each class instead, and puts them into the classifier.

    >>> calibrated = hydractl.calibrate("hydra", id_data="data/pets")
    >>> hydractl.load(calibrated).temperature == calibrated.temperature
    True

    Raises:
        CheckpointError: the model cannot be read.
        DataError: a sample cannot be read, or labels do not match.
        OptionError: a zero-shot model without classes, `accept` is not a share, or a method does not fit the model.
        OutputError: the output exists and `force` is not set, or the disk refuses it.
    """

    model: Model
    id_data: Annotated[
        DataLike,
        Option("Labelled ID data, apart from all evaluation data.", "Data", "SOURCE[:SPLIT]", remembered=False),
    ] = field(kw_only=True)
    method: Annotated[
        Method, Option("What is fitted: a temperature, or a scale and shift for each class."), Rows(METHODS)
    ] = Temperature()
    accept: Annotated[
        str, Option("Share of ID samples that predict must not flag as OOD, as 0.95 or 95%.", metavar="SHARE")
    ] = "95%"
    reading: Reading = Reading()
    skip_bad: SkipBad = False
    compute: Compute = Compute()
    workers: Workers = 0
    output: Output = None
    force: Force = False

    def run(self, watch: Watcher) -> Calibrated:
        from hydractl.checkpoint.output import refuse_existing
        from hydractl.evaluation.model_calibration import calibrated
        from hydractl.families.load import write_checkpoint
        from hydractl.steps.inputs import as_checkpoint

        rate = _share(self.accept)
        if self.output is not None:
            refuse_existing(Path(self.output), self.force)
        checkpoint = as_checkpoint(self.model)
        self.method.check(checkpoint)
        samples = self._samples(checkpoint, watch)
        fitted, acceptance = self._fitted(checkpoint, samples, rate, watch)
        if fitted.at_bound:
            watch.note(f"note: {NOTHING_TO_FIT if fitted.nll_after == fitted.nll_before else self.method.at_bound}")
        accepts: Acceptance | None = acceptance
        if checkpoint.spec.task == "zero-shot":
            watch.note("note: the classes of a zero-shot model may change: no threshold of confidence is kept")
            accepts = None
        options = remembered(self, accept=rate, template=None)
        warm = calibrated(checkpoint, fitted, accepts, samples, options=options)
        if self.output is None:
            return Calibrated(warm, fitted, len(samples), accepts)
        write_checkpoint(warm, self.output, self.force)
        found = Calibrated(warm, fitted, len(samples), accepts, output=Path(self.output))
        watch.note(str(found))
        return found

    def _samples(self, checkpoint: Checkpoint, watch: Watcher) -> Samples:
        from hydractl.data.open import notes_of, open_samples

        modality: Modality = "text" if checkpoint.spec.task == "text-classification" else "image"
        samples = open_samples(self.id_data, modality, self.reading, skip_bad=self.skip_bad, name="calibration data")
        for text in notes_of(samples):
            watch.note(f"note: {text}")
        return samples

    def _fitted(
        self, checkpoint: Checkpoint, samples: Samples, rate: float, watch: Watcher
    ) -> tuple[FittedTemperature | FittedVector, Acceptance]:
        from hydractl.data.ranks import Ranks, batch_workers
        from hydractl.evaluation.model_calibration import fit_network
        from hydractl.evaluation.systems import Running
        from hydractl.model.hydra import Hydra

        place = self.compute.torch_device
        with batch_workers(place) as in_parallel, watch.progress("calibrate", len(samples)) as advance:
            running = Running(
                device=place,
                dtype=self.compute.torch_dtype,
                compiled=False,
                batch_size=self.compute.batch_size,
                workers=self.workers,
                seed=0,
                reading=self.reading,
                ranks=Ranks(),
                in_parallel=in_parallel,
                on_note=lambda text: watch.note(f"note: {text}"),
            )
            network = self.model if isinstance(self.model, Hydra) else checkpoint
            return fit_network(network, samples, running, self.method.fit, rate=rate, on_batch=advance)


calibrate = function(Calibrate)

NOTHING_TO_FIT = "every sample is predicted correctly, so nothing can be fitted and nothing changed: give more data"


def _share(text: str) -> float:
    """Returns the share, over 0 and up to 1, that a number or a percentage stands for."""
    percent = text.endswith("%")
    found = real(text.removesuffix("%"), 0, 100 if percent else 1)
    if not found:
        raise OptionError(f"`accept` {text}: expected a share as in 0.95 or 95%, over 0 and up to 1")
    return found / 100 if percent else found

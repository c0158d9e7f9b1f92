"""The command `check`: the promises that a model keeps, and the odd inputs that it catches and misses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.data.reading import DataLike, DataSetsLike, Reading, SkipBad
from hydractl.errors import OptionError
from hydractl.inputs.models import ModelLike
from hydractl.inputs.result import WIDTH, Result
from hydractl.inputs.search_data import OOD_SETS
from hydractl.options import function, option, required
from hydractl.run_options import Compute, Force, Seed, Workers
from hydractl.steps.evaluate import named_systems
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from rich.console import Console

    from hydractl.evaluation.checkup import Checkup
    from hydractl.systems.system import EvaluationData, OnBatch, System


@dataclass(frozen=True, eq=False, repr=False)
class CheckedModel(Result):
    """The findings of a checkup.

    Attributes:
        checkup: the numbers.
    """

    checkup: Checkup

    @property
    def broken(self) -> bool:
        """True if a promise is broken."""
        return bool(self.checkup.broken)

    @property
    def exit_code(self) -> int:
        return int(self.broken)

    def to_json(self) -> dict[str, Any]:
        from hydractl.systems.system import plain

        content: dict[str, Any] = plain(self.checkup)
        for row in content["rows"]:
            del row["example"]  # which is for the page
        return {"broken": self.broken, **content}

    def _paragraphs(self) -> Iterator[tuple[str, bool]]:
        """Yields the sentences, and whether each speaks of a broken promise."""
        from hydractl.reports.checkup import following, headline, sentences

        yield headline(self.checkup), self.broken
        yield from ((text, text.startswith("BROKEN")) for text in sentences(self.checkup))
        yield from ((f"data: {text}", False) for text in self.checkup.findings)
        yield from ((text, False) for text in following(self.checkup))

    def lines(self) -> Iterator[str]:
        from hydractl.reports.checkup import tables
        from hydractl.reports.table import table_lines

        yield from (text for text, _ in self._paragraphs())
        for table in tables(self.checkup):
            yield from ("", *table_lines(table, WIDTH))

    def draw(self, console: Console) -> None:
        """Prints the page, broken promises in red."""
        from hydractl.reports.checkup import tables
        from hydractl.reports.table import draw
        from hydractl.text import terminal

        for text, broken in self._paragraphs():
            console.print(terminal(text, "bold red" if broken else ""), soft_wrap=not console.is_terminal)
        for table in tables(self.checkup):
            console.print()
            draw(table, console)


@dataclass(frozen=True)
class Check:
    """Say what a model keeps of its promises, what it catches and what it misses.

    Example: hydractl check network.safetensors --id-data cifar10:test --ood-data textures --report page

    Read it before deploying, and let a Makefile run it every night: it exits with 1 where a promise is broken. Needs
    ID data that the model has not seen; samples that it has seen are left out.

    Each promise of the file is counted on these samples: inputs accepted, sure answers right, sets, intervals. It is
    broken if fewer keep it than chance explains, at 95 % over all promises, counting the chance of the calibration set
    too. Otherwise it is kept, if as many samples would show that it fails twice as often as it may.

    Probes are made from the samples themselves: images with noise, blurred, dark, shuffled, blended; texts misspelled,
    shuffled, halved, without content. The page names those that the model answers wrongly, surely and without a flag.
    A file without calibration flags by the MSP.

    >>> hydractl.check("hydra", id_data="data/pets").broken
    False

    Raises:
        CheckpointError: the model cannot be read.
        DataError: a sample cannot be read, labels do not match, or the model has seen all samples.
        OptionError: saved predictions, or a zero-shot model without classes.
        OutputError: the report exists and `force` is not set, or the disk refuses it.
    """

    model: ModelLike = field(
        metadata=required(
            "A file of hydractl, an ONNX file, a folder of transformers, timm or OpenCLIP, or a hub id.",
            "Model",
            "MODEL",
            positional=True,
            remembered=False,
        )
    )
    id_data: DataLike = field(
        kw_only=True, metadata=required("ID data that the model has not seen, with labels.", "Data", "SOURCE[:SPLIT]")
    )
    ood_data: Annotated[DataSetsLike | None, OOD_SETS] = None
    probes: int = option(200, "Samples to make each probe from; 0 turns probes off.", within=(0, 10**6))
    report: str | Path | None = option(None, "Write a page with an example of each probe.", "Output", "FOLDER")
    reading: Reading = Reading()
    skip_bad: SkipBad = False
    compute: Compute = Compute()
    workers: Workers = 0
    seed: Seed = 0
    force: Force = False

    def run(self, watch: Watcher) -> CheckedModel:
        from hydractl.evaluation.checkup import check_up
        from hydractl.reports.checkup import write_checkup
        from hydractl.reports.page import check_report
        from hydractl.systems.networks import run_by

        if self.report is not None:
            check_report(Path(self.report), self.force)
        [(name, system)] = named_systems([self.model])
        notes: list[str] = []
        data = self._opened(system, notes)

        def on_set(path: str, samples: int) -> AbstractContextManager[OnBatch]:
            return watch.progress(path, samples)

        with run_by(self.compute, self.reading, notes.append, workers=self.workers, seed=self.seed) as running:
            checkup = check_up(name, system, data, running, probes=self.probes, notes=notes, on_set=on_set)
        if self.report is not None:
            watch.note(f"report: {write_checkup(Path(self.report), checkup, self.force)}")
        return CheckedModel(checkup)

    def _opened(self, system: System, notes: list[str]) -> EvaluationData:
        """Returns the data, with oddities of theirs as notes; raises OptionError for saved predictions."""
        from dataclasses import replace

        from hydractl.evaluation.sets import open_sets
        from hydractl.evaluation.settings import Sets

        if system.modality is None:
            raise OptionError(f"{self.model}: saved predictions answer no probes: name the model that made them")
        sources = Sets(self.id_data, self.ood_data or (), skip_bad=self.skip_bad)
        data = open_sets(sources, self.reading, system.modality, self.seed, on_note=notes.append)
        labelled = data.id.labels is not None or data.id.label_column is not None
        return replace(
            data,
            sets={
                replace(key, labelled=labelled) if key.role == "id" else key: samples
                for key, samples in data.sets.items()
            },
        )


check = function(Check)

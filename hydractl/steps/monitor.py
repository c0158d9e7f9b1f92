"""The command `monitor`: watches the answers of a model, and says when its inputs have changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.checkpoint.output import claim, refuse_existing
from hydractl.data.reading import Reading, SkipBad
from hydractl.errors import OptionError
from hydractl.inputs.models import Model
from hydractl.inputs.result import Result
from hydractl.inputs.rows import STDIN, lines_as_they_come
from hydractl.options import Without, function, option
from hydractl.run_options import Compute, Force
from hydractl.steps.predict import Predict, several
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from rich.console import Console

    from hydractl.inputs.monitor_files import Seen
    from hydractl.inputs.stream_monitor import Monitor
    from hydractl.monitoring.findings import Findings
    from hydractl.reports.table import Table

WIDTH = 120  # columns outside a terminal


@dataclass(frozen=True, eq=False, repr=False)
class Watched(Result):
    """The findings of a monitor: evidence of change, estimates of accuracy, class shares.

    Attributes:
        findings: the numbers.
        full: whether the table is printed without an alarm too.
    """

    findings: Findings
    full: bool = False

    @property
    def alarm(self) -> bool:
        """True once the evidence has sufficed."""
        return self.findings.since is not None

    @cached_property
    def tables(self) -> Sequence[Table]:
        """The tables, if there is an alarm or they are wanted."""
        from hydractl.reports.monitored import tables

        return tables(self.findings) if self.alarm or self.full else ()

    def to_json(self) -> dict[str, Any]:
        return {"alarm": self.alarm, **self.findings.to_json()}

    def lines(self) -> Iterator[str]:
        from hydractl.reports.monitored import verdict
        from hydractl.reports.table import table_lines

        yield verdict(self.findings)
        for table in self.tables:
            yield from ("", *table_lines(table, WIDTH))

    def draw(self, console: Console) -> None:
        """Prints the verdict, and after an alarm the tables."""
        from hydractl.reports.monitored import verdict
        from hydractl.reports.table import draw
        from hydractl.text import terminal

        console.print(terminal(verdict(self.findings), "bold red" if self.alarm else ""), soft_wrap=True)
        for table in self.tables:
            console.print()
            draw(table, console)


@dataclass(frozen=True)
class MonitorInputs:
    """Watch the inputs of a calibrated model, and say when they have changed.

    Example: hydractl monitor model.safetensors today/ --state watch.json

    Inputs are what `predict` takes, or what it wrote with --csv or --json, or JSON lines; - reads predictions, or
    texts, as they come. The state file remembers all inputs so far. Prints one line while all is well. After an alarm,
    prints what changed: layers, class shares, and estimates of the accuracy without labels.

    Evidence starts at 1. If inputs are like the calibration samples it ever reaches 1 / `alpha` with a probability of
    at most `alpha`, over a stream of any length and whatever the calibration samples were.

    `labels` names a table with the inputs in its first column and their classes in the column `label`.

    >>> warm = hydractl.calibrate("hydra", id_data="data/pets")
    >>> hydractl.monitor(warm, "data/pets").alarm
    False

    Raises:
        ArtifactError: a state is damaged, or of another calibration or alpha.
        DataError: an input or a table cannot be read.
        OptionError: the model is not calibrated, there are no inputs, or options do not fit each other.
        OutputError: an output exists and `force` is not set, another process writes the state, or the disk refuses it.
    """

    model: Model
    inputs: Any = option(
        (),
        "Inputs as predict takes them, or what it wrote; - is standard input.",
        "Data",
        "FILE...",
        positional=True,
        repeated=True,
    )
    data: Any = option((), "A data set under any name; repeat it for several.", "Data", "SOURCE[:SPLIT]", repeated=True)
    state: str | Path | None = option(None, "State file to continue from and to update.", "Output", "FILE")
    merge: Sequence[str | Path] = option((), "Merge the state files of several processes.", "Data", "FILE", rare=True)
    alpha: str = option("1%", "Probability of ever giving a false alarm, as 0.01 or 1%.", metavar="SHARE")
    labels: str | Path | None = option(None, "Table with the right classes of some inputs.", "Data", "FILE.csv")
    report: str | Path | None = option(None, "Write a page with figures.", "Output", "FOLDER")
    full: bool = option(False, "Print the tables without an alarm too.", "Output", rare=True)
    reading: Annotated[Reading, Without("limit", "label_column", "match_labels")] = Reading()
    skip_bad: SkipBad = False
    compute: Compute = Compute()
    force: Force = False

    def run(self, watch: Watcher) -> Watched:
        from hydractl.inputs.stream_monitor import Monitor

        self._check()
        if self.state is None:
            return self._watched(Monitor(self.model, self.alpha), watch)
        with claim(Path(self.state)):
            there = Path(self.state).exists() and not self.merge
            return self._watched(Monitor(self.model, self.alpha, self.state if there else None), watch)

    def _check(self) -> None:
        """Raises an error for options that make no sense together, and for outputs that exist."""
        from hydractl.reports.page import check_report

        sources = [*several(self.inputs), *several(self.data)]
        if self.merge and sources:
            raise OptionError("`merge` takes only state files: leave out the inputs")
        if not self.merge and not sources and self.state is None:
            raise OptionError("no inputs: name files, a data set with `data`, or a `state` to look at")
        if self.labels is not None and not sources:
            raise OptionError("`labels` needs the inputs that it labels: name them too")
        if self.merge and self.state is not None:
            refuse_existing(Path(self.state), self.force)
        if self.report is not None:
            check_report(Path(self.report), self.force)

    def _watched(self, monitor: Monitor, watch: Watcher) -> Watched:
        from hydractl.inputs.monitor_files import read_labels
        from hydractl.reports.monitored import write_monitored

        if self.labels is not None:
            monitor.known.require_class()
        labels = {} if self.labels is None else read_labels(Path(self.labels), monitor.known.classes)
        monitor.merge(self.merge)
        before = monitor.streams[0].labelled
        for chunk in self._seen(monitor, watch):
            self._add(monitor, chunk, labels)
            if self.state is not None and STDIN in several(self.inputs):  # which may never end
                monitor.save(self.state)
        if labels and monitor.streams[0].labelled == before:
            watch.warn(f"{self.labels} names none of the inputs: copy the names that `hydractl predict` prints")
        watched = Watched(monitor.findings(), self.full)
        if self.report is not None:
            page = write_monitored(Path(self.report), watched.findings, self.force)
            watch.note(f"report: {page}")
        if self.state is not None:  # last: a run that fails is repeated, and must not count its inputs twice
            monitor.save(self.state)
        return watched

    def _seen(self, monitor: Monitor, watch: Watcher) -> Iterator[list[Seen]]:
        """Yields the inputs with their answers, as they come."""
        from hydractl.inputs.monitor_files import SAVED, AnswerReader, are_predictions, saved_lines

        others = []
        for source in several(self.inputs):
            if source == STDIN:
                yield from self._piped(monitor, watch)
                continue
            if isinstance(source, str | Path) and Path(source).suffix.lower() in SAVED and Path(source).is_file():
                lines = saved_lines(Path(source))
                if are_predictions(first := next(lines, "")):
                    yield list(AnswerReader(str(source), monitor.known).read(chain([first], lines)))
                    continue
            others.append(source)
        if others or several(self.data):
            # Samples of Python are one data set, not a list of names.
            yield self._predicted(watch, inputs=others[0] if len(others) == 1 else others, data=self.data)

    def _piped(self, monitor: Monitor, watch: Watcher) -> Iterator[list[Seen]]:
        """Yields what comes through standard input: predictions, or texts to predict."""
        from hydractl.inputs.monitor_files import AnswerReader, are_predictions

        chunks, saved = lines_as_they_come(), AnswerReader(STDIN, monitor.known)
        first = next(chunks, [""])
        header = next((line for line in first if line.strip()), "")
        if not are_predictions(header):
            for lines in chain([first], chunks):
                if texts := [line for line in lines if line.strip()]:
                    yield self._predicted(watch, text=texts)
        elif header.strip() == "{":  # one object, to its end
            yield list(saved.read(chain(first, *chunks)))
        else:
            yield list(saved.read(first))
            for lines in chunks:
                again = [] if header.startswith("{") else [header]
                yield list(saved.read([*again, *lines]))

    def _predicted(self, watch: Watcher, **sources: Any) -> list[Seen]:
        from hydractl.inputs.monitor_files import Seen
        from hydractl.inputs.predictions import Predictions

        step = Predict(
            self._running,
            reading=replace(self.reading, classes=None),  # the network has them already
            skip_bad=self.skip_bad,
            compute=Compute(batch_size=self.compute.batch_size),
            **sources,
        )
        predictions = step.run(watch)
        assert isinstance(predictions, Predictions)  # no output is given
        names = (predictions.inputs[place] for place in predictions.good)
        answers = zip(names, predictions.each(), strict=True)
        return [Seen(name, answer, predictions.classes) for name, answer in answers]

    @cached_property
    def _running(self) -> Any:
        from hydractl.inputs.models import predictor

        return predictor(self.model, self.compute, self.reading)

    def _add(self, monitor: Monitor, chunk: Sequence[Seen], labels: Mapping[str, str]) -> None:
        """Adds answers, and whether those with labels are right."""
        from hydractl.inputs.monitor_files import label_of

        monitor.add([monitor.known.watched(seen.answer) for seen in chunk])
        for seen in chunk:
            if (label := label_of(seen.name, labels)) is not None:
                monitor.streams[0].label(seen.is_right(label, str(self.labels)))


monitor = function(MonitorInputs)

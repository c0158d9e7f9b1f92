"""The command `report`: the numbers of evaluations as a value, a table, JSON and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from hydractl.inputs.result import Outputs, Reported
from hydractl.options import Option, Without, function
from hydractl.watch import Watcher


@dataclass(frozen=True)
class Report:
    """Put the systems of several reports into one table.

    Example: hydractl report dense.json hydra.json -o comparison

    Prints the table without computing anything again. Only reports that define their numbers alike can be joined; a
    note names those of different data. Curves are drawn for reports that hold them: report.json of --report FOLDER.

    >>> evaluated = [hydractl.evaluate(name, id_data="data/pets", json=f"{name}.json") for name in ("vit", "m1")]
    >>> sorted(hydractl.report(["vit.json", "m1.json"]).models)
    ['m1', 'vit']

    Raises:
        ArtifactError: a file is no report, or two reports define their numbers differently.
        OutputError: an output exists and `force` is not set, or the disk refuses it.
    """

    files: Annotated[
        Sequence[str | Path],
        Option("Reports of `hydractl evaluate`, or their folders; - is stdin.", "Model", "REPORT...", positional=True),
    ]
    output: Annotated[
        str | Path | None, Option("Write a page, figures and tables.", "Output", "FOLDER", flags=("--output", "-o"))
    ] = None
    outputs: Annotated[Outputs, Without("report")] = Outputs()

    def run(self, watch: Watcher) -> Reported:
        from hydractl.artifacts import file_of_ours
        from hydractl.reports.artifact import join_reports, read_report

        outputs = replace(self.outputs, report=self.output)
        outputs.check()
        sources = [self.files] if isinstance(self.files, str | Path) else self.files
        files = [str(file_of_ours(str(file)) or file) for file in sources]
        joined, notes = join_reports({file: read_report(file) for file in files})
        for text in notes:
            watch.note(f"note: {text}")
        return outputs.write(joined, watch)


report = function(Report)

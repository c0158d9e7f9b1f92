"""What a build came to: its commands, the Hydra, the report and the verdict; or what they will take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.steps.estimate import Estimate
from hydractl.steps.pipeline import Task
from hydractl.steps.plan import HYDRA
from hydractl.steps.result import Result

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint


@dataclass(frozen=True, eq=False, repr=False)
class Built(Result):
    """A Hydra and what it gains over the network it came from.

    Attributes:
        tasks: the commands that made it, in order.
        folder: where everything lies.
        report: the evaluation, plain JSON; None where nothing was run.
        verdict: what is gained and lost, in a sentence.
        advice: what to try where nothing is gained.
        latency: how long the Hydra takes against the network, where that was limited.
        estimates: what each command will take, where nothing was run.
    """

    tasks: Sequence[Task]
    folder: Path
    report: Mapping[str, Any] | None = None
    verdict: str = ""
    advice: Sequence[str] = field(default_factory=tuple)
    latency: str = ""
    estimates: Sequence[Estimate] = field(default_factory=tuple)

    @property
    def checkpoint(self) -> Checkpoint:
        """The Hydra."""
        from hydractl.families.open import read_checkpoint

        return read_checkpoint(self.folder / HYDRA)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "hydractl-build",
            "version": 1,
            "steps": [task.line() for task in self.tasks],
            "hydra": HYDRA,
            "verdict": self.verdict or None,
            "advice": list(self.advice),
            **({"latency": self.latency} if self.latency else {}),
            **({"estimates": [asdict(one) for one in self.estimates]} if self.estimates else {}),
        }

    def lines(self) -> Iterator[str]:
        if self.report is None:
            for task, estimate in zip(self.tasks, self.estimates, strict=True):
                yield f"{task.line()}  # {estimate}"
            whole = Estimate(sum(one.seconds for one in self.estimates), sum(one.size for one in self.estimates))
            yield f"# {whole} in all"
            return
        yield self.verdict
        if self.latency:
            yield self.latency
        yield str(self.folder / HYDRA)
        yield from self.advice

    def facts(self) -> Mapping[str, object]:
        return {"folder": self.folder, "steps": len(self.tasks), "verdict": self.verdict or "not run"}

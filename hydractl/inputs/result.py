"""Results of steps, readable as lines of a terminal, JSON, text and a table in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, starmap
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from hydractl.reports.escape import html
from hydractl.text import TableLine, printable

if TYPE_CHECKING:
    from hydractl.model.hydra import Hydra, HydraOutput
    from hydractl.tasks.task import Answers

Value = TypeVar("Value")


class Result:
    """The readable side of a step's result; what it holds stands in the dataclass that a step returns."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON: what `--json` writes."""
        raise NotImplementedError

    def lines(self) -> Iterator[str]:
        """Yields the lines that the command prints on standard output."""
        raise NotImplementedError

    def facts(self) -> Mapping[str, object]:
        """Returns facts by name, which Python and notebooks show in place of the lines if there are any."""
        return {}

    def guidance(self) -> Iterator[str]:
        """Yields lines for stderr: what changed, and the likely next command."""
        yield from ()

    def __repr__(self) -> str:
        facts = {printable(name): printable(str(value)) for name, value in self.facts().items()}
        if not facts:
            return "\n".join(self.lines())
        width = max(map(len, facts))
        return "\n".join([type(self).__name__, *(f"  {name:<{width}}  {value}" for name, value in facts.items())])

    def _repr_html_(self) -> str:
        facts = self.facts()
        if not facts:
            return "".join(starmap(_in_html, groupby(self.lines(), type)))
        rows = (f"<tr><th>{html(name)}</th><td>{html(str(v))}</td></tr>" for name, v in facts.items())
        return f"<table><caption>{type(self).__name__}</caption>{''.join(rows)}</table>"


def _in_html(kind: type, lines: Iterator[str]) -> str:
    """Returns lines of one kind: a table, whose first line is a heading where it has more than two columns, or text."""
    if kind is not TableLine:
        return "<pre>" + "\n".join(map(html, lines)) + "</pre>"
    rows = [line.cells for line in cast("Iterator[TableLine]", lines)]
    tags = ["th" if len(rows[0]) > 2 else "td", *["td"] * (len(rows) - 1)]
    marked = ("".join(f"<{tag}>{html(cell)}</{tag}>" for cell in row) for tag, row in zip(tags, rows, strict=True))
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in marked)}</table>"


class MadeModel(Result):
    """A result that is a model: it answers as what `hydractl.load` returns does, and is loaded at its first answer."""

    def facts(self: Any) -> Mapping[str, object]:
        from hydractl.reports.summary import key_facts

        return key_facts(self.checkpoint) | ({"file": self.output} if self.output else {})

    def __call__(self, *inputs: Any, **tensors: Any) -> HydraOutput:
        """Classifies a batch of tensors; see `Hydra.forward`."""
        output: HydraOutput = self._loaded(*inputs, **tensors)
        return output

    def predict(self, samples: Any, batch_size: int = 64) -> Answers:
        """Predicts raw images or texts; see `Hydra.predict`."""
        return self._loaded.predict(samples, batch_size)

    @cached_property
    def _loaded(self: Any) -> Hydra:
        from hydractl.inference import load_checkpoint

        return load_checkpoint(self.checkpoint).optimize_for_inference()


@dataclass(frozen=True, eq=False, repr=False)
class Finding(Result, Generic[Value]):
    """A value, ready to be read in every way.

    Attributes:
        value: what a command found.
        content: the same and how it was made, as plain JSON.
        table: the lines that people read.
    """

    value: Value
    content: Mapping[str, Any]
    table: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        return dict(self.content)

    def lines(self) -> Iterator[str]:
        yield from self.table

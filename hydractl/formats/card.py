"""The model card of an exported folder: what it is, what it was made of, what was measured, how to load it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.report.escape import front_matter, markdown, markdown_code
from hydractl.report.summary import summarize, summary_lines

PIPELINES = {
    "image-classification": "image-classification",
    "text-classification": "text-classification",
    "zero-shot": "zero-shot-image-classification",
}


def model_card(checkpoint: Checkpoint, report: Mapping[str, Any] | None, automatic: str) -> str:
    """The card as Markdown, with the metadata in front that the hub reads.

    Args:
        report: a report of `hydractl evaluate`.
        automatic: the automatic class of transformers that loads the folder.
    """
    lines = [*_front(checkpoint), *_loading(checkpoint, automatic), *_structure(checkpoint), *_origin(checkpoint)]
    return "\n".join([*lines, *_results(checkpoint, report)]) + "\n"


def _front(checkpoint: Checkpoint) -> Iterator[str]:
    tags = ["hydractl", "ensemble", "uncertainty"]
    task = PIPELINES[checkpoint.spec.task]
    yield front_matter({"library_name": "transformers", "pipeline_tag": task, "tags": tags})
    yield from ("", "# Hydra ensemble", "")
    yield f"{checkpoint.members} members of the family {markdown(checkpoint.family)} in one network (arXiv 2510.18358)."
    yield "Softmax of its logits is the mean of the members' probabilities;"
    yield "its maximum is the confidence, and low confidence means likely wrong or out of distribution."
    yield ""


def _loading(checkpoint: Checkpoint, automatic: str) -> Iterator[str]:
    yield from ("## Loading", "", "With hydractl installed:", "", "```python", "import hydractl.auto")
    yield from (f"from transformers import {automatic}", "", f"model = {automatic}.from_pretrained(FOLDER)", "```", "")
    yield "Without it, the code in this folder is run instead: add `trust_remote_code=True`. In a pipeline:"
    yield from ("", "```python", "from transformers import pipeline", "")
    yield from (f'pipeline("{PIPELINES[checkpoint.spec.task]}", FOLDER, trust_remote_code=True)', "```", "")


def _structure(checkpoint: Checkpoint) -> Iterator[str]:
    yield from ("## Members and heads", "", "Heads kept by each member are squares, those dropped dots.", "", "```text")
    summary = summarize(checkpoint)
    # Where it lay when it was exported says nothing to a reader of the card.
    yield from list(summary_lines(summary | {"model": "hydra", "provenance": {}}))[1:]
    yield from ("```", "")


def _origin(checkpoint: Checkpoint) -> Iterator[str]:
    yield from ("## Origin", "", f"- weights: SHA-256 `{identity(checkpoint)}`")
    for place, value in _leaves(checkpoint.provenance, "made by"):
        yield f"- {markdown(place)}: {markdown_code(str(value))}"
    yield ""


def _leaves(value: object, place: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{place} {key}")
    elif isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{place} {number}")
    elif len(str(value)) <= 100:  # sketches of the data used are long and for programs
        yield place, value


def _results(checkpoint: Checkpoint, report: Mapping[str, Any] | None) -> Iterator[str]:
    if report is None:
        return
    own = identity(checkpoint)
    named = {name: model for name, model in report["models"].items() if model.get("model", {}).get("sha256") == own}
    for name, model in (named or report["models"]).items():
        yield from (f"## Results{'' if named else f' of {markdown(name)}'}", "", "| metric | value |", "|---|---|")
        for place, value in _leaves({part: model.get(part, {}) for part in ("id", "ood", "cost")}, ""):
            shown = f"{value:.4g}" if isinstance(value, float) else markdown(str(value))
            yield f"| {markdown(place.strip())} | {shown} |"
        yield ""

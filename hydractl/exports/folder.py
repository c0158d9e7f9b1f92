"""Folders that transformers loads, with a model of any number of members, its code and its card."""

import ast
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hydractl.checkpoint.calibration import FittedOod
from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.checkpoint.disk import WEIGHTS_NAME
from hydractl.checkpoint.output import write_bytes
from hydractl.checkpoint.spec import spec_to_json
from hydractl.checkpoint.tensors import write_safetensors
from hydractl.checkpoint.tower_spec import ImageEmbeddings
from hydractl.data.preprocess import as_opened
from hydractl.exports.stock import label_fields, library_labels, to_json
from hydractl.reports.summary import summarize, summary_lines
from hydractl.tasks.all_tasks import find_task
from hydractl.text import front_matter, markdown, markdown_code

MODELING = "hydractl.exports.modeling"
ENTRIES = {"hydractl.exports.configuration": "configuration_hydra", MODELING: "modeling_hydra"}
NOTE = "# Written by hydractl: {module} of its release that wrote the weights beside it. Apache-2.0.\n"


def write_code(folder: Path, force: bool = False) -> None:
    """Writes every module that the model classes need into a folder, importing one another from there.

    Raises:
        OutputError: a file exists and `force` is not set, or the disk refuses it.
    """
    for module, text in flat_modules().items():
        write_bytes(folder / f"{file_name(module)}.py", text.encode(), force)


def flat_modules() -> dict[str, str]:
    """Returns the source of each module by name, with relative and flat imports of this project's modules."""
    sources: dict[str, str] = {}
    waiting = sorted(ENTRIES)
    while waiting:
        module = waiting.pop()
        if module in sources:
            continue
        source = _source(module)
        needed = _imports(source)
        waiting += needed
        for other in needed:
            source = re.sub(rf"^from {re.escape(other)} import", f"from .{file_name(other)} import", source, flags=re.M)
        sources[module] = NOTE.format(module=module) + source
    return {**sources, MODELING: sources[MODELING] + _named(sorted(sources))}


def file_name(module: str) -> str:
    """Returns the name of a module's file, without its ending."""
    return ENTRIES.get(module, "hydra_" + module.removeprefix("hydractl.").replace(".", "_"))


def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def _named(modules: list[str]) -> str:
    """Returns lines that name the modules but import none: transformers 5.9 copies only what an entry itself names."""
    return "\n\nif False:\n" + "".join(f"    from .{file_name(module)} import *\n" for module in modules)


def _imports(source: str) -> list[str]:
    """Returns this project's modules that a source imports when it is loaded, not those inside functions."""
    return [
        node.module
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("hydractl.")
    ]


def write_hydra(checkpoint: Checkpoint, folder: Path, report: Mapping[str, Any] | None = None) -> None:
    """Writes a model with its weights as they are, one tensor in memory at a time.

    Args:
        report: a report of `hydractl evaluate`, whose results go into the model card.

    Raises:
        CheckpointError: its tokenizer or image processor cannot be opened.
        OutputError: a file exists, or the disk refuses it.
    """
    files = as_opened(checkpoint)  # in this folder `model_type` names no tokenizer or image processor
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / "config.json", to_json(hydra_config(checkpoint, files)))
    for name, content in files.items():
        write_bytes(folder / name, content.encode() if isinstance(content, str) else to_json(content))
    write_code(folder)
    automatic = find_task(checkpoint.spec.task).names.automatic
    write_bytes(folder / "README.md", model_card(checkpoint, report, automatic).encode())
    tensors = {f"hydra.{name}": tensor for name, tensor in checkpoint.tensors.items()}
    if (ood := checkpoint.calibration.ood) is not None:
        tensors |= {f"hydra.ood_head.{name}": tensor for name, tensor in ood.tensors.items()}
    write_safetensors(folder / WEIGHTS_NAME, tensors, {"format": "pt"})


def hydra_config(checkpoint: Checkpoint, files: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config.json of the folder.

    Args:
        files: the folder's preprocessing.
    """
    task = find_task(checkpoint.spec.task)
    names = task.names
    dtype = str(checkpoint.dtype).removeprefix("torch.")
    config: dict[str, Any] = {
        "model_type": "hydra",
        "architectures": [names.model],
        "auto_map": {"AutoConfig": "configuration_hydra.HydraConfig", names.automatic: f"modeling_hydra.{names.model}"},
        "dtype": dtype,
        "hydra": {
            "spec": spec_to_json(checkpoint.spec),
            "heads": {tower: [list(map(list, layer)) for layer in kept] for tower, kept in checkpoint.heads.items()},
            **({"units": dict(checkpoint.units)} if checkpoint.units else {}),
            "separate": sorted(checkpoint.tensors.keys() - checkpoint.shared),
            **_padding(checkpoint, files),
            "temperature": checkpoint.calibration.temperature,
            **({} if (sets := checkpoint.calibration.sets) is None else {"sets": asdict(sets)}),
            **({} if (ood := checkpoint.calibration.ood) is None else {"ood": _ood(ood)}),
        },
    }
    settings = checkpoint.preprocessing.get("preprocessor_config.json", {})
    if "pretrained_cfg" in settings:
        # The image processor that runs timm's transforms reads its settings here.
        config |= settings
    if (problem := checkpoint.spec.problem_type) is not None:
        config["problem_type"] = problem
    labels = library_labels(checkpoint)
    return config | task.config | (label_fields(labels) if labels is not None else {})


def _padding(checkpoint: Checkpoint, files: Mapping[str, Any]) -> dict[str, Any]:
    """Returns how texts are filled where padding is text: pipelines pad them to the longest one."""
    embeddings = checkpoint.spec.towers[-1].embeddings
    if isinstance(embeddings, ImageEmbeddings) or not embeddings.filled or "tokenizer.json" not in files:
        return {}
    padding = files["tokenizer.json"]["padding"]
    return {"padding": {"id": padding["pad_id"], "length": padding["strategy"]["Fixed"]}}


def _ood(fitted: FittedOod) -> dict[str, Any]:
    return {
        "fit": replace(fitted.fit, baseline=None).to_json(),
        "shapes": {name: list(tensor.shape) for name, tensor in fitted.tensors.items()},
    }


def model_card(checkpoint: Checkpoint, report: Mapping[str, Any] | None, automatic: str) -> str:
    """Returns the model card as Markdown, with the metadata in front that the hub reads.

    Args:
        report: a report of `hydractl evaluate`.
        automatic: the automatic class of transformers that loads the folder.
    """
    lines = [*_front(checkpoint), *_loading(checkpoint, automatic), *_structure(checkpoint), *_origin(checkpoint)]
    return "\n".join([*lines, *_results(checkpoint, report)]) + "\n"


def _front(checkpoint: Checkpoint) -> Iterator[str]:
    tags = ["hydractl", "ensemble", "uncertainty"]
    task = find_task(checkpoint.spec.task)
    yield front_matter({"library_name": "transformers", "pipeline_tag": task.names.pipeline, "tags": tags})
    yield from ("", "# Hydra ensemble", "")
    count = f"{checkpoint.members} member{'s' if checkpoint.members > 1 else ''}"
    yield f"{count} of the family {markdown(checkpoint.family)} in one network (arXiv 2510.18358)."
    yield task.card()
    if task.tells_ood == "scores":
        yield "its maximum is the confidence, and low confidence means likely wrong or out of distribution."
    if (fit := checkpoint.calibration.fit) is not None:
        share = f"{100 - 100 * fit.accept:g} %"
        yield f"The output `typicality` (by {fit.score}) is below {share} for about {share} of usual inputs."
    if (sets := checkpoint.calibration.sets) is not None:
        yield f"The output `sets` names classes, the right one among them {100 * sets.coverage:g} % of the time."
    yield ""


def _loading(checkpoint: Checkpoint, automatic: str) -> Iterator[str]:
    yield from ("## Loading", "", "With hydractl installed:", "", "```python", "import hydractl.auto")
    yield from (f"from transformers import {automatic}", "", f"model = {automatic}.from_pretrained(FOLDER)", "```", "")
    names = find_task(checkpoint.spec.task).names
    yield "Without it, the code in this folder is run instead: add `trust_remote_code=True`. In a pipeline:"
    yield from ("", "```python", "from transformers import pipeline", "")
    yield from (f'pipeline("{names.pipeline}", FOLDER, trust_remote_code=True)', "```", "")
    if checkpoint.calibration.ood is not None and names.typical:
        yield "With hydractl, the pipeline says how typical each input is, too:"
        yield from ("", "```python", "import hydractl.auto", "from transformers import pipeline", "")
        yield f'classify = pipeline("{names.pipeline}", FOLDER, pipeline_class=hydractl.auto.{names.typical})'
        yield from ('classify(INPUT)[0]["typicality"]', "```", "")


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
    sha = identity(checkpoint)
    same = {name: model for name, model in report["models"].items() if model.get("model", {}).get("sha256") == sha}
    for name, model in (same or report["models"]).items():
        yield from (f"## Results{'' if same else f' of {markdown(name)}'}", "", "| metric | value |", "|---|---|")
        for place, value in _leaves({part: model.get(part) or {} for part in ("id", "ood", "cost")}, ""):
            shown = f"{value:.4g}" if isinstance(value, float) else markdown(str(value))
            yield f"| {markdown(place.strip())} | {shown} |"
        yield ""

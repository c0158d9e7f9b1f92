"""What is timed: one model, or several one after the other, ready to answer noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.spec import ModelSpec
from hydractl.errors import OptionError
from hydractl.evaluation.benchmark import Run, Weight
from hydractl.evaluation.cost import cost
from hydractl.evaluation.synthetic import give_synthetic_classes, synthetic_inputs
from hydractl.families.peft import CONFIG as ADAPTER
from hydractl.inference import load_checkpoint
from hydractl.model.fast.optimize import compile_model
from hydractl.model.hydra import Hydra


@dataclass(frozen=True, eq=False)
class TimedSystem:
    """Models that answer one after the other; their mean is the system's answer."""

    references: tuple[str, ...]
    spec: ModelSpec
    answers: tuple[Callable[[dict[str, Tensor]], Tensor], ...]  # inputs to probabilities
    weight: Weight
    device: torch.device
    dtype: torch.dtype

    def on_noise(self, batch_size: int, tokens: int) -> Run:
        """One call of this system on a random batch of its own."""
        inputs = synthetic_inputs(self.spec, batch_size, self.device, tokens)
        inputs = {k: v.to(self.dtype) if v.is_floating_point() else v for k, v in inputs.items()}

        def run() -> Tensor:
            with torch.inference_mode():
                return torch.stack([answer(inputs) for answer in self.answers]).mean(0)

        return run


def open_timed(
    checkpoints: Mapping[str, Sequence[Checkpoint]],
    device: torch.device,
    dtype: torch.dtype,
    *,
    compiled: bool = False,
    transformers: bool = False,
) -> dict[str, TimedSystem]:
    """The systems to time, by name.

    Args:
        checkpoints: models by system; several are run one after the other.
        transformers: also time transformers' own forward of each single model that is a folder as it writes them.

    Raises:
        CheckpointError: a tensor cannot be read.
        OptionError: transformers' forward is asked for where there is none to time.
    """
    systems: dict[str, TimedSystem] = {}
    for name, models in checkpoints.items():
        loaded = [load_checkpoint(model, device, dtype).optimize_for_inference() for model in models]
        for model in loaded:
            give_synthetic_classes(model)
        answers = tuple(_ours(model, compiled) for model in loaded)
        weight = _sum([_weight(model) for model in loaded])
        systems[name] = TimedSystem(
            tuple(model.name for model in models), loaded[0].spec, answers, weight, device, dtype
        )
    if transformers:
        systems |= _theirs(systems, compiled)
    return systems


def _ours(model: Hydra, compiled: bool) -> Callable[[dict[str, Tensor]], Tensor]:
    if compiled:
        compile_model(model)
    return lambda inputs: model(**inputs).probabilities


def _weight(model: Hydra) -> Weight:
    counted = cost(model)
    size = sum(parameter.nbytes for parameter in model.parameters())
    return Weight(counted.parameters, size, counted.multiply_adds, counted.performed)


def _sum(weights: Sequence[Weight]) -> Weight:
    return Weight(*(sum(column) for column in zip(*map(astuple, weights), strict=True)))


def _theirs(systems: Mapping[str, TimedSystem], compiled: bool) -> dict[str, TimedSystem]:
    found = {
        f"{name} (transformers)": _their_forward(system, compiled)
        for name, system in systems.items()
        if len(system.references) == 1 and (Path(system.references[0]) / "config.json").is_file()
    }
    if not found or any(system.spec.task == "zero-shot" for system in found.values()):
        raise OptionError("`transformers` times folders of image or text classifiers as transformers writes them")
    return found


def _their_forward(system: TimedSystem, compiled: bool) -> TimedSystem:
    from transformers import AutoModelForImageClassification, AutoModelForSequenceClassification

    images = system.spec.task == "image-classification"
    classes: Any = AutoModelForImageClassification if images else AutoModelForSequenceClassification
    # The same attention as in our own forward: torch's, on whichever backend it chooses.
    folder = Path(system.references[0])
    if (folder / ADAPTER).exists():  # transformers would load, or fetch, the network that it names in place of this one
        raise OptionError(f"{folder}: holds {ADAPTER}, which names another network: `transformers` needs one without")
    own = {"trust_remote_code": False, "local_files_only": True, "use_safetensors": True}
    model = classes.from_pretrained(folder, dtype=system.dtype, attn_implementation="sdpa", **own)
    model = model.eval().to(system.device)
    if compiled:
        compile_model(model)

    def answer(inputs: dict[str, Tensor]) -> Tensor:
        logits: Tensor = model(**inputs).logits
        return logits.float().softmax(-1)

    return replace(system, answers=(answer,), weight=replace(system.weight, performed=system.weight.multiply_adds))

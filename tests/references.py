"""Somebody else's models, tiny and random: what the variants of every architecture are built and run with.

What the tests know of an architecture stands in `tests/families/`, a file for each of those in `hydractl/families/`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.tensors import in_memory
from hydractl.model.hydra import from_checkpoint

if TYPE_CHECKING:
    from timm.models import VisionTransformer

    from hydractl.families.config import Fields

#: The modules of variants beside the tests of families, named like those of families (taggers have one of their own).
#: Their libraries are imported when a variant of theirs is built.
MODULES = (*("vit", "bert", "bert_kin", "clip", "modernbert", "token_classification"), *("timm_vit", "open_clip"))

#: Sizes of every variant; tests of other sizes put theirs in for a while.
CLASSES = 5
SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 24}
BATCH = 3

Built = tuple[nn.Module, dict[str, Tensor]]  # a model and inputs for it


@dataclass(frozen=True)
class Architecture:
    """What the tests need to know of the families in one file.

    Attributes:
        variants: by name, which starts with its family's; each test with a parameter `reference` runs all of them.
        typical: those that stand for the others where all would take too long.
        configs: the fields of a config that are honoured, and the library's config.
        inert: config fields without an effect on the logits of a trained classifier.
        bases: variants, each with what makes a network without classifier of its config.
    """

    variants: Mapping[str, Callable[[], Built]]
    typical: Sequence[str]
    configs: Sequence[tuple[type[Fields], Any]] = ()
    inert: frozenset[str] = frozenset()
    bases: Sequence[tuple[str, Callable[[Any], nn.Module]]] = ()


@dataclass(frozen=True)
class Reference:
    """Somebody else's model, inputs for it, and the logits `[B,C]` that its own forward gives."""

    name: str
    model: nn.Module
    inputs: dict[str, Tensor]

    @property
    def library(self) -> str:
        return type(self.model).__module__.partition(".")[0]

    @torch.no_grad()
    def logits(self) -> Tensor:
        if self.library == "timm":
            return self.model(self.inputs["pixel_values"])
        if self.library == "open_clip":
            return self.model.get_logits(self.inputs["pixel_values"], self.inputs["input_ids"])[0]
        output = self.model(**self.inputs)
        return output.logits_per_image if "logits_per_image" in output else output.logits

    def probabilities(self) -> Tensor:
        """As the library's pipelines make them of its logits, `[B,C]`."""
        several = getattr(getattr(self.model, "config", None), "problem_type", None) == "multi_label_classification"
        return self.logits().sigmoid() if several else self.logits().softmax(-1)

    def save(self, folder: Path) -> Path:
        if self.library == "timm":
            save_timm(self.model, folder)
        elif self.library == "open_clip":
            folder.mkdir(parents=True, exist_ok=True)
            save_file(self.model.state_dict(), folder / "open_clip_model.safetensors")
            (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": self.model.built_from}))
        else:
            self.model.save_pretrained(folder)
        return folder


def answers(checkpoint: Checkpoint, inputs: dict[str, Tensor], fast: bool = False) -> Tensor:
    """The logits of each member by our plain or fast forward, `[M,B,C]`."""
    model = from_checkpoint(checkpoint)
    with torch.inference_mode():
        return (model.optimize_for_inference() if fast else model)(**inputs).member_logits


def with_tensors(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> Checkpoint:
    """The checkpoint with these tensors beside, or in place of, its own."""
    lazy = {name: in_memory(t) for name, t in tensors.items()}
    return replace(checkpoint, tensors={**checkpoint.tensors, **lazy})


def architecture(module: str) -> Architecture:
    found: Architecture = import_module(f"tests.families.{module}").VARIANTS
    return found


def architectures() -> list[Architecture]:
    return [architecture(module) for module in MODULES]


def variants() -> list[str]:
    return [name for each in architectures() for name in each.variants]


def family_variants() -> list[str]:
    """One variant of each family."""
    return [name for each in architectures() for name in each.typical]


def drawn(name: str, seed: int, dtype: torch.dtype | None = None) -> Reference:
    """A variant with random numbers, of float64 unless another type is given."""
    # The module that is named like the variant comes first, so that mostly no other is imported.
    modules = sorted(MODULES, key=lambda module: module.split("_")[0] != name.split("-")[0])
    build = next(each.variants[name] for each in map(architecture, modules) if name in each.variants)
    torch.manual_seed(seed)
    return randomised(name, *build(), dtype or torch.float64)


def make_timm(name: str, **arguments: Any) -> VisionTransformer:
    """A model of timm that remembers its size and what it was made of, as timm itself does from version 1.0.31 on."""
    import timm

    size = arguments.get("img_size")
    sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
    overlay = {"input_size": (3, *sides)} if size else None
    model = timm.create_model(name, pretrained_cfg_overlay=overlay, **arguments)
    model.built_from = arguments
    return model


def save_timm(model: Any, folder: Path, **changes: Any) -> None:
    """As timm's own training script saves a model; `changes` are to the arguments it was made with."""
    from timm.models._hub import save_for_hf

    save_for_hf(model, str(folder), model_args={**model.built_from, **changes}, safe_serialization=True)


def randomised(name: str, model: nn.Module, inputs: dict[str, Tensor], dtype: torch.dtype = torch.float64) -> Reference:
    """The model as a reference, with numbers drawn for all of its parameters."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3 + (0.5 if parameter.ndim == 1 else 0.0))
    inputs = {key: value.to(dtype) if value.is_floating_point() else value for key, value in inputs.items()}
    return Reference(name, model.eval().to(dtype), inputs)


def uneven_members(dense: Checkpoint) -> list[Checkpoint]:
    """Three members over a trunk of one layer; the first has no units in the next, the second no heads in the last."""
    from hydractl.checkpoint.heads import member_heads
    from hydractl.checkpoint.layout import member_units
    from hydractl.surgery.slicing import drop_heads, drop_units

    heads = [head for head in member_heads(dense.heads, 0) if head.layer]
    units = [unit for unit in member_units(dense.layout, dense.spec, 0) if unit.layer]
    lost = [
        (heads[::3], {unit for unit in units if unit.layer == 1} | set(units[::5])),
        ({head for head in heads if head.layer == 2} | set(heads[1::4]), set(units[1::2])),
        (heads[2::3], units[2::7]),
    ]
    return [drop_units(drop_heads(dense, gone), without) for gone, without in lost]

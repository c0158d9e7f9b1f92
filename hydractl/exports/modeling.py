"""A Hydra as models of transformers: for pipelines, `Trainer` and `from_pretrained`.

Softmax of its logits is the mean of the members' probabilities.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from hydractl.checkpoint.calibration import Calibration, OodFit, PromisedSets
from hydractl.checkpoint.layout import Layout, stored_shapes
from hydractl.checkpoint.slots import slots
from hydractl.checkpoint.spec import spec_from_json
from hydractl.exports.configuration import HydraConfig
from hydractl.model.answering import OodHead
from hydractl.model.hydra import Hydra, HydraOutput


@dataclass
class HydraClassifierOutput(ModelOutput):
    """The result of a forward pass."""

    loss: Tensor | None = None  # the mean over members of their cross-entropy, if labels are given
    logits: Tensor | None = None  # `[B,C]`, the logarithm of the mean of the members' probabilities
    member_logits: Tensor | None = None  # `[B,M,C]`
    ood_score: Tensor | None = None  # `[B]`, higher = more out of distribution, if the model was calibrated
    typicality: Tensor | None = None  # `[B]`, the share of calibration samples that look at least as odd, likewise
    profile: Tensor | None = None  # `[B,L]`, that share by each layer alone, if the score reads all layers
    sets: Tensor | None = None  # `[B,C]`, true where a class is in the set that holds the right one, if one is promised


@dataclass
class HydraZeroShotOutput(ModelOutput):
    """The result of a zero-shot forward pass: logits `[B,C]` and `[B,M,C]` of images against texts."""

    logits_per_image: Tensor | None = None
    logits_per_text: Tensor | None = None
    member_logits: Tensor | None = None


@dataclass
class HydraEmbeddingOutput(ModelOutput):
    """The embeddings of a forward pass."""

    pooler_output: Tensor | None = None  # `[B,P]`, the mean of the members'
    member_embeddings: Tensor | None = None  # `[B,M,P]`
    ood_score: Tensor | None = None  # `[B]`, higher = more out of distribution, if the model was calibrated
    typicality: Tensor | None = None  # `[B]`, the share of calibration samples that look at least as odd, likewise
    profile: Tensor | None = None  # `[B,L]`, that share by each layer alone, if the score reads all layers


class HydraPreTrainedModel(PreTrainedModel):
    """The part that the models have in common."""

    config_class = HydraConfig
    base_model_prefix = "hydra"
    supports_gradient_checkpointing = False
    _keep_in_fp32_modules_strict: set[str] | list[str] | None = {"ood_head"}  # noqa: RUF012  (as its base has it)

    def __init__(self, config: HydraConfig) -> None:
        super().__init__(config)
        spec = spec_from_json(config.hydra["spec"])
        heads, units = (_kept(config.hydra.get(name, {})) for name in ("heads", "units"))
        layout = Layout(heads, frozenset(slots(spec)) - frozenset(config.hydra["separate"]), units)
        self.hydra = Hydra(spec, layout, stored_shapes(spec, layout)).to_empty(device=torch.get_default_device())
        sets = config.hydra.get("sets")
        promised = None if sets is None else PromisedSets(**sets)
        self.hydra.calibration = Calibration(config.hydra.get("temperature"), sets=promised)
        if (ood := config.hydra.get("ood")) is not None:
            state = {name: torch.zeros(shape) for name, shape in ood["shapes"].items()}
            self.hydra.ood_head = OodHead(OodFit(**ood["fit"]), state, persistent=True)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        # By the functions of `nn.init`: transformers keeps them, and only them, from what it has already loaded.
        for name, parameter in module.named_parameters(recurse=False):
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif (name == "weight" and parameter.ndim == 1) or name.endswith("scale"):
                nn.init.ones_(parameter)
            else:
                nn.init.normal_(parameter, std=0.02)

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """Saves as transformers does, and adds the code, so that the folder loads without this project."""
        super().save_pretrained(save_directory, *args, **kwargs)
        try:
            from hydractl.exports.folder import write_code
        except ImportError:  # a copy of this file far from the project, which transformers has copied along
            return
        write_code(Path(save_directory), force=True)

    def _classified(self, output: HydraOutput, labels: Tensor | None) -> HydraClassifierOutput:
        loss = None
        if labels is not None:
            members = output.member_logits / self.hydra.temperature
            loss = self.hydra.task.loss(members.float(), labels)
        return HydraClassifierOutput(
            loss=loss,
            logits=output.logits,
            member_logits=output.member_logits.transpose(0, 1),
            ood_score=output.ood_score,
            typicality=output.typicality,
            profile=output.profile,
            sets=output.sets,
        )


def _kept(towers: dict[str, Any]) -> dict[str, Any]:
    return {
        tower: tuple(None if kept is None else tuple(map(tuple, kept)) for kept in layers)
        for tower, layers in towers.items()
    }


class HydraForImageClassification(HydraPreTrainedModel):
    """A Hydra that classifies images."""

    main_input_name = "pixel_values"

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None, **_: Any) -> HydraClassifierOutput:
        """Classifies images `[B,C,H,W]`; labels `[B]` add a loss."""
        return self._classified(self.hydra(pixel_values=pixel_values), labels)


class HydraForSequenceClassification(HydraPreTrainedModel):
    """A Hydra that classifies texts."""

    main_input_name = "input_ids"

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **_: Any,
    ) -> HydraClassifierOutput:
        """Classifies texts `[B,T]`; labels `[B]` add a loss."""
        output = self.hydra(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return self._classified(output, labels)


class HydraForTokenClassification(HydraForSequenceClassification):
    """A Hydra that labels each token of texts `[B,T]`; labels `[B,T]`, -100 where there is none, add a loss."""


class HydraForZeroShotImageClassification(HydraPreTrainedModel):
    """A Hydra that finds the text that fits an image."""

    main_input_name = "pixel_values"

    def forward(
        self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> HydraZeroShotOutput:
        """Compares images `[B,C,H,W]` with texts `[C,T]`."""
        if (padding := self.config.hydra.get("padding")) is not None:  # it is text to the model
            missing = max(padding["length"] - input_ids.shape[1], 0)
            input_ids, attention_mask = F.pad(input_ids, (0, missing), value=padding["id"]), None
        output = self.hydra(pixel_values=pixel_values, input_ids=input_ids, attention_mask=attention_mask)
        return HydraZeroShotOutput(
            logits_per_image=output.logits,
            logits_per_text=output.logits.T,
            member_logits=output.member_logits.transpose(0, 1),
        )


class HydraModel(HydraPreTrainedModel):
    """A Hydra that embeds images or texts."""

    @property
    def main_input_name(self) -> str:  # type: ignore[override]
        """The name of the input."""
        return "pixel_values" if self.hydra.spec.modality == "image" else "input_ids"

    def forward(
        self,
        pixel_values: Tensor | None = None,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **_: Any,
    ) -> HydraEmbeddingOutput:
        """Embeds images `[B,C,H,W]` or texts `[B,T]`."""
        output = self.hydra(pixel_values, input_ids, attention_mask, token_type_ids)
        return HydraEmbeddingOutput(
            pooler_output=output.probabilities,
            member_embeddings=output.member_logits.transpose(0, 1),
            ood_score=output.ood_score,
            typicality=output.typicality,
            profile=output.profile,
        )

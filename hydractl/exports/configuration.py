"""The config of a Hydra as a model of transformers."""

from typing import Any

from transformers import PreTrainedConfig


class HydraConfig(PreTrainedConfig):
    """Labels as every config has them, and under `hydra` the network: its spec, heads kept, what members share."""

    model_type = "hydra"

    def __init__(self, hydra: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """
        Args:
            hydra: spec (as `dataclasses.asdict` has it), heads, separate, temperature.
            kwargs: what every config of transformers takes, id2label among it.
        """
        super().__init__(**kwargs)
        self.hydra = hydra or {}

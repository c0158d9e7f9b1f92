"""Dropout at test time, with masks that no other thread, process or earlier batch has a part in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hydractl.bounds import PASSES, real, whole
from hydractl.errors import OptionError
from hydractl.evaluation.results import Dropout
from hydractl.evaluation.systems import split_options
from hydractl.model.attention import attend_by_products
from hydractl.model.fast.optimize import use_fast_products
from hydractl.model.hydra import Hydra

if TYPE_CHECKING:
    from hydractl.evaluation.checkpoints import NetworkSpec

EXAMPLE = "MODEL,mc-dropout=PASSES,p=P, as in vit,mc-dropout=10,p=0.1"


def parse_dropout(text: str) -> NetworkSpec | None:
    """What `MODEL,mc-dropout=PASSES,p=P` asks for; None for texts without either option.

    Raises:
        OptionError: other options beside them, or numbers out of range.
    """
    from hydractl.evaluation.checkpoints import NetworkSpec, parse_deep_ensemble

    body, options = split_options(text)
    if not options.keys() & {"mc-dropout", "p"}:
        return None
    if unknown := sorted(options.keys() - {"mc-dropout", "p"}):
        raise OptionError(f"{text}: {unknown[0]!r} is no option of a system: write {EXAMPLE}")
    passes = whole(options.get("mc-dropout", ""), 1, PASSES)
    rate = real(options["p"], 0, 1) if "p" in options else None
    if passes is None or ("p" in options and (rate is None or not 0 < rate < 1)):
        raise OptionError(f"{text}: expected 1 to {PASSES} passes, and p above 0 and below 1: write {EXAMPLE}")
    several = parse_deep_ensemble(body)
    return NetworkSpec(several.networks if several else (body,), Dropout(passes, rate))


def with_dropout(model: Hydra, dropout: Dropout, name: str) -> Hydra:
    """The model with dropout on at test time, at the rate asked for or at its own.

    Raises:
        OptionError: no rate given and none of its own.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    if dropout.rate is None and not any(layer.p for layer in layers):
        raise OptionError(f"{name}: was trained without dropout: say how much, as in {name},mc-dropout=10,p=0.1")
    for layer in layers:
        layer.p = layer.p if dropout.rate is None else dropout.rate
    use_fast_products(model)
    return model.train()


class SeededDropout(TorchFunctionMode):
    """While it is entered, dropout draws its masks from a generator, for this thread alone.

    Torch's own generator serves all threads, so that what a batch draws would depend on what runs beside it.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is F.dropout:
            return self._drop(*args, **kwargs)
        if function is F.scaled_dot_product_attention and kwargs.get("dropout_p"):
            with self:  # torch's own function takes no generator
                return attend_by_products(*args, **kwargs)
        return function(*args, **kwargs)

    def _drop(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        return x * torch.empty_like(x).bernoulli_(1 - p, generator=self.generator).div_(1 - p)

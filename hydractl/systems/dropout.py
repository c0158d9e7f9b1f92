"""Networks with dropout on at test time (Gal & Ghahramani 2016), the same draws wherever a batch is computed."""

import hashlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hydractl.errors import OptionError
from hydractl.model.attention import attend_by_products
from hydractl.model.fast.optimize import use_fast_products
from hydractl.model.hydra import Hydra
from hydractl.systems.description import Dropout
from hydractl.systems.system import SetKey


def batch_seed(seed: int, key: SetKey, position: int) -> int:
    """Returns the seed of a batch of a set that begins with the sample at a position."""
    digest = hashlib.blake2b(f"{seed} {key.path} {position}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def with_dropout(model: Hydra, dropout: Dropout, name: str) -> Hydra:
    """Returns the model with dropout on at test time, at the given rate or at its own."""
    layers = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    if dropout.rate is None and not any(layer.p for layer in layers):
        raise OptionError(f"{name}: was trained without dropout: give a rate, as in {name},mc-dropout=10,p=0.1")
    for layer in layers:
        layer.p = layer.p if dropout.rate is None else dropout.rate
    use_fast_products(model, model.spec)
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

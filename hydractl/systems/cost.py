"""The cost of a model: parameters stored, and multiply-adds per sample; and random inputs to count or time by."""

from copy import copy

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import normalize

from hydractl.checkpoint.arithmetic import TEXT_TOKENS, input_tokens, multiply_adds
from hydractl.checkpoint.layout import Layout, stored_shapes
from hydractl.checkpoint.slots import parameter_count
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import ImageEmbeddings
from hydractl.model.hydra import Hydra
from hydractl.systems.system import Cost


def synthetic_inputs(
    spec: ModelSpec, batch: int, device: torch.device | str = "cpu", tokens: int = TEXT_TOKENS, seed: int = 0
) -> dict[str, Tensor]:
    """Returns a batch of noise as arguments of `Hydra.forward`; equal seeds give equal noise on every device."""
    embeddings = spec.towers[0].embeddings
    generator = torch.Generator().manual_seed(seed)
    if isinstance(embeddings, ImageEmbeddings):
        size = (batch, embeddings.channels, *embeddings.image_size)
        if str(device) == "meta":
            return {"pixel_values": torch.empty(size, device="meta")}
        return {"pixel_values": torch.randn(size, generator=generator).to(device)}
    # Padding is an id among the first few, and where positions depend on it a text of padding has none.
    low, shape = min(5, embeddings.vocabulary - 1), (batch, input_tokens(spec, tokens))
    return {"input_ids": torch.randint(low, embeddings.vocabulary, shape, generator=generator).to(device)}


def give_synthetic_classes(model: Hydra, count: int = 100) -> None:
    """Lets a zero-shot model compare with random class embeddings; other models have classes of their own."""
    weight = getattr(model, "logit_scale", None)
    if weight is None:
        return
    noise = torch.randn(1, count, model.spec.projection or 1, generator=torch.Generator().manual_seed(0))
    model.class_embeddings = normalize(noise, dim=-1).to(weight.device, weight.dtype)


def cost(model: Hydra) -> Cost:
    """Returns the cost of a model, counted by running it without numbers; nothing is computed, whatever its size."""
    spec, layout, classes = model.spec, model.layout, model.class_embeddings
    return Cost(
        members=model.members,
        parameters=parameter_count(stored_shapes(spec, layout)),
        multiply_adds=multiply_adds(spec, layout) if classes is None else counted_multiply_adds(spec, layout, classes),
        performed=_count(model),
        tokens=input_tokens(spec),
    )


def counted_multiply_adds(spec: ModelSpec, layout: Layout, class_embeddings: Tensor | None = None) -> int:
    """Returns what `multiply_adds` does, counted by running the network without numbers; for any count of classes."""
    published = Hydra(spec, layout, stored_shapes(spec, layout)).eval()
    published.class_embeddings = class_embeddings
    return _count(published)


def _count(model: Hydra) -> int:
    from torch.utils.flop_counter import FlopCounterMode  # which imports triton where there is one

    ghosts: dict[str, Tensor] = {
        name: nn.Parameter(tensor.to("meta"), requires_grad=False) for name, tensor in model.named_parameters()
    }
    ghosts |= {name: tensor.to("meta") for name, tensor in model.named_buffers()}
    ghost = copy(model)  # its modules are the model's own
    if ghost.class_embeddings is None:
        give_synthetic_classes(ghost, 1)
    if ghost.class_embeddings is not None:
        ghost.class_embeddings = ghost.class_embeddings.to("meta")
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), counter:
        functional_call(ghost, ghosts, kwargs=synthetic_inputs(model.spec, 1, "meta"))
    return int(counter.get_total_flops() // 2)

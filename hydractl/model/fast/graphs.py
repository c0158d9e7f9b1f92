"""Forward passes recorded as CUDA graphs: one launch instead of hundreds, for which a GPU waits at small batches."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

MOST = 64  # shapes that are kept
STEP = 16  # texts are padded to a multiple of so many tokens, or there would be a shape for each length

Shapes = tuple[tuple[str, torch.Size, torch.dtype], ...]
Outputs = Sequence[Any]  # tensors, several of them, or None


class Recording(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: Mapping[str, Tensor]  # the graph reads them
    outputs: Outputs  # the graph writes them


class Recorder:
    """Records a forward pass the second time that a shape of inputs comes, and replays it from then on.

    A shape that comes once, such as a last batch, is not worth a recording. All recordings share one pool of memory,
    so outputs are copied before the next one runs.
    """

    def __init__(self, forward: Callable[..., Outputs]) -> None:
        """
        Args:
            forward: computes on the GPU alone and reads no number of a tensor; takes tensors by name.
        """
        self.forward = forward
        self.known: dict[Shapes, Recording | None] = {}
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, inputs: Mapping[str, Tensor]) -> Outputs:
        """Returns what the forward pass returns for these inputs."""
        key: Shapes = tuple((name, tensor.shape, tensor.dtype) for name, tensor in sorted(inputs.items()))
        if key not in self.known:
            self._forget()
            self.known[key] = None
            return self.forward(**inputs)
        # Tensors of inference mode could not be written outside of it later.
        with torch.inference_mode(False), torch.no_grad():
            recording = self.known.pop(key) or self._record(inputs)
            self.known[key] = recording  # the last in order, so that the first is the one that waited longest
            for name, tensor in inputs.items():
                recording.inputs[name].copy_(tensor)
            recording.graph.replay()
            return tuple(_copied(output) for output in recording.outputs)

    def _forget(self) -> None:
        if len(self.known) >= MOST:
            del self.known[next(iter(self.known))]

    def _record(self, inputs: Mapping[str, Tensor]) -> Recording:
        copies = {name: tensor.clone() for name, tensor in inputs.items()}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.forward(**copies)  # libraries allocate what they need at their first call
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            outputs = self.forward(**copies)
        return Recording(graph, copies, outputs)


def padded_texts(inputs: Mapping[str, Tensor], padding: int, longest: int) -> dict[str, Tensor]:
    """Returns texts `[B,T]` with T rounded up to a multiple of `STEP`; what is added does not count.

    Args:
        inputs: `input_ids`, and perhaps `attention_mask` and `token_type_ids`; others stay as they are.
        padding: the id to add.
        longest: tokens that the model takes at most.
    """
    ids = inputs["input_ids"]
    missing = min(-ids.shape[1] % STEP, longest - ids.shape[1])
    if missing <= 0:
        return dict(inputs)
    mask = inputs.get("attention_mask", torch.ones_like(ids))
    fills = {"input_ids": padding, "attention_mask": 0, "token_type_ids": 0}
    return {
        name: F.pad(tensor, (0, missing), value=fills[name]) if name in fills else tensor
        for name, tensor in {**inputs, "attention_mask": mask}.items()
    }


def _copied(output: Tensor | Sequence[Tensor] | None) -> Tensor | Sequence[Tensor] | None:
    if isinstance(output, Tensor):
        return output.clone()
    return None if output is None else tuple(tensor.clone() for tensor in output)

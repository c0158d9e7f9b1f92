"""The one model: M >= 1 members in one forward pass, made from a checkpoint and back."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from hydractl.checkpoint.calibration import NOT_CALIBRATED, Calibration
from hydractl.checkpoint.contents import Checkpoint, trunk_depth
from hydractl.checkpoint.heads import Head, KeptHeads, without
from hydractl.checkpoint.layout import KeptUnits, Layout, remaining
from hydractl.checkpoint.slots import slots
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tensors import LazyTensor, TensorMap, kind_of
from hydractl.checkpoint.tower_spec import TextEmbeddings
from hydractl.errors import OptionError
from hydractl.model.answering import Answering, BatchAnswers, OodHead, RawPreprocessor
from hydractl.model.encoder import Hidden, Tower, mean_token
from hydractl.model.linear import Linear, Stored, empty
from hydractl.ood.score import Outputs
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Answers
from hydractl.text import counted, printable

if TYPE_CHECKING:
    from hydractl.model.fast.graphs import Recorder

TEMPLATE = "A photo of a {label}."


class HydraOutput(NamedTuple):
    """The result of one forward pass.

    Attributes:
        member_logits: `[M,B,C]`, in the model's dtype; of a model that embeds the members' embeddings `[M,B,P]`,
            `[M,B,T,C]` where each token is labelled, and likewise below.
        probabilities: `[B,C]`, the mean over members of their softmax probabilities, of their sigmoids for several
            labels or one logit with a sigmoid, or of their numbers or embeddings; at least float32.
        logits: `[B,C]`, the logarithm of `probabilities` p, log(p / (1 - p)) where they are of sigmoids, or the
            numbers once more; always finite.
        features: `[M,B,D']`, the input of each member's classifier: pooled tokens, the mean of all that count where
            each is labelled, or a zero-shot model's embeddings of unit length.
        ood_score: `[B]`, higher = more OOD, at least float32; None unless the model was calibrated, and in training.
        typicality: `[B]`, the share of calibration samples that look at least as odd, 0 to 1; None likewise.
        profile: `[B,L]`, that share by each layer alone; None unless the OOD score reads all layers.
        sets: `[B,C]`, true where a class is in the set that holds the right one as often as promised; None unless the
            model was calibrated for sets.
        hidden: `[1 or M,B,D]` after each layer but the last, the mean token; empty unless they are asked for.
    """

    member_logits: Tensor
    probabilities: Tensor
    logits: Tensor
    features: Tensor
    ood_score: Tensor | None = None
    typicality: Tensor | None = None
    profile: Tensor | None = None
    sets: Tensor | None = None
    hidden: Sequence[Tensor] = ()

    @property
    def own(self) -> BatchAnswers:
        """The members' answers, with the numbers of the model's own score."""
        return BatchAnswers(self.member_logits, self.ood_score, self.typicality, self.profile)

    def cut(self, tokens: int) -> Self:
        """Returns the output for the first tokens of texts where each is labelled; else the same output."""
        if self.member_logits.ndim < 4:  # [M,B,C], not [M,B,T,C]
            return self
        logits, p, log_p = (each[..., :tokens, :] for each in (self.member_logits, self.probabilities, self.logits))
        return self._replace(member_logits=logits, probabilities=p, logits=log_p)


class Hydra(nn.Module):
    """A classifier of M members that share what they can ([HE] 4.2).

    Its parameters carry the names and shapes of the file. Built by `from_checkpoint`; `hydractl.load` adds the
    preprocessing that `predict` needs.
    """

    logit_bias: nn.Parameter | None
    vision: Tower
    text: Tower
    classifier: Linear
    distillation_classifier: Linear

    def __init__(self, spec: ModelSpec, layout: Layout, shapes: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.spec, self.layout, self.members = spec, layout, layout.members
        self.task = find_task(spec.task)
        # Layers that members share, whose hidden states are the same for all of them.
        self.trunk = trunk_depth(spec, layout, spec.towers[0].name)
        stored = Stored(shapes, layout)
        for tower in spec.towers:
            self.add_module(tower.name, Tower(tower, stored))
        if "logit_scale" in shapes:
            self.logit_scale = empty(shapes["logit_scale"])
            bias = shapes.get("logit_bias")
            self.register_parameter("logit_bias", empty(bias) if bias is not None else None)
        elif spec.classes is not None:
            self.dropout = nn.Dropout(spec.classifier_dropout)
            for name in ("classifier", "distillation_classifier") if spec.distilled else ("classifier",):
                self.add_module(name, Linear(name, stored))
        self.labels: tuple[str, ...] | None = None
        self.calibration: Calibration = NOT_CALIBRATED
        self.ood_head: OodHead | None = None
        self.class_embeddings: Tensor | None = None  # [G,C,P], of the prompts a zero-shot model compares with
        self.class_prompts: dict[str, Tensor] | None = None  # [C,T] each, of which they were made
        self.origin: Checkpoint | None = None  # all but the tensors of what it was built from
        self.preprocessor: RawPreprocessor | None = None
        self.recorder: Recorder | None = None  # of forward passes on a GPU
        self.stored_dtype: torch.dtype | None = None  # narrower than the weights in memory
        self.loaded: dict[str, int] = {}  # how often each parameter had changed when it was loaded

    @property
    def heads(self) -> KeptHeads:
        """The heads that each member keeps."""
        return self.layout.heads

    @property
    def units(self) -> KeptUnits:
        """The MLP units that each member keeps, of layers in which any are missing."""
        return self.layout.units

    @property
    def temperature(self) -> float:
        """The number that divides the logits of each member."""
        return self.calibration.divisor

    def __repr__(self) -> str:
        counts = (
            "+".join(str(sum(len(kept[member]) for kept in self.heads[tower.name])) for member in range(self.members))
            + f" of {tower.layers * tower.heads} ({tower.name})"
            for tower in self.spec.towers
        )
        facts = {
            "family": f"{self.origin.family if self.origin else 'unknown'}, {self.spec.task}",
            "members": self.members,
            "heads": ", ".join(counts),
            "labels": "none" if self.labels is None else counted(self.labels),
            "OOD score": self.ood_head.fit.score if self.ood_head else "none: hydractl.calibrate fits one",
        }
        return "\n".join(["Hydra", *(f"  {name:<9}  {printable(str(fact))}" for name, fact in facts.items())])

    def forward(
        self,
        pixel_values: Tensor | None = None,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        every_layer: bool = False,
    ) -> HydraOutput:
        """Classifies a batch.

        Args:
            pixel_values: `[B,channels,height,width]` images, for a model with a vision tower.
            input_ids: `[B,T]` texts; for a zero-shot model `[C,T]` class prompts, unless `encode_classes` has them.
            attention_mask: as `input_ids`, non-zero where a token counts; all count without it.
            token_type_ids: as `input_ids`.
            every_layer: whether to return the mean token after each layer too.

        Raises:
            OptionError: an input that this model's task needs is missing.
        """
        texts = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        if self.recorder is not None and not every_layer:
            inputs = {name: x for name, x in {"pixel_values": pixel_values, **texts}.items() if x is not None}
            output = HydraOutput(*self.recorder(inputs if input_ids is None else self._padded(inputs)))
            return output if input_ids is None else output.cut(input_ids.shape[1])
        return self._answer(pixel_values, **texts, every_layer=every_layer)

    def _padded(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        from hydractl.model.fast.graphs import padded_texts

        texts = cast(TextEmbeddings, self.spec.tower("text").embeddings)
        return padded_texts(inputs, texts.padding or 0, texts.max_tokens)

    def _answer(
        self,
        pixel_values: Tensor | None = None,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        every_layer: bool = False,
    ) -> HydraOutput:
        scores_layers = self.ood_head is not None and self.ood_head.row.reads == "layers" and not self.training
        hidden: Hidden | None = [] if every_layer or scores_layers else None
        if self.spec.modality == "image":
            pooled = self.vision.forward_image(_given(pixel_values, "pixel_values"), hidden)
        else:
            texts = _given(input_ids, "input_ids"), attention_mask, token_type_ids
            pooled = self.text.forward_text(*texts, hidden=hidden)
        return self._finish(*self.task.read(self, pooled, input_ids, attention_mask), hidden)

    def classify(self, pooled: Tensor) -> Tensor:
        """Returns logits `[G,B,C]` of pooled tokens `[G,B,D]`, or the embeddings `[G,B,D']` of a model that embeds.

        Of each token `[G,B,T,D]`, returns logits `[G,B,T,C]`.
        """
        if self.spec.classes is None:
            return self.embed(self.spec.towers[0].name, pooled)
        pooled = self.dropout(pooled)
        if self.spec.distilled:
            first, second = pooled.chunk(2, -1)
            pair: Tensor = self.classifier(first) + self.distillation_classifier(second)
            return pair / 2
        return self.classifier(pooled)

    def classifier_weights(self) -> tuple[Tensor, Tensor]:
        """Returns `[M,C,D']` and `[M,C]`, the affine map from each member's features to its logits.

        Raises:
            OptionError: a zero-shot model without classes.
        """
        if self.spec.classes is None:
            weight = self._known(self.class_embeddings) * self.logit_scale.exp().view(-1, 1, 1)
            bias = weight.new_zeros(1, 1) if self.logit_bias is None else self.logit_bias.view(-1, 1)
            bias = bias.expand(-1, weight.shape[1])
        else:
            heads = [self.classifier, self.distillation_classifier] if self.spec.distilled else [self.classifier]
            weights, biases = zip(*((head.weight, head.bias) for head in heads), strict=True)
            weight = torch.cat(weights, -1) / len(heads)
            bias = torch.stack(biases).mean(0)
        return weight.expand(self.members, -1, -1), bias.expand(self.members, -1)

    @staticmethod
    def mean_of_tokens(tokens: Tensor, mask: Tensor | None) -> Tensor:
        """Returns the mean `[G,B,D]` of the tokens `[G,B,T,D]` that count."""
        return mean_token(tokens, mask)[:, :, 0]

    def compare_prompts(self, images: Tensor, texts: Tensor | None, mask: Tensor | None) -> Tensor:
        """Returns logits `[G,B,C]` of embeddings `[G,B,P]` of images, for prompts `[C,T]` or the model's classes."""
        classes = self.class_embeddings if texts is None else self.embed_texts(texts, mask)
        return self.compare(images, self._known(classes).to(images.dtype))

    def compare(self, images: Tensor, texts: Tensor) -> Tensor:
        """Returns logits `[G,B,C]` of embeddings `[G,B,P]` of images and `[G,C,P]` of texts."""
        logits = torch.matmul(images, texts.mT) * self.logit_scale.exp().view(-1, 1, 1)
        return logits if self.logit_bias is None else logits + self.logit_bias.view(-1, 1, 1)

    @staticmethod
    def _known(classes: Tensor | None) -> Tensor:
        if classes is None:
            raise OptionError("a zero-shot model needs classes: pass `classes`, or call set_classes(labels)")
        return classes

    def embed(self, tower: str, pooled: Tensor) -> Tensor:
        """Returns embeddings `[G,B,P]` of pooled tokens `[G,B,D]`; those of a zero-shot model have unit length."""
        module = cast(Tower, self.get_submodule(tower))
        projected: Tensor = pooled if module.projection is None else module.projection(pooled)
        embedded = projected / projected.norm(dim=-1, keepdim=True) if self.spec.embeds_unit else projected
        return embedded[..., : self.spec.truncate_dim]

    def embed_texts(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Returns unit-length embeddings `[G,C,P]` of class prompts `[C,T]`."""
        return self.embed("text", self.text.forward_text(input_ids, attention_mask))

    def _finish(self, member_logits: Tensor, features: Tensor, hidden: Hidden | None) -> HydraOutput:
        member_logits = member_logits.expand(self.members, *member_logits.shape[1:])
        logits = self.task.link(member_logits, self.temperature)
        layers = [
            layer if number < self.trunk else layer.expand(self.members, -1, -1)
            for number, layer in enumerate(hidden or ())
        ]
        probabilities, promised = self.task.probabilities(logits), self.calibration.sets
        sets = None if promised is None else _class_sets(probabilities, promised.least)
        features = features.expand(self.members, -1, -1)
        output = HydraOutput(member_logits, probabilities, logits, features, sets=sets, hidden=tuple(layers))
        if self.ood_head is None or self.training:
            return output
        odd = self.ood_head(Outputs(member_logits, self.temperature, output.features, layers))
        profile = None if odd.profile is None else odd.profile.T
        return output._replace(ood_score=odd.score, typicality=odd.typicality, profile=profile)

    def optimize_for_inference(self, graphs: bool = False) -> Self:
        """Makes this model fast: the same answers up to rounding, but no gradients and no training from now on.

        See `hydractl.model.fast.optimize`. The state dict keeps the names and shapes of the file.

        Args:
            graphs: on a CUDA device, record the forward pass once a shape of inputs, which saves launches at small
                batches. The model must then stay where it is and as it is, but for `set_classes`.

        Raises:
            OptionError: `graphs` for a model that is on no CUDA device.
        """
        from hydractl.model.fast.optimize import optimize

        optimize(self, self.spec, self.layout)
        if graphs:
            self._record()
        return self

    def _record(self) -> None:
        from hydractl.model.fast.graphs import Recorder

        if (device := next(self.parameters()).device).type != "cuda":
            raise OptionError(f"`graphs` needs a CUDA device, the model is on {device}: leave it out, or load it there")
        self.recorder = Recorder(self._answer)

    def set_classes(self, labels: Sequence[str], template: str = TEMPLATE) -> None:
        """Sets the classes of a zero-shot model; each member embeds the prompts once.

        Args:
            labels: class names, in the order of the logits.
            template: a prompt with `{label}` where the name goes.

        Raises:
            OptionError: not a zero-shot model, no labels or one twice, or a template without `{label}`.
        """
        self.class_prompts = self._preprocess(self.task.prompts(labels, template))
        with torch.no_grad():
            self.class_embeddings = self.embed_texts(**self.class_prompts)
        self.labels = tuple(labels)
        if self.recorder is not None:
            self._record()
        if self.ood_head is not None and self.ood_head.row.reads != "layers":
            self.ood_head, self.calibration = None, replace(self.calibration, ood=None)

    def predict(
        self,
        samples: Iterable[object] | object,
        batch_size: int = 64,
        on_batch: Callable[[int], None] = lambda samples: None,
    ) -> Answers:
        """Answers raw images or texts, preprocessed as the checkpoint specifies.

        Args:
            samples: one image or text, or any number of them. An image is one of Pillow, a file's content or path, or
                a uint8 array `[height,width,3]`. Images of a generator are read as they are needed, so that memory
                does not have to hold them all.
            batch_size: samples per forward pass, 1 or more.
            on_batch: receives the size of each finished batch.

        Raises:
            DataError: there are no samples, the model does not take their kind, or its logits are not finite.
            OptionError: the model was built without preprocessing, or is zero-shot without classes.
        """
        return self.answering().predict(samples, batch_size, on_batch)

    def answering(self) -> Answering:
        """Returns the network with all that makes predictions of its answers."""
        return Answering(self._answer_batch, self.preprocessing(), self)

    def _answer_batch(self, inputs: dict[str, Tensor]) -> BatchAnswers:
        device = next(self.parameters()).device
        return self(**{name: tensor.to(device) for name, tensor in inputs.items()}).own

    def _preprocess(self, samples: Iterable[object]) -> dict[str, Tensor]:
        device = next(self.parameters()).device
        return {name: tensor.to(device) for name, tensor in self.preprocessing()(samples).items()}

    def preprocessing(self) -> RawPreprocessor:
        """Returns the preprocessing that `predict` needs; raises OptionError if the model was built without."""
        if self.preprocessor is None:
            raise OptionError("this model was built without preprocessing: open it with hydractl.load")
        return self.preprocessor


def _class_sets(probabilities: Tensor, least: Sequence[float]) -> Tensor:
    """Returns which classes are in each set, `[B,C]`; see `hydractl.tasks.classes.class_sets`."""
    best = probabilities.amax(-1, keepdim=True)
    return (probabilities >= probabilities.new_tensor(least)) | (probabilities == best)


def _given(tensor: Tensor | None, name: str) -> Tensor:
    if tensor is None:
        raise OptionError(f"this model needs {name}")
    return tensor


def from_checkpoint(
    checkpoint: Checkpoint, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Hydra:
    """Returns the model in a checkpoint, in eval mode; its weights are read once.

    Args:
        dtype: of the weights. Default: the stored one, the widest if there are several.

    Raises:
        CheckpointError: a tensor cannot be read or holds NaN.
    """
    model_dtype = dtype or checkpoint.dtype
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    model = Hydra(checkpoint.spec, checkpoint.layout, shapes)
    state = {name: tensor.load().to(device, model_dtype) for name, tensor in checkpoint.tensors.items()}
    model.load_state_dict(state, assign=True)
    model.labels = checkpoint.labels
    ood = checkpoint.calibration.ood
    if ood is not None:
        model.ood_head = OodHead.of(ood, device, model_dtype)
        # Nothing of it may hold the open file, which would keep the model from being copied and pickled.
        ood = replace(ood, tensors=_in_memory(ood.tensors))
    model.calibration = replace(checkpoint.calibration, ood=ood)
    model.origin = replace(checkpoint, tensors={}, calibration=model.calibration)
    model.loaded = _changes(model)
    return model.eval().requires_grad_(False)


def _changes(model: Hydra) -> dict[str, int]:
    return {name: p._version for name, p in model.named_parameters() if not p.is_inference()}


def to_checkpoint(model: Hydra) -> Checkpoint:
    """Returns the checkpoint that `model` was built from, with the model's present numbers.

    What was fitted to its answers is left out where an optimiser or other code has changed a parameter since.

    Raises:
        OptionError: the model was not built from a checkpoint.
    """
    if model.origin is None:
        raise OptionError("this model was not built from a checkpoint: open one with hydractl.load")
    state = {name: _narrowed(tensor, model.stored_dtype) for name, tensor in model.state_dict().items()}
    changed = any(count > model.loaded.get(name, count) for name, count in _changes(model).items())
    calibration = NOT_CALIBRATED if changed else model.origin.calibration
    return replace(model.origin, tensors=_in_memory(state), calibration=calibration)


def _narrowed(tensor: Tensor, stored: torch.dtype | None) -> Tensor:
    """Returns a tensor in the type that it was stored in, if that holds its numbers."""
    if stored is None or not torch.equal((narrow := tensor.to(stored)).to(tensor.dtype), tensor):
        return tensor
    return narrow


def _in_memory(tensors: Mapping[str, Tensor | LazyTensor]) -> TensorMap:
    """Returns tensors as those of a checkpoint, with their numbers in memory."""
    read = {name: tensor.load() if isinstance(tensor, LazyTensor) else tensor for name, tensor in tensors.items()}
    return {name: LazyTensor(tuple(t.shape), kind_of(t.dtype), t.detach().cpu) for name, t in read.items()}


def without_heads(model: Hydra, gone: Set[Head]) -> Hydra:
    """Returns a single-member model without some heads; all tensors that they have no part in are shared with it."""
    if not gone:
        return model
    layout, table = replace(model.layout, heads=without(model.heads, gone)), slots(model.spec)

    def sliced(name: str, tensor: Tensor) -> Tensor:
        before, after = (each.division(table[name], model.spec) for each in (model.layout, layout))
        entries = remaining(before, after)
        if entries is None or after is None:
            return tensor
        return tensor.index_select(after.axis, torch.tensor(entries, dtype=torch.long, device=tensor.device))

    return _rebuilt(model, layout, {name: sliced(name, tensor) for name, tensor in model.state_dict().items()})


def copied(model: Hydra) -> Hydra:
    """Returns a second model with the first one's tensors, until a parameter is given others."""
    return _rebuilt(model, model.layout, model.state_dict())


def _rebuilt(model: Hydra, layout: Layout, state: Mapping[str, Tensor]) -> Hydra:
    rebuilt = Hydra(model.spec, layout, {name: tuple(tensor.shape) for name, tensor in state.items()})
    rebuilt.load_state_dict(state, assign=True)
    rebuilt.labels, rebuilt.preprocessor, rebuilt.class_prompts = model.labels, model.preprocessor, model.class_prompts
    rebuilt.calibration = Calibration(model.calibration.temperature)
    return rebuilt.eval().requires_grad_(False)

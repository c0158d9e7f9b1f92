"""Schemas of the fields of a config.json that decide what a network computes; other fields are ignored.

A field may have one value only where its other values have an effect that is not supported.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator

from hydractl.checkpoint.spec import ModelSpec, TaskName
from hydractl.checkpoint.tower_spec import RANGES, Activation, ImageEmbeddings, TextEmbeddings, TowerSpec
from hydractl.errors import CheckpointError
from hydractl.schema import Checked, Items, Origin, Schema, document


def within(name: str) -> Any:
    """Returns the range of a spec's field, for the field of a config.json that it is read from."""
    least, most = RANGES[name]
    return Checked(ge=least, le=most)


def _pair(value: Any) -> Any:
    return (value, value) if type(value) is int else tuple(value) if isinstance(value, list) else value


def _numbered(names: dict[str, Any]) -> dict[str, Any]:
    if missing := next((str(i) for i in range(len(names)) if str(i) not in names), None):
        raise ValueError(f"has {len(names)} classes but no class {missing}: number them from 0")
    return names


Layers = Annotated[int, within("layers")]
Heads = Annotated[int, within("heads")]
Width = Annotated[int, within("width")]
MlpWidth = Annotated[int, within("mlp_width")]
MlpRatio = Annotated[float, Checked(gt=0, le=1000)]
NormEps = Annotated[float, within("norm_eps")]
Vocabulary = Annotated[int, within("vocabulary")]
Positions = Annotated[int, within("positions")]
TokenTypes = Annotated[int, within("token_types")]
Channels = Annotated[int, within("channels")]
Registers = Annotated[int, within("registers")]
Classes = Annotated[int, within("classes")]
Projection = Annotated[int, within("projection")]
ImageSide = Annotated[int, within("image_size")]
PatchSide = Annotated[int, within("patch_size")]
Eos = Annotated[int, within("eos")]
Padding = Annotated[int, within("padding")]
#: A dropout probability; null is 0.
Rate = Annotated[float, Checked(ge=0, lt=1)] | None
#: A dropout probability in a place that has none here.
NoRate = Annotated[float, Checked(ge=0, le=0)] | None
Base = Annotated[float, within("base")]
Reach = Annotated[int, within("reach")]
#: Height and width, given as one number or as two.
ImageSize = Annotated[tuple[ImageSide, ImageSide], BeforeValidator(_pair)]
PatchSize = Annotated[tuple[PatchSide, PatchSide], BeforeValidator(_pair)]
#: A library's name for an architecture, a layer or a setting.
Name = Annotated[str, Checked(min_length=1, max_length=200)]
#: Class numbers to names.
Labels = Annotated[
    dict[str, Annotated[str, Checked(max_length=1000)] | int], Checked(_numbered, max_length=int(RANGES["classes"][1]))
]


class Fields(Schema, extra="ignore"):
    """Some fields of a config.json, or of a part of it."""


class Kind(Fields):
    """The fields of a config.json that name its architecture."""

    model_type: Name | None = None
    architecture: Name | None = None
    architectures: Items[Name] | None = None


class ArchitectureConfig(Fields, ABC):
    """The fields of an architecture, with the defaults of the library that writes them."""

    @abstractmethod
    def spec(self) -> ModelSpec:
        """Returns the network they describe.

        Raises:
            ValueError: the fields do not fit each other.
        """

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Label names in class order; None where the network has no classes of its own."""
        return None


class CrossEncoder(Schema):
    """The fields that sentence-transformers adds to a config.json."""

    activation_fn: Name | None = None
    version: str | None = None


class ClassNames(Fields):
    """The fields of a config.json that name its classes or numbers, and how a sample has them."""

    num_labels: Classes | None = None
    id2label: Labels | None = None
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = None
    sentence_transformers: CrossEncoder | None = None
    sbert_ce_default_activation_function: Name | None = None  # the same in early versions

    @property
    def logit_activation(self) -> str | None:
        """The activation that sentence-transformers puts after logits; None where it names none."""
        activation = self.sentence_transformers and self.sentence_transformers.activation_fn
        return activation or self.sbert_ce_default_activation_function

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in class order; LABEL_0, LABEL_1 ... where the config names none."""
        if self.id2label is None:
            return tuple(f"LABEL_{i}" for i in range(self.num_labels or 2))
        return tuple(str(self.id2label[str(i)]) for i in range(len(self.id2label)))


class Labelled(ClassNames, ArchitectureConfig):
    """The fields of an architecture that classifies."""

    def classifier(self, tower: TowerSpec, dropout: float | None = None) -> ModelSpec:
        """Returns the network of a tower whose pooled token is classified."""
        task: TaskName = "text-classification" if tower.name == "text" else "image-classification"
        return ModelSpec(task, (tower,), classes=len(self.labels), classifier_dropout=dropout or 0.0)


class Encoder(Fields):
    """The fields that most encoders of transformers share."""

    hidden_size: Width = 768
    num_hidden_layers: Layers = 12
    num_attention_heads: Heads = 12
    hidden_act: Activation = "gelu"
    layer_norm_eps: NormEps = 1e-12

    def tower(
        self,
        name: Literal["vision", "text"],
        embeddings: ImageEmbeddings | TextEmbeddings,
        mlp_width: int,
        dropouts: tuple[float | None, float | None],
    ) -> TowerSpec:
        """Returns the tower they describe; a family replaces the fields that it computes differently.

        Args:
            dropouts: of hidden states and of attention.
        """
        dropout, attention_dropout = dropouts
        return TowerSpec(
            name=name,
            layers=self.num_hidden_layers,
            heads=self.num_attention_heads,
            head_width=head_width(self.hidden_size, self.num_attention_heads),
            width=self.hidden_size,
            mlp_width=mlp_width,
            activation=self.hidden_act,
            norm_eps=self.layer_norm_eps,
            embeddings=embeddings,
            dropout=dropout or 0.0,
            attention_dropout=attention_dropout or 0.0,
        )


class PlainEncoder(Encoder):
    """The fields of encoders whose MLP has a width of its own, with dropout on hidden states and attention."""

    intermediate_size: MlpWidth = 3072
    hidden_dropout_prob: Rate = 0.0
    attention_probs_dropout_prob: Rate = 0.0

    def plain_tower(self, name: Literal["vision", "text"], embeddings: ImageEmbeddings | TextEmbeddings) -> TowerSpec:
        """Returns the tower they describe; see `tower`."""
        dropouts = (self.hidden_dropout_prob, self.attention_probs_dropout_prob)
        return self.tower(name, embeddings, self.intermediate_size, dropouts)


class Images(Fields):
    """The fields that most image encoders of transformers share."""

    image_size: ImageSize = (224, 224)
    patch_size: PatchSize = (16, 16)
    num_channels: Channels = 3

    def embeddings(self, patch_bias: bool = True, norm: bool = False) -> ImageEmbeddings:
        """Returns the embeddings they describe; a family replaces the fields that it computes differently."""
        return ImageEmbeddings(self.num_channels, self.image_size, self.patch_size, patch_bias=patch_bias, norm=norm)


def head_width(width: int, heads: int, key: str = "hidden_size") -> int:
    """Returns K, the width of one head."""
    if width % heads:
        raise ValueError(f"{key} is {width}, should be a multiple of {heads} attention heads")
    return width // heads


C = TypeVar("C", bound=Schema)


def read_config(name: str, config: Mapping[str, Any], kind: type[C], file: str = "config.json") -> C:
    """Reads the fields of one kind from a config.json.

    Args:
        name: the checkpoint's, for messages.

    Raises:
        CheckpointError: a field has the wrong type, is out of range, or has an effect that is not supported.
    """
    return document(dict(config), config_origin(name, file)).read(kind)


def config_origin(name: str, file: str = "config.json") -> Origin:
    """Returns the origin that error messages name for a checkpoint's config."""
    return Origin(f"{name}: {file}", CheckpointError, "is it the right file, and of a model this hydractl supports?")

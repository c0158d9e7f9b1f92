"""Systems made of checkpoints: one network, or several that answer in turn."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from os.path import exists  # also of names that no path can have
from pathlib import Path
from typing import Any, ClassVar

from hydractl import inference
from hydractl.artifacts import TowerName
from hydractl.bounds import NETWORKS, PASSES, real, whole
from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.checkpoint.manifest import fingerprint
from hydractl.checkpoint.tensors import tensor_bytes
from hydractl.data.labels import set_classes
from hydractl.data.preprocess import preprocessor_from_json
from hydractl.data.reading import Modality
from hydractl.errors import OptionError
from hydractl.evaluation.networks import Networks, with_dropout
from hydractl.evaluation.results import Description, Dropout, Heads, KnownLeak, Model, Network
from hydractl.evaluation.sets import EvaluationData, SetKey
from hydractl.evaluation.systems import SPELLINGS, Running, SystemSpec
from hydractl.families.load import read_checkpoint
from hydractl.model.assembly import to_checkpoint
from hydractl.model.fast import optimize
from hydractl.model.hydra import Hydra
from hydractl.surgery.slicing import pick_members
from hydractl.text import composed_all

DROPOUT_EXAMPLE = "MODEL,mc-dropout=PASSES,p=P, as in vit,mc-dropout=10,p=0.1"
OPTION = re.compile(r"(?P<before>.+),(?P<key>[a-z-]+)=(?P<value>[^,=/]*)", re.DOTALL)
MEMBERS = re.compile(r"(?P<model>.+):(?P<members>\d{1,4}(,\d{1,4})*)")
#: A path, a hub id, or a model that a program holds.
NetworkLike = str | Path | Checkpoint | Hydra


@dataclass(frozen=True)
class NetworkSystem:
    """Networks that answer in turn, each several times where dropout stays on.

    `members` are those of one network that answer, where not all of them do. The checkpoints are opened at the first
    use of what they hold; weights are read by `load`.
    """

    networks: tuple[NetworkLike, ...]
    dropout: Dropout | None = None
    members: tuple[int, ...] | None = None
    sets: ClassVar[Mapping[SetKey, int]] = {}
    leaks: ClassVar[Sequence[KnownLeak]] = ()

    @property
    def name(self) -> str:
        some = "" if self.members is None else f":{','.join(map(str, self.members))}"
        return "+".join(map(_stem, self.networks)) + some + (" mc-dropout" if self.dropout else "")

    @cached_property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The open checkpoints, which go together."""
        checkpoints = tuple(map(_opened, self.networks))
        if self.members is not None:
            checkpoints = tuple(pick_members(checkpoint, self.members) for checkpoint in checkpoints)
        check_together(checkpoints)
        return checkpoints

    @property
    def modality(self) -> Modality:
        return self.checkpoints[0].spec.modality

    @property
    def histories(self) -> Sequence[Mapping[str, Any]]:
        return [checkpoint.provenance for checkpoint in self.checkpoints]

    @property
    def draws(self) -> bool:
        return self.dropout is not None

    def describe(self) -> Description:
        networks = tuple(map(_network, self.checkpoints))
        identities = [network.sha256 for network in networks]
        whole = identities[0] if len(networks) == 1 else sha256("".join(identities).encode()).hexdigest()
        model = Model("+".join(network.reference for network in networks), whole)
        return Description(model, networks, self.dropout)

    def conditions(self, running: Running) -> dict[str, Any]:
        """Returns what the answers depend on besides the data, as plain JSON."""
        zero_shot = self.checkpoints[0].spec.prompted
        return {
            "networks": [fingerprint(checkpoint) for checkpoint in self.checkpoints],
            "dropout": None if self.dropout is None else asdict(self.dropout),
            "seed": running.seed if self.draws else None,
            "prompts": [_prompts(given, running) for given in self.networks] if zero_shot else None,
            "batch_size": running.batch_size,
            "dtype": None if running.dtype is None else str(running.dtype),
            "compiled": running.compiled,
        }

    def check(self, data: EvaluationData | None) -> None:
        """Accepts any data: labels are matched when they are read."""

    def load(self, data: EvaluationData | None, running: Running) -> Networks:
        """Returns the networks with their weights in memory."""
        assert data is not None
        models = [self._model(place, data, running) for place in range(len(self.checkpoints))]
        if running.compiled and self.dropout is None:
            # What is compiled would draw dropout's masks in a way of its own.
            for model in models:
                optimize.compile_model(model)
        first = self.checkpoints[0]
        return Networks(
            models,
            preprocessor_from_json(first.preprocessing, first.spec, first.name, first.config),
            data,
            running,
            dropout=self.dropout,
        )

    def _model(self, place: int, data: EvaluationData, running: Running) -> Hydra:
        checkpoint, given = self.checkpoints[place], self.networks[place]
        model = inference.load_to_compute(checkpoint, running.device, running.dtype)
        if isinstance(given, Hydra) and _keeps_classes(given, running):
            assert given.class_embeddings is not None
            model.labels, model.class_prompts = given.labels, given.class_prompts
            model.class_embeddings = given.class_embeddings.to(model.logit_scale)
        else:
            set_classes(model, running.reading.classes, running.reading.template, data.id)
        if self.dropout is None:
            return model.optimize_for_inference()
        return with_dropout(model, self.dropout, checkpoint.name)


def parse_networks(text: str) -> NetworkSystem:
    """Returns the networks that a text spells, in any way of `SYSTEM_KINDS`."""
    body, options = _split_options(text)
    if unknown := sorted(options.keys() - {"mc-dropout", "p"}):
        raise OptionError(f"{text}: {unknown[0]!r} is no option of a system: write {SPELLINGS}")
    networks = networks_in(body)
    if not all(networks):
        raise OptionError(f"{text}: names a model that is empty: write {SPELLINGS}")
    if options:
        return NetworkSystem(networks, _dropout(text, options))
    some = None if exists(body) or len(networks) > 1 else MEMBERS.fullmatch(body)
    if some is not None:
        return NetworkSystem((some["model"],), members=tuple(map(int, some["members"].split(","))))
    return NetworkSystem(networks)


def _split_options(text: str) -> tuple[str, dict[str, str]]:
    """Splits the options `,key=value` off the end of a text; a path that exists keeps all of it."""
    options: dict[str, str] = {}
    while not exists(text) and (found := OPTION.fullmatch(text)):
        text = found["before"]
        options[found["key"]] = found["value"]
    return text, options


def networks_in(text: str) -> tuple[str, ...]:
    """Returns the models that a text adds up; itself alone where a file has that name."""
    networks = (text,) if exists(text) else tuple(text.split("+"))
    if len(networks) > NETWORKS:
        raise OptionError(f"{text[:40]}...: adds up {len(networks)} models, expected {NETWORKS} at most")
    return networks


def _dropout(text: str, options: Mapping[str, str]) -> Dropout:
    passes = whole(options.get("mc-dropout", ""), 1, PASSES)
    rate = real(options["p"], 0, 1) if "p" in options else None
    if passes is None or ("p" in options and (rate is None or not 0 < rate < 1)):
        raise OptionError(f"{text}: expected 1 to {PASSES} passes, and p above 0 and below 1: write {DROPOUT_EXAMPLE}")
    return Dropout(passes, rate)


def by_size(name: str, system: SystemSpec) -> list[tuple[str, SystemSpec]]:
    """Returns the first member of a network, the first two, and so on to the whole; other systems as they are."""
    if not isinstance(system, NetworkSystem) or len(system.networks) > 1 or system.members is not None:
        return [(name, system)]
    firsts = [tuple(range(size)) for size in range(1, system.checkpoints[0].members)]
    some = [(f"{name}:{','.join(map(str, members))}", replace(system, members=members)) for members in firsts]
    return [*some, (name, system)]


def _network(checkpoint: Checkpoint) -> Network:
    return Network(checkpoint.name, identity(checkpoint), kept_heads(checkpoint))


def kept_heads(checkpoint: Checkpoint) -> dict[TowerName, Heads]:
    """Returns the heads that members keep in each tower, as a report lists them."""
    return {tower.name: Heads(tower.heads, checkpoint.heads[tower.name]) for tower in checkpoint.spec.towers}


def _keeps_classes(given: Hydra, running: Running) -> bool:
    """Returns whether a program set the classes of a zero-shot model, and no option sets others."""
    return given.class_embeddings is not None and running.reading.classes is None


def _prompts(given: NetworkLike, running: Running) -> str:
    """Returns the template of the class names, or a hash of the prompts that a program made."""
    if isinstance(given, Hydra) and given.class_embeddings is not None and _keeps_classes(given, running):
        return sha256(tensor_bytes(given.class_embeddings)).hexdigest()
    return running.reading.template


def check_together(checkpoints: Sequence[Checkpoint]) -> None:
    """Raises OptionError unless these networks have the classes, preprocessing and temperature of one ensemble."""
    first = checkpoints[0]
    for other in checkpoints[1:]:
        for what, one, two in (
            ("classes", composed_all(first.labels), composed_all(other.labels)),
            ("preprocessing", first.preprocessing, other.preprocessing),
            ("temperatures", first.calibration.divisor, other.calibration.divisor),
        ):
            if one != two:
                raise OptionError(
                    f"{first.name} and {other.name} have different {what}: networks of one ensemble need the same; "
                    "evaluate each alone, or fuse them first"
                )


def _opened(network: NetworkLike) -> Checkpoint:
    if isinstance(network, str | Path):
        return read_checkpoint(network)
    return to_checkpoint(network) if isinstance(network, Hydra) else network


def _stem(network: NetworkLike) -> str:
    reference = network if isinstance(network, str | Path) else _opened(network).name
    return Path(reference).resolve().name.removesuffix(".safetensors")

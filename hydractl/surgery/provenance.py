"""Records the provenance of a file for its manifest, and notes what looks odd in the file.

A manifest holds no paths and no dates: the same inputs and options give the same bytes wherever the command runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.checkpoint.calibration import NOT_CALIBRATED
from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.errors import ArtifactError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hydractl.artifacts import Artifact, ModelReference
    from hydractl.data.samples import Samples

LIBRARIES = ("hydractl", "torch", "safetensors")
OUTLIER_SETS = "outlier_sets"  # the names of the OOD sets that a training saw
SEEN = "search_data"  # where a history remembers the samples that an evaluation refuses


def with_provenance(
    result: Checkpoint, command: str, inputs: Sequence[Checkpoint], options: Mapping[str, Any]
) -> Checkpoint:
    """Adds provenance to a checkpoint: the command, its inputs' identities and histories, its options.

    Samples used in any step on the way are remembered at the top, once if several inputs used them. What was fitted
    to an input does not pass to the result.

    Args:
        inputs: the checkpoints it was made of; all of their weights are read once.
        options: those that determine the result; None is left out. `search_data` holds the samples that this step
            used, sketches by name.

    Raises:
        ArtifactError: an input's record of samples used is damaged.
    """
    from hydractl.data.hashes import merged

    settings = {name: value for name, value in options.items() if value is not None and name != SEEN}
    seen = chain(*(search_data(checkpoint.provenance) for checkpoint in inputs), (options.get(SEEN) or {}).items())
    remembered = merged(seen, result.name)
    return replace(
        result,
        calibration=NOT_CALIBRATED,
        provenance={
            "command": command,
            "options": settings,
            **({SEEN: remembered} if remembered else {}),
            "inputs": [_input(checkpoint) for checkpoint in inputs],
            "versions": {library: version(library) for library in LIBRARIES},
        },
    )


def search_data(provenance: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yields name and sketch of every set of samples that a model's history remembers.

    Args:
        provenance: that of a manifest. In early files each step has its samples among its own options.
    """
    for place in (provenance, provenance.get("options")):
        seen = place.get(SEEN) if isinstance(place, Mapping) else None
        if isinstance(seen, Mapping):
            yield from seen.items()
    inputs = provenance.get("inputs")
    for origin in inputs if isinstance(inputs, list) else ():
        if isinstance(origin, Mapping) and isinstance(origin.get("provenance"), Mapping):
            yield from search_data(origin["provenance"])


def used_samples(name: str, provenances: Sequence[Mapping[str, Any]], samples: Samples) -> dict[str, NDArray[np.bool_]]:
    """Returns a mask `[N]` of the samples that a system's histories remember, by each use of any of them.

    Args:
        name: what messages call the system.
        samples: hashed only if there is something to compare with.

    Raises:
        ArtifactError: a record is damaged.
        UnreadableError: an image cannot be read.
    """
    from hydractl.data.hashes import remembered_samples

    masks: dict[str, NDArray[np.bool_]] = {}
    for use, entry in chain(*map(search_data, provenances)):
        hit = remembered_samples(entry, samples.content_hashes(), f"{name}: {use}")
        if hit.any():
            use = re.sub(r" \(\d+\)$", "", use)  # a further sketch of the same use
            masks[use] = masks[use] | hit if use in masks else hit
    return masks


def trained_on(checkpoint: Checkpoint, samples: Samples) -> str | None:
    """Returns a warning that counts the samples that a model trained on; None if its history remembers none."""
    trained = used_samples(checkpoint.name, [checkpoint.provenance], samples).get("training data")
    if trained is None:
        return None
    count = f"{samples.name}: {checkpoint.name} trained on {trained.sum()} of {len(samples)} samples"
    return f"{count} and is surer of them than of new ones: give data that it has not seen"


def exposed_to(provenance: Mapping[str, Any]) -> Iterator[str]:
    """Yields the names of OOD sets on which any network in a model's history learned to be unsure."""
    options, inputs = provenance.get("options"), provenance.get("inputs")
    sets = options.get(OUTLIER_SETS) if isinstance(options, Mapping) else None
    yield from (name for name in sets if isinstance(name, str)) if isinstance(sets, list) else ()
    for origin in inputs if isinstance(inputs, list) else ():
        if isinstance(origin, Mapping) and isinstance(origin.get("provenance"), Mapping):
            yield from exposed_to(origin["provenance"])


def samples_behind(artifacts: Iterable[Artifact | None]) -> dict[str, Any] | None:
    """Returns all samples that some artifacts were made with, sketches by name; None if they name none."""
    from hydractl.data.hashes import merged

    present = [artifact for artifact in artifacts if artifact is not None]
    seen = [entry for artifact in present for entry in (artifact.search_data or {}).items()]
    return merged(seen, present[0].name) if seen else None


def require_same_model(checkpoint: Checkpoint, artifact: str, model: ModelReference | None) -> None:
    """Raises ArtifactError if an artifact names another model; one written by hand names none."""
    if model is not None and (sha256 := identity(checkpoint)) != model.sha256:
        raise ArtifactError(
            f"{artifact}: was made from another model (sha256 {model.sha256[:12]}...) than "
            f"{checkpoint.name} ({sha256[:12]}...): name that model, or make the artifact again"
        )


#: The options in the name of a pruned model's file, with a word before what would be a bare number.
NAMED = {
    **dict.fromkeys(("method", "objective", "scores", "scope", "budget"), ""),
    "units": "units",
    "budget_macs": "macs",
    "keep": "keep",
    "pool": "pool",
    "seed": "seed",
    "trunk": "trunk",
    "refit": "refit",
}


def telling_name(checkpoint: Checkpoint, options: Mapping[str, Any]) -> str:
    """Returns a file name that tells how a model was pruned, e.g. `vit-circuit-avg-48-pool100-seed0.safetensors`.

    Args:
        checkpoint: the one that was pruned.
        options: those of its provenance.
    """
    parts = [Path(checkpoint.name).resolve().name.removesuffix(".safetensors")]
    parts += [f"{word}{options[name]}" for name, word in NAMED.items() if options.get(name) is not None]
    return "-".join(parts) + ".safetensors"


def headless(checkpoint: Checkpoint) -> Iterator[str]:
    """Yields notes on layers in which members kept no head."""
    for member in range(checkpoint.members):
        of = f"member {member + 1}: " if checkpoint.members > 1 else ""
        for name, layers in checkpoint.heads.items():
            if empty := [str(number) for number, layer in enumerate(layers) if not layer[member]]:
                yield f"{of}no head is left in layers {', '.join(empty)} of the {name} tower"


def alike(members: Sequence[Checkpoint]) -> Iterator[str]:
    """Yields notes on members that are the same."""
    same: dict[str, list[str]] = {}
    for number, member in enumerate(members, 1):
        same.setdefault(identity(member), []).append(str(number))
    for numbers in same.values():
        if len(numbers) > 1:
            yield f"members {', '.join(numbers)} are identical: together they know no more than one of them"


def _input(checkpoint: Checkpoint) -> dict[str, Any]:
    history = {"provenance": _without_search_data(checkpoint.provenance)} if checkpoint.provenance else {}
    return {"sha256": identity(checkpoint), **history}


def _without_search_data(value: Any) -> Any:
    """Returns a history without its sketches, which the result carries at its top."""
    if isinstance(value, Mapping):
        return {name: _without_search_data(inner) for name, inner in value.items() if name != SEEN}
    return [_without_search_data(inner) for inner in value] if isinstance(value, list) else value

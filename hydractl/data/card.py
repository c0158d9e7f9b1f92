"""What the card of a data set's folder says: configurations, which files they have, and what their columns hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import datasets
import huggingface_hub
from datasets.data_files import contains_wildcards, resolve_pattern, sanitize_patterns
from datasets.info import DatasetInfosDict
from datasets.utils.metadata import MetadataConfigs
from pydantic import AfterValidator, TypeAdapter, ValidationError

from hydractl.bounds import COMPARED
from hydractl.data.files import read_text
from hydractl.data.folder import LOADERS, Contents, data_files, splits_by_name
from hydractl.errors import DataError
from hydractl.schema import Origin, Schema, document, read_json

DEFAULT = "default"
CARD_FILES = (
    datasets.config.REPOCARD_FILENAME,
    datasets.config.REPOYAML_FILENAME,
    datasets.config.DATASETDICT_INFOS_FILENAME,
)


class _Part(Schema):
    """The files of one split, as a list of these names them."""

    split: str
    path: str | list[str]


NAMED = TypeAdapter(str | list[str | _Part] | None)


def _names_files(value: Any) -> Any:
    try:
        NAMED.validate_python(value)
    except ValidationError as error:  # whose words are of one of these forms, not of what was meant
        raise ValueError("should be a text, or a list of texts or of split and path") from error
    return value


class _Config(Schema, extra="ignore"):
    """What is believed of a configuration in a card; `datasets` reads the rest."""

    config_name: str = DEFAULT
    data_dir: str | None = None
    data_files: Annotated[Any, AfterValidator(_names_files)] = None


@dataclass(frozen=True)
class Card:
    """What a folder says of itself, by the names of configurations; both empty where there is no card."""

    configs: Mapping[str, Mapping[str, Any]]
    infos: Mapping[str, datasets.DatasetInfo]

    def name(self, asked: str | None, folder: Path) -> str:
        """The configuration that is asked for, or else the default.

        Raises:
            DataError: there is no such configuration, or several and none is asked for.
        """
        names = [*(self.configs or self.infos)]
        if asked is not None and asked not in (names or [DEFAULT]):
            raise DataError(f"{folder}: has no configuration {asked!r}{', only ' if names else ''}{', '.join(names)}")
        default = MetadataConfigs(self.configs).get_default_config_name()
        found = asked or default or (names[0] if len(names) == 1 else None)
        if found is None and self.configs:
            raise DataError(
                f"{folder}: has the configurations {', '.join(names)}: name one, as in {folder}:{names[0]}:train"
            )
        return found or DEFAULT

    def splits(self, name: str, folder: Path, contents: Contents) -> dict[str, list[str]]:
        """The files of each split of a configuration, relative to the folder.

        Raises:
            DataError: its patterns are too many to be compared with as many files, or fit none.
        """
        config = self.configs.get(name, {})
        if config.get("data_files") is not None:
            found = _chosen_files(config["data_files"], folder, contents)
        else:
            # As `datasets` does, names above the folder of data say nothing of splits.
            place = Path(config.get("data_dir") or "").as_posix() + "/"
            below = len(place) if place != "./" else 0
            files = [file[below:] for file in data_files(contents) if not below or file.startswith(place)]
            found = {split: [place[:below] + file for file in some] for split, some in splits_by_name(files).items()}
        if not any(found.values()):
            raise DataError(f"{folder}: its card names no file that is there: mend it")
        return found


def read_card(folder: Path) -> Card:
    """What a folder's README.md, .huggingface.yaml and dataset_infos.json say.

    Raises:
        DataError: one of them cannot be read, or names files elsewhere.
    """
    try:
        return _parsed(folder)
    except DataError:
        raise
    except Exception as error:  # what reads YAML and cards raises whatever it likes on what is damaged
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        there = " and ".join(name for name in CARD_FILES if (folder / name).is_file())
        raise DataError(f"{folder}: its card is not as it should be ({reason}): mend or remove {there}") from error


def _parsed(folder: Path) -> Card:
    legacy = folder / datasets.config.DATASETDICT_INFOS_FILENAME
    origin = Origin(str(legacy), DataError, "remove it")
    said = read_json(legacy, origin).fields if legacy.is_file() else {}
    infos = {name: datasets.DatasetInfo.from_dict(info) for name, info in said.items()}
    fields = _fields(folder)
    for config in fields.get("configs") or []:
        document(config, Origin(f"{folder}: its card, a configuration", DataError, "mend it")).read(_Config)
        require_below(folder, (config.get("data_files"), config.get("data_dir")), "its card")
    return Card(
        MetadataConfigs.from_dataset_card_data(fields), {**infos, **DatasetInfosDict.from_dataset_card_data(fields)}
    )


def _fields(folder: Path) -> huggingface_hub.DatasetCardData:
    card, settings = folder / datasets.config.REPOCARD_FILENAME, folder / datasets.config.REPOYAML_FILENAME
    texts = [read_text(card, "a data card")] if card.exists() else []
    texts += [f"---\n{read_text(settings, 'YAML')}\n---\n"] if settings.exists() else []
    fields: dict[str, Any] = {}
    for text in texts:
        data: Any = huggingface_hub.DatasetCard(text, ignore_metadata_errors=True).data
        fields |= data.to_dict()
    return huggingface_hub.DatasetCardData(**fields)


def _chosen_files(named: Any, folder: Path, contents: Contents) -> dict[str, list[str]]:
    patterns = sanitize_patterns(named)
    compared = contents.count * sum(contains_wildcards(pattern) for some in patterns.values() for pattern in some)
    if compared > COMPARED:
        raise DataError(f"{folder}: its card names too many patterns for {contents.count} files: name a file instead")
    found = {
        split: list(dict.fromkeys(file for one in some for file in _matching(one, folder)))
        for split, some in patterns.items()
    }
    return {split: files for split, files in found.items() if files}


def _matching(pattern: str, folder: Path) -> list[str]:
    try:
        found = resolve_pattern(pattern, str(folder.resolve()), allowed_extensions=list(LOADERS))
    except FileNotFoundError as error:
        if contains_wildcards(pattern):
            return []
        raise DataError(f"{folder}: its card names {pattern}, which is not there") from error
    return [
        Path(file).relative_to(folder.resolve()).as_posix() for file in found if Path(file).suffix.lower() in LOADERS
    ]


def require_below(folder: Path, named: object, where: str) -> None:
    """Nothing, if all names in nested lists and dicts are of files in a folder.

    Raises:
        DataError: one names a file elsewhere: it would be opened, or fetched.
    """
    for name in names_in(named):
        if "://" in name or "::" in name or Path(name).is_absolute() or ".." in Path(name).parts:
            raise DataError(f"{folder}: {where} names {name}: data comes from the folder only: mend it")


def names_in(value: object) -> Iterator[str]:
    """Every text in nested lists and dicts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from names_in(inner)

"""The models and data that a command line names, looked for before anything is imported that takes seconds."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydractl.checkpoint.disk import holds_weights
from hydractl.data.labels import read_classes
from hydractl.data.sources import parse_data_spec, require_on_hub
from hydractl.errors import OptionError
from hydractl.families.load import located
from hydractl.options import Declared


def check_places(options: Iterable[Declared], values: Mapping[str, Any]) -> None:
    """Checks that the models and the data of a command line lie where it says.

    Raises:
        CheckpointError: there is no such model, here or on the hub.
        DataError: there are no such data here, and the name is no id of the hub; or no such file of classes.
        OptionError: a model and data stand in each other's place.
    """
    models, sources, places = list[str](), list[str](), list[str]()
    for option in options:
        texts, metavar = _texts(values.get(option.name)), option.option.metavar or ""
        if metavar in ("MODEL", "MODEL..."):
            models += texts
        elif metavar.startswith("[NAME=]") and metavar.endswith("..."):
            models += [text for text in texts if os.path.exists(text) or not re.search("[=+:]", text)]
        elif option.name == "classes":
            for text in texts:
                read_classes(text)
        elif option.name == "inputs":
            places += texts
        elif metavar.endswith("SOURCE[:SPLIT]") and "SEVERITY" not in metavar:
            # A list with commas is of several tasks, which a search divides.
            sources += [parse_data_spec(text, "near/" in metavar).source for text in texts if "," not in text]
    model_as_data = next((place for place in (*sources, *places) if holds_weights(Path(place))), None)
    for model in models:
        if not holds_weights(located(model)) and model_as_data is not None:
            raise OptionError(f"{model} is no model, but {model_as_data} is one and stands for data: swap them")
    for source in sources:
        if not os.path.exists(source):
            require_on_hub(source)


def _texts(value: Any) -> Sequence[str]:
    values = value if isinstance(value, list | tuple) else [value]
    return [text for text in values if isinstance(text, str) and text]

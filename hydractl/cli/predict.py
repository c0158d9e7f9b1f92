"""`hydractl predict`."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hydractl.cli import console
from hydractl.cli.device import choose_device, choose_dtype
from hydractl.cli.options import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_TEMPLATE,
    BatchSize,
    Classes,
    Device,
    Dtype,
    Json,
    Quiet,
    Template,
    Token,
)
from hydractl.data.classes import read_classes
from hydractl.errors import DataError

if TYPE_CHECKING:
    from hydractl.model.hydra import Hydra, Prediction

STDIN = "-"


def predict(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A Hugging Face folder or a file of ours.")],
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...|-", help="Images, or text files with a text a line; - is stdin.")
    ],
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    json: Json = False,
    device: Device = "auto",
    dtype: Dtype = None,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    quiet: Quiet = False,
    token: Token = None,
) -> None:
    """Classify images or texts and say how sure the model is.

    Example: hydractl predict hydra.safetensors photo.jpg

    Prints a line per input with tabs between: the input, its label, the maximum softmax probability (low: likely
    wrong or unlike the training data) and the mutual information of the members in nats (high: they disagree).
    --json prints one JSON object a line instead, with the probability of every class.
    """
    from hydractl.inference import load

    hydra = load(model, choose_device(device), choose_dtype(dtype)).optimize_for_inference()
    if classes is not None:
        hydra.set_classes(read_classes(classes), template)
    texts = hydra.spec.task == "text-classification"
    names = _read_texts(files) if texts else files
    show = _json_line if json else _plain_line
    with console.progress("predict", len(names), quiet) as advance:
        for start in range(0, len(names), batch_size):
            part = names[start : start + batch_size]
            prediction = hydra.predict(part if texts else [_read_image(file) for file in part])
            for row, name in enumerate(part):
                print(show(name, prediction, row, hydra))
            advance(len(part))


def _read_texts(files: Sequence[str]) -> list[str]:
    texts = [line for file in files for line in _text_of(file).splitlines() if line.strip()]
    if not texts:
        raise DataError(f"{', '.join(files)}: no text in it: write one text a line")
    return texts


def _text_of(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        return data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot read as text ({error}): write one text a line, in UTF-8") from error


def _read_image(file: str) -> Any:
    from hydractl.data.images import decode_image

    try:
        data = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot read: {error.strerror}") from error
    return decode_image({"bytes": data, "path": None}, file)


def _plain_line(name: str, prediction: Prediction, row: int, model: Hydra) -> str:
    # A tab or a line end inside a text would break the columns.
    fields = (" ".join(name.split()), prediction.labels[row], f"{prediction.msp[row]:.4f}")
    return "\t".join((*fields, f"{prediction.mutual_information[row]:.4f}"))


def _json_line(name: str, prediction: Prediction, row: int, model: Hydra) -> str:
    labels = model.labels or [f"LABEL_{i}" for i in range(prediction.probabilities.shape[1])]
    value = {
        "input": name,
        "label": prediction.labels[row],
        "msp": float(prediction.msp[row]),
        "mutual_information": float(prediction.mutual_information[row]),
        "probabilities": dict(zip(labels, prediction.probabilities[row].tolist(), strict=True)),
    }
    return json_format.dumps(value, ensure_ascii=False)

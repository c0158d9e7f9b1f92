from pathlib import Path

import datasets
import pytest
from datasets import ClassLabel, Image, Value

from hydractl.data.open import open_samples
from hydractl.data.reading import EVERYTHING, Modality, Reading
from hydractl.data.table_columns import ChosenColumns, choose_columns
from hydractl.errors import DataError

TEXT, NUMBER, NAMED = Value("string"), Value("int64"), ClassLabel(names=["a", "b"])


def choose(
    features: dict[str, object], modality: Modality, reading: Reading = EVERYTHING, strict: bool = True
) -> ChosenColumns:
    return choose_columns(datasets.Features(features), modality, reading, "data", strict=strict)


@pytest.mark.parametrize(
    ("features", "modality", "inputs", "label"),
    [
        ({"image": Image(), "label": NAMED}, "image", ("image",), "label"),
        ({"img": Image(), "fine_label": NAMED}, "image", ("img",), "fine_label"),
        ({"x": Image(), "text": TEXT}, "image", ("x",), None),
        ({"image": Image(), "depth": Image()}, "image", ("image",), None),
        ({"picture": {"bytes": Value("binary"), "path": TEXT}, "y": NUMBER}, "image", ("picture",), "y"),
        ({"file_name": TEXT, "label": TEXT}, "image", ("file_name",), "label"),
        ({"png": Image(), "cls": NUMBER, "__key__": TEXT}, "image", ("png",), "cls"),
        ({"sentence": TEXT, "label": NUMBER, "idx": NUMBER}, "text", ("sentence",), "label"),
        ({"review": TEXT, "stars": NUMBER}, "text", ("review",), None),
        ({"title": TEXT, "text": TEXT, "label": NAMED}, "text", ("text",), "label"),
        ({"premise": TEXT, "hypothesis": TEXT, "label": NAMED}, "text", ("premise", "hypothesis"), "label"),
        ({"question": TEXT, "sentence": TEXT, "label": NAMED}, "text", ("question", "sentence"), "label"),
        ({"text": TEXT, "label": TEXT}, "text", ("text",), "label"),
        ({"text": TEXT, "label": NUMBER, "kind": NAMED}, "text", ("text",), "kind"),
    ],
)
def test_detects(features: dict[str, object], modality: Modality, inputs: tuple[str, ...], label: str | None) -> None:
    chosen = choose(features, modality)
    assert (chosen.inputs, chosen.label) == (inputs, label)


@pytest.mark.parametrize(("named", "inputs"), [("b", ("b",)), ("a,b", ("a", "b")), ("c,d", ("c,d",))])
def test_a_named_column_wins(named: str, inputs: tuple[str, ...]) -> None:
    features: dict[str, object] = {"a": TEXT, "b": TEXT, "c,d": TEXT, "text": TEXT}
    assert choose(features, "text", Reading(text_column=named)).inputs == inputs
    assert choose(features, "text", Reading(text_column="gone"), strict=False).inputs == ("text",)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("translation.en", ["line 0", "line 1", "line 2"]),
        ("title,deep.a.b", [("t 0", "b 0"), ("t 1", "b 1"), ("t 2", "b 2")]),
    ],
)
def test_columns_inside_others(tmp_path: Path, named: str, expected: list[object]) -> None:
    translation = datasets.Translation(languages=("de", "en"))
    features = datasets.Features({"translation": translation, "deep": {"a": {"b": TEXT}}, "title": TEXT})
    rows = [{"translation": {"de": f"satz {n}", "en": f"line {n}"}, "deep": {"a": {"b": f"b {n}"}}, "title": f"t {n}"}
            for n in range(3)]  # fmt: skip
    datasets.Dataset.from_list(rows, features=features).to_parquet(tmp_path / "rows.parquet")
    source = f"{tmp_path}/rows.parquet?text={named}"
    assert list(open_samples(source, "text").inputs) == expected
    # What a set names itself comes before what was named for all.
    assert list(open_samples(source, "text", Reading(text_column="title")).inputs) == expected
    with pytest.raises(DataError, match="column 'translation.fr'"):
        open_samples(f"{tmp_path}/rows.parquet?text=translation.fr", "text")


def test_why_there_is_no_label() -> None:
    assert "has no label column among text (string)" in str(choose({"text": TEXT}, "text").label_problem)
    two = choose({"img": Image(), "fine_label": NAMED, "coarse_label": NAMED}, "image")
    assert two.label is None
    assert "fine_label or coarse_label; name it with `label_column`" in str(two.label_problem)


@pytest.mark.parametrize(
    ("features", "modality", "reading", "message"),
    [
        (
            {"text": TEXT},
            "image",
            EVERYTHING,
            r"no image column among text \(string\): give images, .* with `image_column`",
        ),
        ({"n": NUMBER}, "text", EVERYTHING, r"no text column among n \(int64\): give texts, .* with `text_column`"),
        ({"left": Image(), "right": Image()}, "image", EVERYTHING, "could be left or right"),
        ({"a": TEXT}, "text", Reading(text_column="b"), r"has no column 'b', only a \(string\)"),
        ({"a": TEXT}, "text", Reading(text_column="a,b"), "has no column 'b'"),
        ({"a": TEXT, "b": TEXT, "c": TEXT}, "text", Reading(text_column="a,b,c"), "or two for pairs"),
        ({"a": TEXT}, "text", Reading(text_column="a,a"), "or two for pairs"),
        ({"a": TEXT}, "text", Reading(label_column="b"), "has no column 'b'"),
    ],
)
def test_refuses(features: dict[str, object], modality: Modality, reading: Reading, message: str) -> None:
    with pytest.raises(DataError, match=message):
        choose(features, modality, reading)

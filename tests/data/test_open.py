"""A stream gives the samples of the whole data set, block by block."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pytest

from hydractl.data.hashes import image_hash, text_hash
from hydractl.data.labels import match_labels
from hydractl.data.open import SampleStream, open_samples, open_stream
from hydractl.data.reading import Reading
from hydractl.data.samples import Samples
from hydractl.errors import DataError
from tests.data.conftest import Hub, archive, image_folder, image_table, picture

TEXTS = ["good", "a very good film", "NA", "very " * 30, "film", "not bad", "so so"]
LABELS = ["yes", "yes", "no", "no", "no", "yes", "no"]


def texts() -> datasets.Dataset:
    return datasets.Dataset.from_dict({"text": TEXTS, "label": LABELS})


def numbered(path: Path) -> None:
    rows = [{"text": text, "label": at % 2} for at, text in enumerate(TEXTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def image_bytes(path: Path) -> None:
    rows = image_table(7).cast_column("image", datasets.Image(decode=False)).to_list()
    datasets.Dataset.from_list([{**row, "image": row["image"]["bytes"]} for row in rows]).to_parquet(path)


WRITERS: dict[str, Callable[[Path], object]] = {
    "a.csv": lambda path: texts().to_csv(path),
    "a.jsonl": numbered,
    "a.parquet": lambda path: texts().to_parquet(path),
    "saved": lambda path: texts().save_to_disk(path),
    "images.parquet": lambda path: image_table(7).to_parquet(path),
    "images-bytes.parquet": image_bytes,
    "images.tar": lambda path: archive(path, 7),
    "images": lambda path: image_folder(path, [f"{'cat' if at < 4 else 'dog'}/{at}.png" for at in range(7)]),
}


def streamed(place: object, modality: str = "text", **options: object) -> SampleStream:
    return open_stream(str(place), modality, **options)


def written(folder: Path, name: str) -> Path:
    WRITERS[name](folder / name)
    return folder / name


def words(stream: SampleStream, size: int = 3, start: int = 0) -> list[str]:
    return [text for block in stream.blocks(size, start) for text in block.inputs]


@pytest.mark.parametrize("name", WRITERS)
def test_blocks_are_the_samples_in_order(name: str, tmp_path: Path) -> None:
    place, modality = written(tmp_path, name), "image" if name.startswith("images") else "text"
    whole = open_samples(str(place), modality)
    stream = streamed(place, modality)
    blocks = list(stream.blocks(3))
    assert [len(block) for block in blocks] == [3, 3, 1]
    expected = [image_hash(picture(at)) for at in range(7)] if modality == "image" else [text_hash(t) for t in TEXTS]
    assert whole.content_hashes().tolist() == expected
    assert np.concatenate([block.content_hashes() for block in blocks]).tolist() == expected
    assert str(stream.chosen_columns) == str(whole.chosen_columns)
    model_labels = whole.label_names or ("0", "1")
    how = "name" if whole.label_names else "index"
    matched = [match_labels(block, model_labels, how).labels for block in blocks]
    assert np.array_equal(np.concatenate(matched), match_labels(whole, model_labels, how).labels)


def test_length_and_class_names_where_the_source_says_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert streamed(written(tmp_path, "a.csv")).length is None
    images = streamed(f"{written(tmp_path, 'images')}:[:50%]", "image")
    assert (images.length, images.label_names) == (4, ("cat", "dog"))
    assert sum(map(len, images.blocks(3))) == 4
    hub = Hub({"validation": [str(written(tmp_path, "a.parquet"))]})
    hub.info = datasets.DatasetInfo(splits=[{"name": "validation", "num_examples": 7}])
    hub.stand_in(monkeypatch, tmp_path)
    stream = streamed("owner/name:default:validation[:50%]")
    assert (stream.length, words(stream)) == (4, TEXTS[:4])


def test_slices_and_sums_of_splits(tmp_path: Path) -> None:
    for name in ("train", "test"):
        texts().to_parquet(tmp_path / f"{name}.parquet")
    assert words(streamed(f"{tmp_path}:train[5:]+test[1:3]")) == [*TEXTS[5:], *TEXTS[1:3]]
    for slice_ in ("[:10%]", "[-3:]"):
        with pytest.raises(DataError, match=r"not known before the end: write .* as \[:100\]"):
            streamed(f"{tmp_path}:train{slice_}")
    with pytest.raises(DataError, match="holds the splits"):
        streamed(tmp_path)


def test_a_limit_takes_the_first_and_says_so(tmp_path: Path) -> None:
    table = datasets.Dataset.from_dict({"text": TEXTS, "label": [0] * 7})
    sources = [(str(written(tmp_path, "a.csv")), None), (str(written(tmp_path, "saved")), 4), (table, 4)]
    for data, length in (*sources, (table.to_iterable_dataset(), None)):
        stream = open_stream(data, "text", Reading(limit=4))
        assert (words(stream), stream.length) == (TEXTS[:4], length)
        assert "takes the first 4 samples" in stream.notes[0]
    at_hand = open_stream({"mine": list("abcd")}, "text", Reading(limit=2))
    assert isinstance(at_hand, Samples)
    assert at_hand.inputs == ["a", "c"]


def test_shuffled_follows_from_seed_and_epoch(tmp_path: Path) -> None:
    stream = streamed(written(tmp_path, "a.parquet"))
    first = words(stream.shuffled(seed=1))
    assert sorted(first) == sorted(TEXTS) != first
    assert words(stream.shuffled(seed=1)) == first
    assert words(stream.shuffled(seed=1, epoch=1)) != first
    assert words(stream.shuffled(seed=1), start=2) == first[2:]


def test_bad_samples_fail_by_name_or_are_left_out(tmp_path: Path) -> None:
    place = tmp_path / "a.csv"
    place.write_text("text,label\na,0\nb,0\nc,1\n,1\n   ,0\n,1\ng,1\n")
    with pytest.raises(DataError, match="1 of 2 texts are empty, the first is sample 3: remove them"):
        words(streamed(place), 2)
    skipped: list[str] = []

    def remember(block: Samples) -> Samples:
        skipped.extend(block.skipped)
        return block

    assert words(streamed(place, skip_bad=True).through(remember), 2) == ["a", "b", "c", "g"]
    assert [text.split(": ")[1] for text in skipped] == ["sample 3", "sample 4", "sample 5"]
    with pytest.raises(DataError, match="not one of 3 samples can be read"):
        words(streamed(f"{place}:[3:6]", skip_bad=True), 2)


def test_unreadable_images_are_named_by_their_place(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "d", [f"{at}.png" for at in range(5)])
    (folder / "4.png").write_bytes(b"no image")
    blocks = streamed(folder, "image").blocks(3)
    assert len(next(blocks).content_hashes()) == 3
    with pytest.raises(DataError, match=r"d: sample 4 \(.*4.png\): unreadable image"):
        next(blocks).content_hashes()
    assert [len(block) for block in streamed(folder, "image", skip_bad=True).blocks(3)] == [3, 1]


def test_a_later_row_of_another_type_is_one_line(tmp_path: Path) -> None:
    rows = ["text,label", *(f"t{at},{at % 2}" for at in range(20_000)), "last,x"]
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
    read = streamed(tmp_path / "a.csv").blocks(500)
    assert len(next(read)) == 500
    with pytest.raises(DataError, match="cannot be read as a data set: .*x") as caught:
        list(read)
    assert "\n" not in str(caught.value)


def test_no_samples_no_column_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("text,label\n")
    with pytest.raises(DataError, match=r"empty.csv"):
        streamed(tmp_path / "empty.csv")
    with pytest.raises(DataError, match="holds no samples"):
        words(streamed(f"{written(tmp_path, 'a.parquet')}:[7:]"))
    with pytest.raises(DataError, match="has no column 'review'"):
        streamed(written(tmp_path, "a.csv"), reading=Reading(text_column="review"))


def test_a_step_meets_every_block_and_can_refuse(tmp_path: Path) -> None:
    def refuse(block: Samples) -> Samples:
        if "film" in block.inputs:
            raise DataError("seen before")
        return dataclasses.replace(block, inputs=[text.upper() for text in block.inputs])

    blocks = streamed(written(tmp_path, "a.csv")).through(refuse).blocks(3)
    assert next(blocks).inputs == [text.upper() for text in TEXTS[:3]]
    with pytest.raises(DataError, match="seen before"):
        next(blocks)

"""A label a word: what a Hydra answers, and every command on the way."""

import warnings
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from torch.testing import assert_close

import hydractl
import hydractl.auto
from hydractl.checkpoint.calibration import Calibration, FittedOod, OodFit
from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import CheckpointError, DataError
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.serve import load_onnx
from hydractl.surgery.fusion import fuse
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Answers
from tests.damage import edit_json
from tests.data.tokenizers_and_processors import TOKENIZERS
from tests.factories import TAGS, save_tagger, sentences
from tests.families import bert, modernbert
from tests.families.token_classification import tagger
from tests.references import answers, randomised, uneven_members

CLASSIFIERS = {**bert.VARIANTS.variants, **modernbert.VARIANTS.variants}
TEXTS = ["Anna Lee met Anna in Berlin.", "Berlin, Paris", "in Smith"]


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "deberta-v2", "modernbert"])
def test_uneven_and_empty_layers_equal_transformers_on_texts_of_mixed_length(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    reference = randomised(name, *tagger(CLASSIFIERS[name]))
    counts = reference.inputs["attention_mask"].bool()
    dense = read_checkpoint(reference.save(tmp_path / "dense"))
    wanted = reference.logits()[counts]
    for fast in (False, True):
        assert_close(answers(dense, reference.inputs, fast)[0][counts], wanted, rtol=0, atol=1e-10)
    members = uneven_members(dense)
    write_checkpoint(fuse(members), tmp_path / "hydra")
    each = torch.cat([answers(one, reference.inputs)[:, counts] for one in members])
    for fast in (False, True):
        found = answers(read_checkpoint(tmp_path / "hydra"), reference.inputs, fast)
        assert found.shape == (3, *counts.shape, 5)
        assert_close(found[:, counts], each, rtol=0, atol=1e-10)
    # A text alone has the answers that it has beside longer ones.
    alone = {key: tensor[1:2, :4] for key, tensor in reference.inputs.items()}
    assert_close(answers(dense, alone, fast=True)[0, 0], reference.logits()[1, :4], rtol=0, atol=1e-10)


def test_what_pads_a_recorded_pass_has_no_answers(tmp_path: Path) -> None:
    reference = randomised("bert", *tagger(bert.text_model))
    model = from_checkpoint(read_checkpoint(reference.save(tmp_path)))
    wanted = model(**reference.inputs)
    model.recorder = lambda inputs: model._answer(**inputs)  # as on a GPU, with 16 tokens in place of 9
    found = model(**reference.inputs)
    counts = reference.inputs["attention_mask"].bool()
    for name in ("member_logits", "probabilities", "logits"):
        ours, theirs = getattr(found, name), getattr(wanted, name)
        assert ours.shape == theirs.shape
        assert_close(ours[..., counts, :], theirs[..., counts, :], rtol=0, atol=1e-10)
    assert_close(found.features, wanted.features, rtol=0, atol=1e-10)


def test_worked_out_by_hand() -> None:
    words = np.log([[[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.9, 0.1]]])
    told = {"texts": ["a b c", "a"], "spans": [[(0, 1), (2, 3), (4, 5)], [(0, 1)]]}
    places = np.array([[0, 0], [0, 1], [0, 2], [1, 0]])

    def answered(least: float) -> Answers:
        sure = Calibration(ood=FittedOod(OodFit("msp", 9, 0.9, 0.9, least), {}))
        task, names = find_task("token-classification"), ("O", "B-X")
        return Answers(task=task, member_logits=words, classes=names, calibration=sure, places=places, **told)

    whole = answered(0.8 - 1e-12)
    assert whole.msp.tolist() == pytest.approx([0.5, 0.9])
    entropy = [-sum(p * np.log(p) for p in row) for row in ((0.9, 0.1), (0.2, 0.8), (0.5, 0.5))]
    assert whole.entropy.tolist() == pytest.approx([sum(entropy) / 3, entropy[0]])
    assert [[word.label for word in sentence] for sentence in whole.words] == [["O", "B-X", "O"], ["O"]]
    assert [word.text for word in whole.words[0]] == ["a", "b", "c"]
    assert whole.labels == [(("X", "b", 2, 3, pytest.approx(0.8), True),), ()]
    assert whole.sure.tolist() == [True, True] and not answered(0.81).sure[0]
    assert "b X 0.80" in repr(whole)


@pytest.fixture(scope="module")
def ready(tagged: Path) -> Checkpoint:
    """A calibrated Hydra of two."""
    train = f"{tagged}/train.parquet"
    members = [hydractl.prune(tagged / "tuned", method="random", budget=3, seed=1).checkpoint]
    members += [hydractl.prune(tagged / "tuned", method="taylor", id_data=train, budget=3).checkpoint]
    return hydractl.calibrate(hydractl.fuse(members), id_data=train).checkpoint


def test_pipelines_of_transformers_find_the_same_spans(tagged: Path, tmp_path: Path) -> None:
    def pipeline(folder: Path) -> Any:
        return transformers.pipeline("token-classification", str(folder), aggregation_strategy="first")

    def places(spans: Any) -> list[Any]:
        return [(one["entity_group"], one["start"], one["end"]) for one in spans]

    bare = save_tagger(tmp_path / "bare", seed=3)  # untrained: its spans are all kinds
    edit_json(bare / "config.json", problem_type="regression")  # transformers reads it for other tasks alone
    for model in (bare, tagged / "tuned"):
        predicted = hydractl.load(model).predict(TEXTS)
        for name, kind in (("stock", {}), ("hydra", {"as_hydra": True})):
            hydractl.export(model, format="hf", output=tmp_path / f"{model.name}-{name}", **kind)
            wanted = pipeline(tmp_path / f"{model.name}-{name}")(TEXTS)
            found = [[(span.label, span.start, span.end) for span in own] for own in predicted.labels]
            assert found == [places(own) for own in wanted]
    words = predicted.words[0]
    assert [word.text for word in words] == ["Anna", "Lee", "met", "Anna", "in", "Berlin", "."]
    spans = [min(word.confidence for word in words if a <= word.start < b) for _, a, b in places(wanted[0])]
    assert [span.confidence for span in predicted.labels[0]] == pytest.approx(spans)


def test_a_word_is_labelled_by_its_first_piece_here_and_in_a_folder_of_transformers(
    tagged: Path, ready: Checkpoint, tmp_path: Path
) -> None:
    write_checkpoint(ready, tmp_path / "hydra")
    model = hydractl.load(tmp_path / "hydra", dtype=torch.float64)
    rows = datasets.load_dataset("parquet", data_files=f"{tagged}/test.parquet", split="train")
    inputs = model.preprocessor([" ".join(rows["tokens"][0])])
    output = model(**inputs)
    # All but Berlin and Paris are one piece each; their first piece is the word's.
    first = [1, 2, 3] if rows["tokens"][0][0] == "Anna" else [1, 3, 4]
    found = torch.from_numpy(hydractl.predict(model, f"{tagged}/test.parquet").probabilities[:3])
    assert_close(found, output.probabilities[0, first], rtol=0, atol=1e-10)
    hydractl.export(ready, output=tmp_path / "graph.onnx")
    with pytest.raises(CheckpointError, match="needs its library"):
        load_onnx(tmp_path / "graph.onnx")
    hydractl.export(ready, output=tmp_path / "folder")
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "folder", dtype=torch.float64)
    assert_close(theirs(**inputs).logits.softmax(-1), output.probabilities, rtol=0, atol=1e-10)
    tags = torch.full(inputs["input_ids"].shape, -100)
    tags[0, 1], tags[0, -2] = 2, 3
    members = (output.member_logits / model.temperature).log_softmax(-1)[:, 0]
    expected = -(members[:, 1, 2] + members[:, -2, 3]).mean() / 2
    assert theirs(**inputs, labels=tags).loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_blank_line_keeps_its_place(ready: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("Anna met Lee\n\nin Paris\n")
    found = hydractl.predict(ready, tmp_path / "lines.txt")
    assert found.words[1] is None and found.unreadable == {1: "row 1: empty text"}
    assert found.probabilities.shape == found.member_logits.shape[1:] and set(found.places[:, 0]) == {0, 1}
    assert found.to_csv().count("\n") == 1 + 3 + 1 + 2


def test_abstains_by_the_precision_of_spans(tagged: Path) -> None:
    with_promise = hydractl.calibrate(tagged / "tuned", id_data=f"{tagged}/train.parquet", accuracy="50%").checkpoint
    least = with_promise.calibration.fit.confidence
    found = hydractl.predict(with_promise, f"{tagged}/test.parquet")
    spans = [span for own in found.labels for span in own]
    assert spans and all(span.sure == (span.confidence >= least) for span in spans)
    assert found.sure.tolist() == [all(span.sure for span in own) for own in found.labels]
    measured = hydractl.evaluate(with_promise, id_data=f"{tagged}/test.parquet", bootstrap=0, allow_leak=True)
    share = np.mean([span.sure for span in spans])
    assert next(iter(measured.report.models.values())).sure.share == share
    assert f"is sure of {100 * share:.1f} % of the spans that it finds in ID" in str(measured)


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "BertForMaskedLM", "BertForTokenClassification"])
def test_a_new_classifier_takes_the_task_of_its_data(kind: str, tagged: Path, tmp_path: Path) -> None:
    base = save_tagger(tmp_path / "base", model=getattr(transformers, kind))
    given: Any = {"steps": 1, "settings": {"new_classifier": "zeros"}}
    tuned = hydractl.finetune([base], train_data=f"{tagged}/train.parquet", **given).networks[0].checkpoint
    assert (tuned.family, tuned.labels) == ("bert-tokens", tuple(sorted({*TAGS} - {"I-LOC"})))
    hydractl.export(tuned, format="hf", output=tmp_path / "hf")
    theirs, info = transformers.BertForTokenClassification.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not info["missing_keys"] and theirs.config.id2label[0] == "B-LOC"
    texts = table(text=["Anna met Lee", "in Berlin"], label=["good", "bad"])
    other = hydractl.finetune([base], train_data=texts, **given).networks[0].checkpoint
    assert other.spec.task == "text-classification"


def their_batch(folder: Path, rows: datasets.Dataset) -> tuple[Any, dict[str, torch.Tensor], torch.Tensor]:
    """Their network, the inputs and the labels of sentences, as their examples make them."""
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = list(map(list, rows["tokens"]))
    batch = tokenizer(texts, is_split_into_words=True, padding=True, return_tensors="pt")
    labels = torch.full(batch["input_ids"].shape, -100)
    for row, tags in enumerate(rows["tags"]):
        seen: set[int] = set()
        for at, word in enumerate(batch.word_ids(row)):
            if word is not None and word not in seen:
                labels[row, at] = TAGS.index(tags[word])
                seen.add(word)
    return model, dict(batch), labels


def test_scores_are_those_of_their_gradients(tagged: Path, tmp_path: Path) -> None:
    rows = sentences(8)
    hydractl.export(tagged / "tuned", format="hf", output=tmp_path / "tuned")
    model, batch, labels = their_batch(tmp_path / "tuned", rows)
    model(**batch, labels=labels).loss.backward()
    parts = [getattr(model.bert.encoder.layer[1].attention.self, name) for name in ("query", "key", "value")]
    sizes = [(part.weight * part.weight.grad).abs().view(4, -1).mean(1) for part in parts]
    wanted = torch.stack(sizes).mean(0)
    found = torch.tensor(hydractl.score_heads(tagged / "tuned", method="taylor", id_data=rows).scores.towers["text"][1])
    assert_close((found / found.sum()).float(), wanted / wanted.sum(), rtol=1e-4, atol=0)
    spread = hydractl.score_heads(tagged / "tuned", method="deviation", id_data=rows).scores.towers["text"]
    assert all(score > 0 for layer in spread for score in layer)


def test_a_step_is_that_of_transformers(tagged: Path) -> None:
    """Each word of a step counts alike, also where the step takes several passes; labels have their first pieces."""
    rows = sentences(8)
    model, batch, labels = their_batch(tagged / "bert", rows)
    wanted = model(**batch, labels=labels).loss.item()
    for size in (8, 3):
        given = {"steps": 1, "settings": {"batch": 8, "lr": 1e-3}, "batch_size": size}
        log = hydractl.finetune([tagged / "bert"], train_data=rows, **given).networks[0].log
        assert log[0]["loss"] == pytest.approx(wanted, rel=1e-5)
    taught = {"teacher": [tagged / "tuned"], "settings": {"batch": 8, "teacher_weight": 1.0}}
    log = hydractl.finetune([tagged / "bert"], train_data=rows, steps=1, **taught).networks[0].log
    with torch.no_grad():
        p = hydractl.load(tagged / "tuned")(**batch).probabilities[labels >= 0]
        assert log[0]["loss"] == pytest.approx(
            -(p * model(**batch).logits.log_softmax(-1)[labels >= 0]).sum(-1).mean().item(), rel=1e-4
        )


def test_conll_files_and_numbers_are_read(tagged: Path, tmp_path: Path) -> None:
    rows = sentences(30, seed=1)
    lines = ["-DOCSTART- -X- O\n"]
    for tokens, tags in zip(rows["tokens"], rows["tags"], strict=True):
        lines += [f"{token} NN {tag}" for token, tag in zip(tokens, tags, strict=True)] + [""]
    (tmp_path / "test.conll").write_text("\n".join(lines))
    numbers = [[TAGS.index(tag) for tag in tags] for tags in rows["tags"]]
    plain = datasets.Dataset.from_dict({"tokens": rows["tokens"], "ner_tags": numbers})
    named = plain.cast_column("ner_tags", datasets.List(datasets.ClassLabel(names=list(TAGS))))
    given = {"allow_leak": True, "bootstrap": 0}
    wanted = hydractl.evaluate(tagged / "tuned", id_data=rows, **given).models["tuned"]["id"]
    for data in (tmp_path / "test.conll", plain, named):
        assert hydractl.evaluate(tagged / "tuned", id_data=data, **given).models["tuned"]["id"] == wanted


def table(**columns: Any) -> datasets.Dataset:
    return datasets.Dataset.from_dict(columns)


LETTERS = ["good film , a goodly é", "a good, film", "good-ly (a film)"]


@pytest.mark.parametrize("name", [name for name in TOKENIZERS if name not in ("camembert", "clip")])
def test_pipelines_find_the_same_spans_by_every_kind_of_tokenizer(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    tokenizer, (network, inputs) = TOKENIZERS[name](model_max_length=24), tagger(CLASSIFIERS[name])
    network.resize_token_embeddings(len(tokenizer))
    network.config.update({"id2label": dict(enumerate(TAGS)), "pad_token_id": tokenizer.pad_token_id})
    for part in (randomised(name, network, inputs, torch.float32).model, tokenizer):
        part.save_pretrained(tmp_path / "theirs")
    ours = hydractl.load(tmp_path / "theirs").predict(LETTERS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tokenizers that do not know words
        pipe = transformers.pipeline("token-classification", str(tmp_path / "theirs"), aggregation_strategy="first")
        wanted = [[(one["entity_group"], one["start"], one["end"]) for one in pipe(text)] for text in LETTERS]
    assert [[(span.label, span.start, span.end) for span in own] for own in ours.labels] == wanted and any(wanted)
    # A column of words has an answer for each of them, which the first of its pieces gives.
    found = hydractl.predict(tmp_path / "theirs", table(tokens=[text.split() for text in LETTERS]))
    assert [[word.text for word in own] for own in found.words] == [text.split() for text in LETTERS]


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (table(tokens=[["a"], ["a", "b"]], tags=[["O"], ["O"]]), "row 1 has 2 words and 1 tags in column tags"),
        (table(tokens=[["a"], ["a", "b"]], tags=[["O"], ["O", "B-ORG"]]), "row 1, word 1: tag B-ORG is not one of"),
        (table(tokens=[["a"]], tags=[[9]]), "outside the model's classes"),
        (table(tokens=[["a"]], tags=[[-100]]), "row 0 has no tagged word"),
        (table(tokens=[["a"]], tags=[["-100"]]), "row 0 has no tagged word"),
        (table(tokens=[["a", "b"]], tags=[["O", ""]]), r"row 0, word 1 \(b\) has no tag: write -100"),
        (table(tokens=[["a"]], other=[["O"]]), "has no column of tags"),
        (table(text=["a b"], label=["O"]), "has no tags, but the model labels words"),
    ],
)
def test_errors_of_data_name_the_row(data: datasets.Dataset, wanted: str, tagged: Path) -> None:
    with pytest.raises(DataError, match=wanted):
        hydractl.evaluate(tagged / "bert", id_data=data)


def test_tags_are_no_labels_of_texts(tagged: Path, tmp_path: Path) -> None:
    classifier = save_tagger(tmp_path / "one", model=transformers.BertForSequenceClassification)
    with pytest.raises(DataError, match="a tag for each word"):
        hydractl.evaluate(classifier, id_data=f"{tagged}/train.parquet")

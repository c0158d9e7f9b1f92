"""A label a word: what a Hydra answers, and every command on the way."""

import warnings
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from torch.testing import assert_close

import hydractl
import hydractl.auto
from hydractl.checkpoint.calibration import Calibration, FittedOod, OodFit
from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import CheckpointError, DataError, OptionError
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.serve import load_onnx
from hydractl.surgery.fusion import fuse
from hydractl.systems.saved import write_answers
from hydractl.systems.saved_file import read_answers
from hydractl.systems.system import SetKey
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Answers
from tests.factories import TAGS, save_tagger, sentences
from tests.families import bert, modernbert
from tests.families.token_classification import tagger
from tests.references import answers, randomised, uneven_members

BUILDS = {
    "bert": bert.text_model,
    "roberta": bert.roberta,
    "distilbert": bert.distilbert,
    "deberta-v2": bert.deberta,
    "modernbert": modernbert.modernbert,
}
TEXTS = ["Anna Lee met Anna in Berlin.", "Berlin, Paris", "in Smith"]


@pytest.mark.parametrize("name", BUILDS)
def test_uneven_and_empty_layers_equal_transformers_on_texts_of_mixed_length(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    reference = randomised(name, *tagger(BUILDS[name]))
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
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagger that was trained a little, and tables of its sentences."""
    folder = tmp_path_factory.mktemp("words")
    for name, count, seed in (("train", 40, 0), ("test", 30, 1)):
        sentences(count, seed).to_parquet(folder / f"{name}.parquet")
    shuffled = {"tokens": [["Berlin", "in", "in", "Anna"], ["Lee", "Lee", "Lee"]] * 5}
    datasets.Dataset.from_dict(shuffled).to_parquet(folder / "odd.parquet")
    settings = {"lr": 3e-3, "batch": 8}
    given = {"train_data": f"{folder}/train.parquet", "val_split": 8, "steps": 25, "settings": settings}
    hydractl.finetune([save_tagger(folder / "bert")], output=folder / "tuned", **given)
    hydractl.export(folder / "tuned", output=folder / "tuned-hf")
    return folder


@pytest.fixture(scope="module")
def ready(shared: Path) -> Checkpoint:
    """A calibrated Hydra of three."""
    train = f"{shared}/train.parquet"
    members = [hydractl.prune(shared / "tuned", method="magnitude", budget=2).checkpoint]
    members += [hydractl.prune(shared / "tuned", method="random", budget=3, seed=1).checkpoint]
    members += [hydractl.prune(shared / "tuned", method="taylor", id_data=train, budget=3).checkpoint]
    return hydractl.calibrate(hydractl.fuse(members), id_data=train, output=shared / "hydra").checkpoint


def test_pipelines_of_transformers_find_the_same_spans(shared: Path, tmp_path: Path) -> None:
    def pipeline(folder: Path) -> Any:
        return transformers.pipeline("token-classification", str(folder), aggregation_strategy="first")

    def places(spans: Any) -> list[Any]:
        return [(one["entity_group"], one["start"], one["end"]) for one in spans]

    bare = save_tagger(tmp_path / "bare", seed=3)  # untrained: its spans are all kinds
    for model in (bare, shared / "tuned"):
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


def test_every_step_from_words_to_exports(shared: Path, ready: Checkpoint, tmp_path: Path) -> None:
    test = f"{shared}/test.parquet"
    model = hydractl.load(shared / "hydra", dtype=torch.float64)
    rows = datasets.load_dataset("parquet", data_files=test, split="train")
    found = hydractl.predict(model, test)
    assert found.typicality is not None and found.profile is not None
    assert [len(own) for own in found.words] == [len(words) for words in rows["tokens"]]
    inputs = model.preprocessor([" ".join(rows["tokens"][0])])
    p = (model(**inputs).member_logits / model.temperature).softmax(-1).mean(0)[0]
    # All but Berlin and Paris are one piece each; their first piece is the word's.
    assert_close(torch.from_numpy(found.probabilities[:3]), p[[1, 2, 3] if rows["tokens"][0][0] == "Anna" else
                 [1, 3, 4]], rtol=0, atol=1e-10)  # fmt: skip
    hydractl.export(ready, output=tmp_path / "graph.onnx")
    with pytest.raises(CheckpointError, match="needs its library"):
        load_onnx(tmp_path / "graph.onnx")
    hydractl.export(ready, output=tmp_path / "folder")
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "folder", dtype=torch.float64)
    output = model(**inputs)
    assert_close(theirs(**inputs).logits.softmax(-1), output.probabilities, rtol=0, atol=1e-10)
    tags = torch.full(inputs["input_ids"].shape, -100)
    tags[0, 1], tags[0, -2] = 2, 3
    members = (output.member_logits / model.temperature).log_softmax(-1)[:, 0]
    assert theirs(**inputs, labels=tags).loss.item() == pytest.approx(
        -(members[:, 1, 2] + members[:, -2, 3]).mean().item() / 2, rel=1e-5
    )


def test_a_blank_line_keeps_its_place(ready: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("Anna met Lee\n\nin Paris\n")
    found = hydractl.predict(ready, tmp_path / "lines.txt")
    assert found.words[1] is None and found.unreadable == {1: "row 1: empty text"}
    assert found.probabilities.shape == found.member_logits.shape[1:] and set(found.places[:, 0]) == {0, 1}
    assert found.to_csv().count("\n") == 1 + 3 + 1 + 2


def test_abstains_by_the_precision_of_spans(shared: Path) -> None:
    with_promise = hydractl.calibrate(shared / "tuned", id_data=f"{shared}/train.parquet", accuracy="50%").checkpoint
    least = with_promise.calibration.fit.confidence
    found = hydractl.predict(with_promise, f"{shared}/test.parquet")
    spans = [span for own in found.labels for span in own]
    assert spans and all(span.sure == (span.confidence >= least) for span in spans)
    assert found.sure.tolist() == [all(span.sure for span in own) for own in found.labels]
    measured = hydractl.evaluate(with_promise, id_data=f"{shared}/test.parquet", bootstrap=0, allow_leak=True)
    share = np.mean([span.sure for span in spans])
    assert next(iter(measured.report.models.values())).sure.share == share
    assert f"is sure of {100 * share:.1f} % of the spans that it finds in ID" in str(measured)


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "BertForMaskedLM", "BertForTokenClassification"])
def test_a_new_classifier_takes_the_task_of_its_data(kind: str, shared: Path, tmp_path: Path) -> None:
    base = save_tagger(tmp_path / "base", model=getattr(transformers, kind))
    given: Any = {"steps": 1, "settings": {"new_classifier": "zeros"}}
    tuned = hydractl.finetune([base], train_data=f"{shared}/train.parquet", **given).networks[0].checkpoint
    assert (tuned.family, tuned.labels) == ("bert-tokens", tuple(sorted({*TAGS} - {"I-LOC"})))
    hydractl.export(tuned, format="hf", output=tmp_path / "hf")
    theirs, info = transformers.BertForTokenClassification.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not info["missing_keys"] and theirs.config.id2label[0] == "B-LOC"
    texts = table(text=["Anna met Lee", "in Berlin"], label=["good", "bad"])
    assert (
        hydractl.finetune([base], train_data=texts, **given).networks[0].checkpoint.spec.task == "text-classification"
    )


def test_answers_that_a_calibration_keeps_are_read_back(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    places = np.array([[0, 0], [0, 1], [1, 0]])
    answers = Answers(
        task=find_task("token-classification"), member_logits=draw.normal(size=(2, 3, 4)), truth=np.array([1, 0, 3]),
        features=draw.normal(size=(2, 2, 5)), places=places,
        hidden=[draw.normal(size=(1, 2, 5))], ood_score=draw.normal(size=2),
    )  # fmt: skip
    write_answers(tmp_path / "id.safetensors", answers, {})
    found = read_answers(tmp_path / "id.safetensors", SetKey("id", "words"), "layers")
    for name in ("member_logits", "truth", "features", "places", "ood_score"):
        assert np.array_equal(getattr(found, name), getattr(answers, name))
    assert len(found) == 2 and np.array_equal(found.hidden[0], answers.hidden[0])
    assert found.to_score().samples == 2


def their_batch(folder: Path, rows: datasets.Dataset) -> tuple[Any, dict[str, torch.Tensor], torch.Tensor]:
    """Their network, the inputs and the labels of sentences, as their examples make them."""
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(
        [list(words) for words in rows["tokens"]], is_split_into_words=True, padding=True, return_tensors="pt"
    )
    labels = torch.full(batch["input_ids"].shape, -100)
    for row, tags in enumerate(rows["tags"]):
        seen: set[int] = set()
        for at, word in enumerate(batch.word_ids(row)):
            if word is not None and word not in seen:
                labels[row, at] = TAGS.index(tags[word])
                seen.add(word)
    return model, dict(batch), labels


def test_scores_are_those_of_their_gradients(shared: Path) -> None:
    rows = sentences(8)
    model, batch, labels = their_batch(shared / "tuned-hf", rows)
    model(**batch, labels=labels).loss.backward()
    parts = [getattr(model.bert.encoder.layer[1].attention.self, name) for name in ("query", "key", "value")]
    sizes = [(part.weight * part.weight.grad).abs().view(4, -1).mean(1) for part in parts]
    wanted = torch.stack(sizes).mean(0)
    found = torch.tensor(hydractl.score_heads(shared / "tuned", method="taylor", id_data=rows).scores.towers["text"][1])
    assert_close((found / found.sum()).float(), wanted / wanted.sum(), rtol=1e-4, atol=0)
    spread = hydractl.score_heads(shared / "tuned", method="deviation", id_data=rows).scores.towers["text"]
    assert all(score > 0 for layer in spread for score in layer)


def test_a_step_is_that_of_transformers(shared: Path) -> None:
    """Each word of a step counts alike, also where the step takes several passes; labels have their first pieces."""
    rows = sentences(8)
    model, batch, labels = their_batch(shared / "bert", rows)
    wanted = model(**batch, labels=labels).loss.item()
    for size in (8, 3):
        given = {"steps": 1, "settings": {"batch": 8, "lr": 1e-3}, "batch_size": size}
        log = hydractl.finetune([shared / "bert"], train_data=rows, **given).networks[0].log
        assert log[0]["loss"] == pytest.approx(wanted, rel=1e-5)
    taught = {"teacher": [shared / "tuned"], "settings": {"batch": 8, "teacher_weight": 1.0}}
    log = hydractl.finetune([shared / "bert"], train_data=rows, steps=1, **taught).networks[0].log
    with torch.no_grad():
        p = hydractl.load(shared / "tuned")(**batch).probabilities[labels >= 0]
        assert log[0]["loss"] == pytest.approx(
            -(p * model(**batch).logits.log_softmax(-1)[labels >= 0]).sum(-1).mean().item(), rel=1e-4
        )


def test_conll_files_and_numbers_are_read(shared: Path, tmp_path: Path) -> None:
    rows = sentences(30, seed=1)
    lines = ["-DOCSTART- -X- O\n"]
    for tokens, tags in zip(rows["tokens"], rows["tags"], strict=True):
        lines += [f"{token} NN {tag}" for token, tag in zip(tokens, tags, strict=True)] + [""]
    (tmp_path / "test.conll").write_text("\n".join(lines))
    numbers = [[TAGS.index(tag) for tag in tags] for tags in rows["tags"]]
    plain = datasets.Dataset.from_dict({"tokens": rows["tokens"], "ner_tags": numbers})
    named = plain.cast_column("ner_tags", datasets.List(datasets.ClassLabel(names=list(TAGS))))
    given = {"allow_leak": True, "bootstrap": 0}
    wanted = hydractl.evaluate(shared / "tuned", id_data=rows, **given).models["tuned"]["id"]
    for data in (tmp_path / "test.conll", plain, named):
        assert hydractl.evaluate(shared / "tuned", id_data=data, **given).models["tuned"]["id"] == wanted


def table(**columns: Any) -> datasets.Dataset:
    return datasets.Dataset.from_dict(columns)


LETTERS = ["anna lee met anna in berlin .", "berlin, paris", "in neb la-rit (menne)"]


def tokenizer_of(kind: str, folder: Path) -> None:
    """Saves a tokenizer of words' pieces, of bytes, or of pieces that begin with a blank."""
    whole: Any = {
        "wordpiece": tokenizers.models.WordPiece(unk_token="[UNK]"),
        "bytes": tokenizers.models.BPE(unk_token="[UNK]"),
        "unigram": tokenizers.models.Unigram(),
    }[kind]
    made, parts = tokenizers.Tokenizer(whole), tokenizers.pre_tokenizers
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainers, own = tokenizers.trainers, {"vocab_size": 58, "special_tokens": special, "show_progress": False}
    if kind == "wordpiece":
        made.pre_tokenizer, trainer = parts.BertPreTokenizer(), trainers.WordPieceTrainer(**own)
    elif kind == "bytes":
        made.pre_tokenizer, trainer = parts.ByteLevel(add_prefix_space=False), trainers.BpeTrainer(**own)
    else:
        made.pre_tokenizer, trainer = parts.Metaspace(), trainers.UnigramTrainer(unk_token="[UNK]", **own)
    made.train_from_iterator(LETTERS, trainer)
    ends = [("[CLS]", made.token_to_id("[CLS]")), ("[SEP]", made.token_to_id("[SEP]"))]
    made.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=24, **names).save_pretrained(folder)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("bert", "wordpiece"), ("distilbert", "wordpiece"), ("electra", "wordpiece"), ("roberta", "bytes")),
        *(("modernbert", "bytes"), ("xlm-roberta", "unigram"), ("deberta-v2", "unigram"), ("mpnet", "wordpiece")),
    ],
)
def test_pipelines_find_the_same_spans_by_every_kind_of_tokenizer(name: str, kind: str, tmp_path: Path) -> None:
    build = BUILDS.get(name) or bert.VARIANTS.variants[name]
    torch.manual_seed(0)
    reference = randomised(name, *tagger(build), torch.float32)
    reference.model.config.id2label = dict(enumerate(TAGS))
    reference.model.config.pad_token_id = 0 if name != "roberta" else reference.model.config.pad_token_id
    reference.save(tmp_path / "theirs")
    tokenizer_of(kind, tmp_path / "theirs")
    ours = hydractl.load(tmp_path / "theirs").predict(LETTERS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tokenizers that do not know words
        pipe = transformers.pipeline("token-classification", str(tmp_path / "theirs"), aggregation_strategy="first")
        wanted = [[(one["entity_group"], one["start"], one["end"]) for one in pipe(text)] for text in LETTERS]
    assert [[(span.label, span.start, span.end) for span in own] for own in ours.labels] == wanted
    # A column of words has an answer for each of them, which the first of its pieces gives.
    rows = table(tokens=[text.split() for text in LETTERS])
    found = hydractl.predict(tmp_path / "theirs", rows)
    assert [[word.text for word in own] for own in found.words] == [text.split() for text in LETTERS]


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (table(tokens=[["a"], ["a", "b"]], tags=[["O"], ["O"]]), "row 1 has 2 words and 1 tags in column tags"),
        (table(tokens=[["a"], ["a", "b"]], tags=[["O"], ["O", "B-ORG"]]), "row 1, word 1: tag B-ORG is not one of"),
        (table(tokens=[["a"]], tags=[[9]]), "outside the model's classes"),
        (table(tokens=[["a"]], tags=[[-100]]), "row 0 has no tagged word"),
        (table(tokens=[["a"]], other=[["O"]]), "has no column of tags"),
        (table(text=["a b"], label=["O"]), "has no tags, but the model labels words"),
    ],
)
def test_errors_of_data_name_the_row(data: datasets.Dataset, wanted: str, shared: Path) -> None:
    with pytest.raises(DataError, match=wanted):
        hydractl.evaluate(shared / "bert", id_data=data)


def test_what_needs_one_class_is_refused_with_a_remedy(shared: Path, ready: Checkpoint, tmp_path: Path) -> None:
    model, data, odd = shared / "tuned", f"{shared}/train.parquet", f"{shared}/odd.parquet"
    for wanted, call in (
        ("leave it out", lambda: hydractl.calibrate(model, id_data=data, ood_score="msp")),
        ("leave it out", lambda: hydractl.calibrate(model, id_data=data, ood_data=odd)),
        ("choose layers", lambda: hydractl.evaluate(model, id_data=data, ood_score="energy", allow_leak=True)),
        (
            "leave it out",
            lambda: hydractl.evaluate(model, id_data=data, save_logits=tmp_path / "saved", allow_leak=True),
        ),
        ("leave it out", lambda: hydractl.finetune([model], train_data=data, outlier_data=odd, steps=1)),
    ):
        with pytest.raises(OptionError, match=wanted):
            call()
    with pytest.raises(DataError, match="a tag for each word"):
        base = save_tagger(tmp_path / "one", model=transformers.BertForSequenceClassification)
        hydractl.evaluate(base, id_data=data)

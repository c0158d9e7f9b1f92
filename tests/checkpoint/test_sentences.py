"""Files of sentence-transformers: what they say is computed, and what is not supported is refused by its name.

The right values follow from the library's documented rules, by the forward pass and the tokenizers of transformers.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch.testing import assert_close

import hydractl
from hydractl.checkpoint.sentences import ABOUT, TEXT_NAMES
from hydractl.checkpoint.spec import IDENTITY, SIGMOID
from hydractl.errors import CheckpointError
from hydractl.families.load import read_checkpoint
from tests.cli.conftest import named, save_bert
from tests.damage import edit_json
from tests.factories import CROSS_ENCODER, ONE_NUMBER, REGRESSION, save_encoder

LONG = "a good film owl bad good a film owl bad a a good"
TANH, SOFTMAX = "torch.nn.modules.activation.Tanh", "torch.nn.modules.activation.Softmax"
TRANSFORMER = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
POOLING = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
DENSE = {"path": "2_Dense", "type": "sentence_transformers.base.modules.dense.Dense"}
MEAN = {"pooling_mode_mean_tokens": True}
#: What is not computed, and how older releases say it.
POOLS = {
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
SCORES = {"method": "forward", "method_output_name": "logits"}


def save_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def save_reranker(folder: Path, labels: int = 1, config: dict[str, Any] | None = None, **about: Any) -> Path:
    """A CrossEncoder as release 5.4 and later write it."""
    save_bert(folder)
    torch.manual_seed(0)
    theirs = hf.BertConfig.from_pretrained(folder, num_labels=labels)
    hf.BertForSequenceClassification(theirs).save_pretrained(folder)
    edit_json(folder / "config.json", **(config or {}))
    save_json(folder / "modules.json", [TRANSFORMER])
    task = {"transformer_task": "sequence-classification", "modality_config": {"text": SCORES}}
    save_json(folder / "sentence_bert_config.json", {**task, "module_output_name": "scores"})
    about = {"model_type": "CrossEncoder", "prompts": {}, "default_prompt_name": None, "__version__": {}, **about}
    save_json(folder / "config_sentence_transformers.json", about)
    return folder


def test_a_reranker_answers_by_the_activation_of_its_own_file(tmp_path: Path) -> None:
    pairs = [("a good film", "owl bad"), ("bad", "film")]
    folder = save_reranker(tmp_path / "reranker", activation_fn=SIGMOID)
    tokens = hf.AutoTokenizer.from_pretrained(folder)(*zip(*pairs, strict=True), padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = hf.AutoModelForSequenceClassification.from_pretrained(folder)(**tokens).logits.sigmoid()
    hydractl.export(folder, format="hf", output=tmp_path / "hf")
    for reranker in (folder, tmp_path / "hf"):
        assert_close(torch.from_numpy(hydractl.load(reranker).predict(pairs).values), expected)


@pytest.mark.parametrize(
    ("labels", "about", "config", "task"),
    [
        (1, {"activation_fn": SIGMOID}, {}, "text-probability"),
        (1, {"activation_fn": "torch.nn.Sigmoid"}, {}, "text-probability"),
        (1, {"activation_fn": IDENTITY}, {"sentence_transformers": {"activation_fn": SIGMOID}}, "text-regression"),
        (1, {"activation_fn": SIGMOID}, {"sbert_ce_default_activation_function": IDENTITY}, "text-probability"),
        (1, {}, {"sbert_ce_default_activation_function": IDENTITY}, "text-regression"),
        (1, {"activation_fn": None}, {}, "text-probability"),
        (3, {"activation_fn": IDENTITY}, {}, "text-classification"),
        (3, {"activation_fn": SOFTMAX}, {}, "text-classification"),
        (3, {"activation_fn": SIGMOID}, {}, "multi-label-text-classification"),
        (3, {}, {"sentence_transformers": {"activation_fn": SIGMOID}}, "multi-label-text-classification"),
        # A config alone, as transformers saves it.
        (1, None, REGRESSION, "text-regression"),
        (1, None, ONE_NUMBER, "text-regression"),
        (1, None, {**ONE_NUMBER, "sentence_transformers": {"activation_fn": IDENTITY}}, "text-regression"),
        (1, None, CROSS_ENCODER, "text-probability"),
        (1, None, {**CROSS_ENCODER, **REGRESSION}, "text-probability"),
        (1, None, {**ONE_NUMBER, "sbert_ce_default_activation_function": SIGMOID}, "text-probability"),
        (2, None, {**REGRESSION, **named("a", "b")}, "text-regression"),
    ],
)
def test_the_activation_decides_the_task(
    labels: int, about: dict[str, Any] | None, config: dict[str, Any], task: str, tmp_path: Path
) -> None:
    folder = save_bert(tmp_path, **config) if about is None else save_reranker(tmp_path / "a", labels, config, **about)
    assert read_checkpoint(folder).spec.task == task


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("name", [TANH, "mine.Gate", "torch.sigmoid"])
def test_other_activations_are_refused_by_name(name: str, labels: int, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=name):
        read_checkpoint(save_reranker(tmp_path / "a", labels, activation_fn=name))


def test_nothing_may_follow_the_scores_of_a_reranker(tmp_path: Path) -> None:
    folder = save_reranker(tmp_path / "a", activation_fn=SIGMOID)
    save_json(folder / "modules.json", [TRANSFORMER, DENSE])
    with pytest.raises(CheckpointError, match=r"modules\.json: .*Dense"):
        read_checkpoint(folder)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder that keeps capitals, and cuts no texts."""
    folder = save_encoder(tmp_path_factory.mktemp("sentences") / "st")
    (folder / "sentence_bert_config.json").unlink()
    (folder / "tokenizer.json").unlink(missing_ok=True)
    edit_json(folder / "tokenizer_config.json", do_lower_case=False)
    return folder


def embed(folder: Path, *texts: str) -> torch.Tensor:
    return torch.from_numpy(hydractl.load(folder).predict(texts).embeddings)


@pytest.mark.parametrize("name", TEXT_NAMES)
@pytest.mark.parametrize("settings", ["sentence", "arguments", "no tokenizer_config"])
def test_texts_are_cut_where_any_of_its_files_says(name: str, settings: str, encoder: Path, tmp_path: Path) -> None:
    shutil.copytree(encoder, tmp_path / "st")
    content = {"max_seq_length": 9, "tokenizer_args": {"model_max_length": 5}}
    save_json(tmp_path / "st" / name, content if settings == "arguments" else {"max_seq_length": 5})
    if settings == "no tokenizer_config":
        (tmp_path / "st" / "tokenizer_config.json").unlink()
    assert_close(embed(tmp_path / "st", LONG), embed(encoder, " ".join(LONG.split()[:3])))
    assert not torch.allclose(embed(encoder, LONG), embed(tmp_path / "st", LONG), atol=1e-3)


def test_its_settings_go_with_a_network_in_every_form(encoder: Path, tmp_path: Path) -> None:
    """Letters are lowered, texts are cut, and so are embeddings after their length is set."""
    shutil.copytree(encoder, tmp_path / "st")
    save_json(tmp_path / "st" / "sentence_bert_config.json", {"do_lower_case": True, "max_seq_length": 5})
    save_json(tmp_path / "st" / ABOUT, {"truncate_dim": 6, "similarity_fn_name": "cosine"})
    capitals, lowered = ["A GOOD Film", "OWL"], ["a good film", "owl"]
    assert not torch.allclose(embed(encoder, *capitals), embed(encoder, *lowered), atol=1e-3)
    assert_close(embed(tmp_path / "st", *capitals), embed(encoder, *lowered)[:, :6])
    for source, output in ((encoder, "wide"), (tmp_path / "st", "pruned")):
        hydractl.prune(source, method="random", budget=1, output=tmp_path / output)
    expected = embed(tmp_path / "wide", *lowered)[:, :6]
    hydractl.export(tmp_path / "pruned", format="onnx", output=tmp_path / "graph.onnx")
    hydractl.export(tmp_path / "pruned", format="hf", output=tmp_path / "hf")
    hydractl.export(tmp_path / "pruned", format="hf", as_hydra=True, output=tmp_path / "hydra")
    for form in ("pruned", "hf"):
        assert_close(embed(tmp_path / form, *capitals), expected)
    graph = hydractl.predict(tmp_path / "graph.onnx", text=capitals).embeddings
    assert_close(torch.from_numpy(graph), expected, rtol=0, atol=1e-5)
    for folder in ("hf", "hydra"):
        theirs = hf.AutoTokenizer.from_pretrained(tmp_path / folder)
        assert theirs(capitals)["input_ids"] == theirs(lowered)["input_ids"]
        assert len(theirs(LONG, truncation=True)["input_ids"]) == 5


def test_an_encoder_that_names_neither_architecture_nor_length_is_exported(encoder: Path, tmp_path: Path) -> None:
    shutil.copytree(encoder, tmp_path / "st")
    edit_json(tmp_path / "st" / "tokenizer_config.json", model_max_length=int(1e30))  # as transformers writes none
    config = json.loads((encoder / "config.json").read_text())
    save_json(tmp_path / "st" / "config.json", {key: config[key] for key in config if key != "architectures"})
    hydractl.export(tmp_path / "st", format="hf", output=tmp_path / "hf")
    assert json.loads((tmp_path / "hf" / "sentence_bert_config.json").read_text())["max_seq_length"] == 24
    assert_close(embed(tmp_path / "hf", LONG * 2), embed(encoder, LONG * 2))


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("modules.json", [{**TRANSFORMER, "type": "custom_st.Transformer"}], "custom_st.Transformer"),
        ("modules.json", [{**TRANSFORMER, "quantize": True}], "quantize"),
        ("modules.json", [{**TRANSFORMER, "path": "../other"}], "path"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "SparseEncoder"),
        ("config_sentence_transformers.json", {"model_type": "CrossEncoder"}, "CrossEncoder"),
        ("config_sentence_transformers.json", {"quantize": "int8"}, "quantize"),
        ("config_sentence_transformers.json", {"truncate_dim": 0}, "truncate_dim"),
        ("sentence_bert_config.json", {"max_seq_length": 0}, "max_seq_length"),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {"max_length": 3}}}, "processing_kwargs"),
        ("sentence_bert_config.json", {"tokenizer_args": {"padding_side": "left"}}, "padding_side"),
        ("sentence_bert_config.json", {"config_args": {"hidden_size": 3}}, "hidden_size"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "fill-mask"),
        ("sentence_bert_config.json", {"module_output_name": "scores"}, "token_embeddings"),
        ("sentence_bert_config.json", {"lower": True}, "lower"),
        ("modules.json", {}, "no list of modules"),
        ("modules.json", [TRANSFORMER, POOLING, DENSE], "has a Dense behind"),
        *(("1_Pooling/config.json", {early: True}, f"pools by {name},") for name, early in POOLS.items()),
        ("1_Pooling/config.json", {**MEAN, "pooling_mode_max_tokens": True}, "by max and mean"),
        ("1_Pooling/config.json", {"pooling_mode": "max"}, "by max"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "by cls and mean"),
        ("1_Pooling/config.json", {**MEAN, "pooling_weights": [1]}, "pooling_weights is unknown"),
        ("2_Normalize/config.json", {"module_input_name": "token_embeddings"}, "module_input_name"),
    ],
)
def test_other_settings_are_refused_by_name(file: str, content: Any, named: str, encoder: Path, tmp_path: Path) -> None:
    shutil.copytree(encoder, tmp_path / "st")
    (tmp_path / "st" / "2_Normalize").mkdir(exist_ok=True)
    save_json(tmp_path / "st" / file, content)
    with pytest.raises(CheckpointError, match=named):
        read_checkpoint(tmp_path / "st")


def test_settings_that_change_no_answer_are_accepted(encoder: Path, tmp_path: Path) -> None:
    shutil.copytree(encoder, tmp_path / "st")
    modules = json.loads((encoder / "modules.json").read_text())
    modules.insert(2, {"path": "3_Dropout", "type": "sentence_transformers.models.Dropout", "kwargs": ["task"]})
    save_json(tmp_path / "st" / "modules.json", modules)
    states = {"method": "forward", "method_output_name": "last_hidden_state"}
    texts = {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings", "unpad_inputs": False}
    texts |= {"modality_config": {"text": states, "message": {**states, "format": "flat"}}, "query_length": 32}
    arguments = {"model_args": {"attn_implementation": "sdpa"}, "tokenizer_args": {"trust_remote_code": False}}
    save_json(tmp_path / "st" / "sentence_bert_config.json", {**texts, **arguments, "max_seq_length": None})
    about = {"prompts": {"query": "", "document": ""}, "default_prompt_name": None, "similarity_fn_name": "dot"}
    about |= {"truncate_dim": 99, "__version__": {"pytorch": "2"}}  # more numbers than an embedding has
    save_json(tmp_path / "st" / "config_sentence_transformers.json", about)
    assert_close(embed(tmp_path / "st", LONG), embed(encoder, LONG))

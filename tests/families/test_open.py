import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close

import hydractl.checkpoint
from hydractl.checkpoint.contents import identity
from hydractl.errors import CheckpointError
from hydractl.families.config import ClassNames, Fields
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.model.hydra import from_checkpoint
from tests.conftest import build_reference
from tests.damage import edit_json
from tests.references import Reference, answers, architectures

State = dict[str, Tensor]


def edit_weights(folder: Path, change: Callable[[State], object]) -> None:
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def test_load_save_load_is_bit_equal(reference: Reference, tmp_path: Path) -> None:
    first = read_checkpoint(reference.save(tmp_path / "theirs"))
    write_checkpoint(first, tmp_path / "ours")
    second = hydractl.checkpoint.read(tmp_path / "ours")  # without the table of its architecture
    write_checkpoint(second, tmp_path / "again")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "again").read_bytes()
    assert second.spec == first.spec and second.labels == first.labels and second.heads == first.heads
    for name, tensor in first.tensors.items():
        assert torch.equal(tensor.load(), second.tensors[name].load())
    assert_close(from_checkpoint(second)(**reference.inputs).member_logits[0], reference.logits(), rtol=0, atol=1e-10)


def test_both_spellings_of_vit_are_one_model(tmp_path: Path) -> None:
    reference = build_reference("vit")
    saved = read_checkpoint(reference.save(tmp_path / "saved"))
    reference.save(tmp_path / "memory")
    save_file(reference.model.state_dict(), tmp_path / "memory" / "model.safetensors")
    in_memory = read_checkpoint(tmp_path / "memory")
    assert identity(in_memory) == identity(saved)


def test_identity_changes_with_a_single_bit(tmp_path: Path) -> None:
    folder = build_reference("vit").save(tmp_path)
    before = identity(read_checkpoint(folder))
    edit_weights(folder, lambda state: state["classifier.bias"].view(torch.int64)[0].bitwise_xor_(1))
    assert identity(read_checkpoint(folder)) != before


def age(state: State) -> None:
    for name in [name for name in state if "LayerNorm" in name]:
        state[name.replace(".weight", ".gamma").replace(".bias", ".beta")] = state.pop(name)


def wrapped(prefix: str) -> Callable[[State], None]:
    def change(state: State) -> None:
        for name in list(state):
            state[prefix + name] = state.pop(name)

    return change


def compiled_inside(state: State) -> None:
    for name in [name for name in state if ".encoder." in name]:
        state[name.replace(".encoder.", ".encoder._orig_mod.")] = state.pop(name)


def beside(name: str, tensor: Tensor) -> Callable[[State], None]:
    return lambda state: state.update({name: tensor})


WRAPPERS = {
    "compiled": (wrapped("_orig_mod."), "removes _orig_mod."),
    "parallel": (wrapped("module."), "removes module."),
    "in a frame": (wrapped("model."), "removes model."),
    "all of them": (wrapped("model.module._orig_mod."), "removes _orig_mod. and model. and module."),
}
LOSSES = (
    *("loss_fct.weight", "loss.weight", "criterion.pos_weight", "focal_loss.alpha", "ArcFaceLoss.weight"),
    *("class_weights", "class_weight", "pos_weight", "losses.0.weight"),
)
#: A network, how its tensors are renamed or what lies beside them, and what is noted of that.
OTHER_NAMES: dict[str, tuple[str, Callable[[State], None], str]] = {
    **{f"{case} {name}": (name, *row) for name in ("bert", "modernbert") for case, row in WRAPPERS.items()},
    **{name: ("bert", beside(name, torch.ones(5)), name) for name in LOSSES},
    "compiled inside": ("bert", compiled_inside, "removes _orig_mod."),
    "norms of older releases": ("bert", age, ""),
    "buffers of older releases": ("bert", beside("bert.embeddings.position_ids", torch.arange(32)[None]), ""),
}


@pytest.mark.parametrize("case", OTHER_NAMES)
def test_other_names_are_the_same_model(case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    name, change, noted = OTHER_NAMES[case]
    folder = build_reference(name).save(tmp_path)
    before = identity(read_checkpoint(folder))
    assert not caplog.records
    edit_weights(folder, change)
    assert identity(read_checkpoint(folder)) == before and noted in caplog.text


NORM = "bert.encoder.layer.0.output.LayerNorm"
BAD_WEIGHTS: dict[str, tuple[Callable[[State], object], str]] = {
    "unknown tensor": (lambda s: s.update(spare=torch.ones(2)), "claims: spare"),
    "missing tensor": (lambda s: s.pop("bert.pooler.dense.bias"), "bert.pooler.dense.bias"),
    "missing classifier": (lambda s: s.pop("classifier.weight"), "new_classifier"),
    "misshapen tensor": (lambda s: s.update({"classifier.weight": torch.ones(4, 16)}), r"\[4, 16\], .* \[5, 16\]"),
    "integer weights": (lambda s: s.update({"classifier.bias": torch.ones(5).long()}), "classifier.bias"),
    "eight bits": (lambda s: s.update({"classifier.bias": torch.ones(5).to(torch.float8_e4m3fn)}), "bias .* F8_E4M3"),
    "two spellings": (lambda s: s.update({f"{NORM}.gamma": s[f"{NORM}.weight"].clone()}), "two spellings: keep one"),
}


@pytest.mark.parametrize("case", BAD_WEIGHTS)
def test_bad_weights(case: str, tmp_path: Path) -> None:
    change, message = BAD_WEIGHTS[case]
    folder = build_reference("bert").save(tmp_path)
    edit_weights(folder, change)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(folder)


ONE, TANH = {"id2label": {"0": "a"}, "label2id": {"a": 0}}, "torch.nn.modules.activation.Tanh"
BAD_CONFIGS = {
    "activation": ("vit", {"hidden_act": "mish"}, "hidden_act"),
    "decoder": ("bert", {"is_decoder": True}, "is_decoder"),
    "relative": ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
    "family": ("vit", {"model_type": "swin"}, "model_type 'swin' is not supported, its attention works in windows"),
    "unknown family": ("vit", {"model_type": "x"}, "model_type 'x'"),
    "a decoder": ("bert", {"model_type": "qwen3"}, "'qwen3' is not supported, it is a decoder"),
    "a decoder by a table": ("bert", {"model_type": "olmo3"}, "'olmo3' is not supported, it is a decoder"),
    "a pair by a table": ("bert", {"model_type": "mvp"}, "'mvp' is not supported, it has an encoder and a decoder"),
    "an encoder by a table": ("bert", {"model_type": "rembert"}, "'rembert' is not supported, the nearest known is"),
    "a near name": ("bert", {"model_type": "bertt"}, "the nearest known is bert:"),
    "quantized": ("bert", {"quantization_config": {"quant_method": "gptq"}}, "quantized by gptq: name the model that"),
    "quantized by bitsandbytes": (
        "bert",
        {"quantization_config": {"quant_method": "bitsandbytes"}},
        r"quantized by bitsandbytes: .*dequantize\(\)",
    ),
    "pruned": ("bert", {"pruned_heads": {"0": [1]}}, "pruned_heads"),
    "one class alone": ("bert", {**ONE, "problem_type": "single_label_classification"}, "two or more classes"),
    "another link": ("bert", {**ONE, "sentence_transformers": {"activation_fn": TANH}}, "the activation is"),
    "a null label": ("bert", {"id2label": {"0": None, "1": "b"}}, "id2label"),
    "heads": ("vit", {"num_attention_heads": 5}, "hidden_size is 16, .* 5 attention heads"),
    "other sizes": ("vit", {"num_hidden_layers": 2}, "no part of a ViT"),
    "scaled turning": ("nomic-bert", {"rope_scaling": {"type": "linear", "factor": 4.0}}, "rope_scaling"),
    "turning of another type": ("jina-v3", {"rope_parameters": {"type": "linear"}}, "rope_parameters.type"),
    "convolution": ("deberta-v2", {"conv_kernel_size": 3}, "conv_kernel_size"),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
def test_bad_configs(case: str, tmp_path: Path) -> None:
    name, changes, message = BAD_CONFIGS[case]
    folder = build_reference(name).save(tmp_path)
    edit_json(folder / "config.json", **changes)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(folder)


def without_an_activation(config: dict[str, Any]) -> dict[str, Any]:
    part = config["text_config"]
    return {"text_config_dict": {name: part[name] for name in part if name != "hidden_act"}}


#: A network, and what older files have in its config.
OLDER: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "a base of turning": ("nomic-bert", lambda _: {"rope_parameters": None, "rope_theta": 50.0}),
    "a base beside": ("jina-v3", lambda _: {"rope_parameters": {"rope_type": "default"}, "rope_theta": 5.0}),
    "common names": ("distilbert", lambda old: {"num_attention_heads": 2, "hidden_size": old["dim"], "dim": 9}),
    "a copy of a part, which wins with its defaults": ("clip-gelu", without_an_activation),
}


@pytest.mark.parametrize("case", OLDER)
def test_older_configs_mean_what_transformers_reads(case: str, tmp_path: Path) -> None:
    name, change = OLDER[case]
    reference = build_reference(name)
    folder = reference.save(tmp_path)
    edit_json(folder / "config.json", **change(json.loads((folder / "config.json").read_text())))
    theirs = replace(reference, model=type(reference.model).from_pretrained(folder, dtype=torch.float64).eval())
    assert not torch.allclose(theirs.logits(), reference.logits(), rtol=0, atol=1e-8)
    assert_close(answers(read_checkpoint(folder), reference.inputs)[0], theirs.logits(), rtol=0, atol=1e-10)


CONFIGS = [
    pytest.param(*pair, id=pair[1].__name__) for architecture in architectures() for pair in architecture.configs
]
REMOVED = {  # by transformers, from configs that older files still have
    "position_embedding_type",
    *("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta", "rope_scaling", "rope_theta"),
}
#: By transformers, if missing.
COMPUTED = {"head_dim", "layer_types", "rope_parameters", "projection_size", "pooler_hidden_size"}
UNDECLARED = {  # by DeBERTa's config, but read by its model
    *("cls_dropout", "embedding_size", "attention_head_size", "position_buckets", "share_att_key", "norm_rel_ebd"),
    "conv_kernel_size",
}


@pytest.mark.parametrize(("ours", "theirs"), CONFIGS)
def test_defaults_are_those_of_transformers(ours: type[Fields], theirs: Any) -> None:
    names = {each.name for each in fields(ours)} - ClassNames.__dataclass_fields__.keys() - REMOVED - COMPUTED
    names -= {"vision_config", "text_config"} | {name for name in UNDECLARED if not hasattr(theirs(), name)}
    found = {name: getattr(theirs(), name) for name in names}
    pairs = {name: (found[name],) * 2 for name in names & {"image_size", "patch_size"}}
    assert found | pairs == {name: ours.__dataclass_fields__[name].default for name in names}


#: Config fields without an effect on the logits of a trained classifier, and why that is so.
INERT = {
    "initializer_range", "initializer_factor", "logit_scale_init_value",  # only before training
    "use_cache", "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id",  # of generation
    "sub_configs_defaults",  # of no config in particular
}.union(*(architecture.inert for architecture in architectures()))  # fmt: skip


@pytest.mark.parametrize(("known", "theirs"), CONFIGS)
def test_every_config_field_is_honoured_refused_or_inert(known: type[Fields], theirs: type) -> None:
    fields = {name for name in theirs.__annotations__ if name not in {"model_type", "base_config_key"}}
    assert not fields - known.__dataclass_fields__.keys() - INERT

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close as close
from transformers import BertForSequenceClassification, RobertaForSequenceClassification, ViTForImageClassification

import hydractl
from hydractl.checkpoint.contents import identity
from hydractl.checkpoint.tensors import rounded
from hydractl.errors import CheckpointError, OptionError
from hydractl.families.load import read_checkpoint
from hydractl.families.peft import with_adapter
from hydractl.inference import load_checkpoint
from hydractl.surgery.slicing import with_dtype
from tests.conftest import build_reference
from tests.damage import edit_json
from tests.references import Reference

peft = pytest.importorskip("peft")
assert_close = partial(close, rtol=0, atol=1e-10)
OF_BERT = ["query", "attention.output.dense", "intermediate.dense"]
MAPS = {"vit": ["q_proj", "v_proj", "mlp.fc1"], "bert": OF_BERT, "roberta": OF_BERT}
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def adapters(
    name: str, folder: Path, network: Callable[[], Any] | None = None, **settings: Any
) -> tuple[Reference, list[Path], Tensor]:
    """A network, two adapters of it or of another that differ in all they have, and peft's answers, `[M,B,C]`."""
    answers, places = [], []
    for seed in range(2):
        reference = build_reference(name)
        asked = {"r": 2, "lora_alpha": 3, "target_modules": MAPS[name], "modules_to_save": ["classifier"], **settings}
        adapted = peft.get_peft_model(network() if network else reference.model, peft.LoraConfig(**asked))
        torch.manual_seed(seed)
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.data = torch.randn(parameter.shape, dtype=torch.float64)
        answers.append(replace(reference, model=adapted.eval()).logits())
        places.append(folder / f"adapter{seed}")
        adapted.save_pretrained(places[-1])
    return build_reference(name), places, torch.stack(answers)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("vit", {}),
        ("bert", {"use_rslora": True}),
        ("vit", {"layers_to_transform": [0, 2]}),
        ("vit", {"modules_to_save": ["classifier", "layers.1.attention.o_proj"]}),
    ],
)
def test_adapters_become_members(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    reference, places, expected = adapters(name, tmp_path, **settings)
    base = reference.save(tmp_path / "base")
    hydractl.fuse([base, *places], separate="all", output=tmp_path / "both")
    assert_close(load_checkpoint(read_checkpoint(tmp_path / "both"))(**reference.inputs).member_logits, expected)
    alone = hydractl.fuse([base, places[0]]).checkpoint
    assert_close(load_checkpoint(alone)(**reference.inputs).member_logits, expected[:1])
    soup = hydractl.fuse([base, *places], soup=True).checkpoint
    members = [with_adapter(read_checkpoint(base), place) for place in places]
    for weight in ("classifier.bias", f"{soup.spec.towers[0].name}.layers.0.attention.q.weight"):
        assert_close(soup.tensors[weight].load(), torch.stack([m.tensors[weight].load() for m in members]).mean(0))


def test_members_may_have_adapters_of_other_maps_and_ranks(tmp_path: Path) -> None:
    reference, [first, _], one = adapters("vit", tmp_path / "a", modules_to_save=None)
    _, [_, second], other = adapters("vit", tmp_path / "b", r=3, target_modules=["o_proj"], modules_to_save=None)
    fused = hydractl.fuse([reference.save(tmp_path / "base"), first, second], separate="all").checkpoint
    assert {"classifier.weight", "vision.layers.0.mlp.fc2.weight"} <= fused.shared
    assert_close(load_checkpoint(fused)(**reference.inputs).member_logits, torch.stack([one[0], other[1]]))


BARE: dict[str, Any] = {
    "bert": BertForSequenceClassification,
    "roberta": RobertaForSequenceClassification,
    "vit": ViTForImageClassification,
}


@pytest.mark.parametrize("name", BARE)
@pytest.mark.parametrize("classes", [2, 4])
def test_a_base_network_takes_the_classifiers_of_its_adapters(name: str, classes: int, tmp_path: Path) -> None:
    reference = build_reference(name)
    base: Any = getattr(reference.model, reference.model.base_model_prefix)
    config = reference.model.config
    config.id2label = {i: f"LABEL_{i}" for i in range(2)}
    base.save_pretrained(tmp_path / "base")

    def network() -> Any:
        return BARE[name].from_pretrained(tmp_path / "base", num_labels=classes).double()

    _, places, expected = adapters(name, tmp_path, network)
    fused = hydractl.fuse([tmp_path / "base", *places], separate="all", output=tmp_path / "both").checkpoint
    assert fused.labels == tuple(f"LABEL_{i}" for i in range(classes))
    found = load_checkpoint(read_checkpoint(tmp_path / "both"))(**reference.inputs).member_logits
    assert_close(found, expected)
    save_file({n: t for n, t in load_file(places[1] / WEIGHTS).items() if "classifier" not in n}, places[1] / WEIGHTS)
    with pytest.raises(CheckpointError, match="adapter1: .*bias, .*base"):
        hydractl.fuse([tmp_path / "base", *places])


def test_an_adapter_in_a_pickle_is_the_same(saved: tuple[Path, list[Path]], tmp_path: Path) -> None:
    base, [place, _] = saved
    expected = identity(with_adapter(read_checkpoint(base), place))
    old = Path(copytree(place, tmp_path / "old"))
    torch.save(load_file(place / WEIGHTS), old / "adapter_model.bin")
    (old / WEIGHTS).unlink()
    assert identity(with_adapter(read_checkpoint(base), old)) == expected


def test_a_merged_weight_is_rounded_once(saved: tuple[Path, list[Path]]) -> None:
    base, [place, _] = saved
    short = with_dtype(read_checkpoint(base), torch.bfloat16)
    name = "vision.layers.0.mlp.fc1.weight"
    exact = with_adapter(with_dtype(short, torch.float64), place).tensors[name].load()
    assert torch.equal(with_adapter(short, place).tensors[name].load(), rounded(exact, torch.bfloat16))


def changed(**fields: Any) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / CONFIG, **fields)


def tensors(change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS)

    return damage


def first_of(found: dict[str, Tensor], ending: str) -> str:
    return next(name for name in sorted(found) if name.endswith(ending))


def turned(found: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    return found | {first_of(found, part): found[first_of(found, part)].T.contiguous()}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (changed(peft_type="IA3"), "peft_type"),
        (changed(r="2"), "r is"),
        (changed(r=10**12), "r is"),
        (changed(lora_alpha=None), "lora_alpha"),
        (changed(use_dora=True), "use_dora"),
        (changed(rank_pattern={"q_proj": 4}), "rank_pattern"),
        (changed(of_the_future=1), "of_the_future"),
        (changed(bias="all"), "bias is"),
        (changed(init_lora_weights="pissa"), "init_lora_weights"),
        (lambda folder: (folder / CONFIG).write_text("[" * 10000), CONFIG),
        (lambda folder: (folder / WEIGHTS).unlink(), WEIGHTS),
        (lambda folder: (folder / WEIGHTS).write_bytes(b"\x80\x04 no weights"), WEIGHTS),
        (tensors(lambda found: found | {"other.weight": torch.zeros(2)}), "other.weight"),
        (tensors(lambda found: {n: t for n, t in found.items() if "lora" not in n}), "no LoRA factors"),
        (
            tensors(lambda found: {n: t for n, t in found.items() if "0.mlp.fc1.lora_B" not in n}),
            "fc1.weight has no lo",
        ),
        (tensors(lambda found: found | {first_of(found, "lora_A.weight"): torch.zeros(2, 16).long()}), "torch.int64"),
        *((tensors(partial(turned, part=part)), "damaged: .* expected") for part in ("lora_A.weight", "lora_B.weight")),
    ],
)
def test_what_is_no_such_adapter_is_refused(
    damage: Callable[[Path], None], message: str, saved: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    base, places = saved
    damaged = Path(copytree(places[1], tmp_path / "damaged"))
    damage(damaged)
    with pytest.raises(CheckpointError, match=message):
        with_adapter(read_checkpoint(base), damaged)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    folder = tmp_path_factory.mktemp("peft")
    reference, places, _ = adapters("vit", folder)
    return reference.save(folder / "base"), places


def test_what_adapters_cannot_go_with_is_refused(saved: tuple[Path, list[Path]]) -> None:
    base, (first, second) = saved
    for models in ([first, second], [base, base, first, second], [first, second, base]):
        with pytest.raises(OptionError, match="adapters"):
            hydractl.fuse(models)
    with pytest.raises(OptionError, match="two members"):
        hydractl.fuse([base, first], separate="all")
    with pytest.raises(OptionError, match="has 2 members"):
        hydractl.fuse([hydractl.fuse([base, first, second]), first])

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
from hydractl.errors import CheckpointError, OptionError
from hydractl.families.load import read_checkpoint
from hydractl.families.peft import with_adapters
from hydractl.inference import load_checkpoint
from tests.conftest import build_reference
from tests.damage import edit_json
from tests.references import Reference

peft = pytest.importorskip("peft")
assert_close = partial(close, rtol=0, atol=1e-10)
OF_BERT = ["query", "attention.output.dense", "intermediate.dense"]
MAPS = {"vit": ["q_proj", "v_proj", "mlp.fc1"], "bert": OF_BERT, "roberta": OF_BERT}
WHOLE = "base_model.model.vit.layers.0.attention.k_proj.weight"
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
    ("name", "settings"), [("vit", {}), ("bert", {"use_rslora": True}), ("vit", {"layers_to_transform": [1, 2]})]
)
def test_adapters_become_members(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    reference, places, expected = adapters(name, tmp_path, **settings)
    fused = hydractl.fuse([reference.save(tmp_path / "base"), *places], output=tmp_path / "lora").checkpoint
    assert fused.spec.adapter.kind == "low-rank"
    assert_close(load_checkpoint(read_checkpoint(tmp_path / "lora"))(**reference.inputs).member_logits, expected)
    alone = hydractl.fuse([tmp_path / "base", places[0]]).checkpoint
    assert alone.spec.adapter is None
    assert_close(load_checkpoint(alone)(**reference.inputs).member_logits, expected[:1])
    assert_close(
        hydractl.fuse([tmp_path / "base", *places], soup=True).checkpoint.tensors["classifier.bias"].load(),
        fused.tensors["classifier.bias"].load().mean(0),
    )


def test_without_a_classifier_of_its_own_a_member_has_the_networks(tmp_path: Path) -> None:
    reference, places, expected = adapters("vit", tmp_path, modules_to_save=None)
    made = with_adapters(read_checkpoint(reference.save(tmp_path / "base")), places)
    assert "classifier.weight" in made.shared
    assert_close(load_checkpoint(made)(**reference.inputs).member_logits, expected)


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
    fused = hydractl.fuse([tmp_path / "base", *places], output=tmp_path / "lora").checkpoint
    assert fused.labels == tuple(f"LABEL_{i}" for i in range(classes))
    found = load_checkpoint(read_checkpoint(tmp_path / "lora"))(**reference.inputs).member_logits
    assert_close(found, expected)
    save_file({n: t for n, t in load_file(places[1] / WEIGHTS).items() if "classifier" not in n}, places[1] / WEIGHTS)
    with pytest.raises(CheckpointError, match="adapter1: .*bias, .*base"):
        hydractl.fuse([tmp_path / "base", *places])


def test_adapters_in_a_pickle_are_the_same(saved: tuple[Path, list[Path]], tmp_path: Path) -> None:
    base, places = saved
    expected = identity(with_adapters(read_checkpoint(base), places))
    old = [Path(copytree(place, tmp_path / place.name)) for place in places]
    for place in old:
        torch.save(load_file(place / WEIGHTS), place / "adapter_model.bin")
        (place / WEIGHTS).unlink()
    assert identity(with_adapters(read_checkpoint(base), old)) == expected


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
        (changed(lora_alpha=4), "scale is 2, but 1.5 in"),
        (lambda folder: (folder / CONFIG).write_text("[" * 10000), CONFIG),
        (lambda folder: (folder / WEIGHTS).unlink(), WEIGHTS),
        (lambda folder: (folder / WEIGHTS).write_bytes(b"\x80\x04 no weights"), WEIGHTS),
        (tensors(lambda found: found | {"other.weight": torch.zeros(2)}), "other.weight"),
        (
            tensors(lambda found: {n: t for n, t in found.items() if "layers.1." not in n}),
            "does not change the same maps as",
        ),
        (tensors(lambda found: found | {first_of(found, "lora_A.weight"): torch.zeros(2, 16).long()}), "torch.int64"),
        (tensors(lambda found: found | {WHOLE: torch.zeros(16, 16)}), "attention.k.weight"),
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
        with_adapters(read_checkpoint(base), [places[0], damaged])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    folder = tmp_path_factory.mktemp("peft")
    reference, places, _ = adapters("vit", folder)
    return reference.save(folder / "base"), places


def test_what_adapters_cannot_go_with_is_refused(saved: tuple[Path, list[Path]], tmp_path: Path) -> None:
    base, (first, second) = saved
    _, uneven, _ = adapters("vit", tmp_path, layers_to_transform=[0, 2])
    with pytest.raises(CheckpointError, match="adapter0: .* every layer"):
        with_adapters(read_checkpoint(base), uneven)
    for models in ([first, second], [base, base, first, second], [first, second, base]):
        with pytest.raises(OptionError, match="adapters"):
            hydractl.fuse(models)
    with pytest.raises(OptionError, match="separate"):
        hydractl.fuse([base, first, second], separate="all")

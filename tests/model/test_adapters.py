"""What members change of maps they share, against peft and against loops over members through transformers."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.manifest import KEY, from_metadata, read, to_metadata, write
from hydractl.errors import CheckpointError, OptionError
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads, fold, pick_members, split_members
from hydractl.training.ensembles import BatchEnsemble, Ensemble, LoraEnsemble, MaskEnsemble, spread
from tests.conftest import build_reference
from tests.references import Reference, answers, with_tensors
from tests.training.conftest import RECIPE

LORA, BATCH, MASK = (Ensemble(method, 3) for method in (LoraEnsemble(2, 3.0), BatchEnsemble(), MaskEnsemble()))
EVERY = pytest.mark.parametrize("ensemble", [LORA, BATCH, MASK], ids=lambda ensemble: ensemble.method.name)


def ensemble_of(reference: Reference, ensemble: Ensemble, folder: Path) -> Checkpoint:
    """An ensemble of the network of which members differ in all that is their own, LoRA's B included."""
    made = spread(read_checkpoint(reference.save(folder)), ensemble, replace(RECIPE, factor_width=0.5), 0)
    generator = torch.Generator().manual_seed(1)
    own = {name: tensor.shape for name, tensor in made.tensors.items() if name not in made.shared}
    drawn = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in own.items()}
    return with_tensors(made, drawn)


def assert_alike_everywhere(checkpoint: Checkpoint, reference: Reference, expected: Tensor) -> None:
    """The plain and the fast forward, members alone and folded weights all answer as expected."""
    for made, fast in ((checkpoint, False), (checkpoint, True), (fold(checkpoint), False)):
        assert_close(answers(made, reference.inputs, fast), expected, rtol=1e-10, atol=1e-10)
    for member, logits in zip(split_members(checkpoint), expected, strict=True):
        assert_close(answers(member, reference.inputs)[0], logits, rtol=1e-10, atol=1e-10)
    some = pick_members(checkpoint, [2, 0])
    some.verify()
    assert_close(answers(some, reference.inputs), expected[[2, 0]], rtol=1e-10, atol=1e-10)


def test_low_rank_members_are_those_of_peft(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    made = ensemble_of(build_reference("vit"), LORA, tmp_path)
    expected = []
    for member in range(3):
        reference = build_reference("vit")
        for name in ("classifier.weight", "classifier.bias"):
            reference.model.get_parameter(name).data = made.tensors[name].load()[member]
        names = ["q_proj", "k_proj", "v_proj", "o_proj"]
        adapted = peft.get_peft_model(reference.model, peft.LoraConfig(r=2, lora_alpha=3, target_modules=names))
        for name, module in adapted.base_model.model.named_modules():
            if hasattr(module, "lora_A"):
                ours = f"vision.{name.removeprefix('vit.').removesuffix('_proj')}"
                module.lora_A["default"].weight.data = made.tensors[f"{ours}.lora_a"].load()[member]
                module.lora_B["default"].weight.data = made.tensors[f"{ours}.lora_b"].load()[member]
        expected.append(replace(reference, model=adapted.eval()).logits())
    assert_alike_everywhere(made, build_reference("vit"), torch.stack(expected))


def hooked(reference: Reference, hook: Callable[[str, nn.Linear], Callable[[Tensor], Tensor]]) -> Tensor:
    """What the network answers where its linear maps compute something else."""
    for name, module in reference.model.named_modules():
        if isinstance(module, nn.Linear):
            module.forward = hook(name, module)
    return reference.logits()


def test_rank_one_members_are_the_published_product(tmp_path: Path) -> None:
    made = ensemble_of(build_reference("vit"), BATCH, tmp_path)

    def published(member: int) -> Callable[[str, nn.Linear], Callable[[Tensor], Tensor]]:
        def hook(name: str, module: nn.Linear) -> Callable[[Tensor], Tensor]:
            ours = name.replace("vit.", "vision.").removesuffix("_proj")
            r, s, b = (made.tensors[f"{ours}.{part}"].load()[member] for part in ("r", "s", "bias"))
            return lambda x: F.linear(x * r, module.weight) * s + b

        return hook

    expected = torch.stack([hooked(build_reference("vit"), published(member)) for member in range(3)])
    assert_alike_everywhere(made, reference := build_reference("vit"), expected)
    in_training = from_checkpoint(made).train()(**reference.inputs).member_logits
    assert_close(in_training, expected, rtol=1e-10, atol=1e-10)


@EVERY
@pytest.mark.parametrize("name", ["bert", "deit-distilled", "vit-no-qkv-bias"])
def test_other_architectures_answer_fast_and_folded_as_they_do(name: str, ensemble: Ensemble, tmp_path: Path) -> None:
    reference = build_reference(name)
    made = ensemble_of(reference, ensemble, tmp_path)
    assert_alike_everywhere(made, reference, answers(made, reference.inputs))


@EVERY
def test_a_file_is_read_as_it_was_written_and_its_members_part(ensemble: Ensemble, tmp_path: Path) -> None:
    reference = build_reference("vit")
    made = ensemble_of(reference, ensemble, tmp_path / "vit")
    write(made, tmp_path / "file")
    stored = read(tmp_path / "file")
    assert stored.spec == made.spec and stored.shared == made.shared
    assert torch.equal(answers(stored, reference.inputs), answers(made, reference.inputs))
    assert fuse([stored]).spec.adapter is None
    with pytest.raises(OptionError, match="has 3 members"):
        drop_heads(stored, [])
    with pytest.raises(OptionError, match="file: members 0,3: "):
        pick_members(stored, [0, 3])


def test_what_an_adapter_cannot_be_is_refused(tmp_path: Path) -> None:
    lora, factors = (ensemble_of(build_reference("vit"), each, tmp_path / each.method.name) for each in (LORA, BATCH))
    a, weight = "vision.layers.0.attention.q.lora_a", "vision.layers.0.mlp.fc1.weight"
    shared = replace(with_tensors(lora, {a: torch.zeros(2, 16)}), shared=lora.shared | {a})
    own = replace(with_tensors(factors, {weight: torch.zeros(3, 24, 16)}), shared=factors.shared - {weight})
    for checkpoint, message in (
        (shared, f"{a} is not stored like an adapted map"),
        (own, f"{weight} is not stored like an adapted map"),
        (with_tensors(lora, {a: torch.zeros(3, 5, 16)}), rf"{a} has shape \[3, 5, 16\], expected \[3, 2, 16\]"),
    ):
        with pytest.raises(CheckpointError, match=message):
            write(checkpoint, tmp_path / "broken")
    manifest = json.loads(to_metadata(lora)[KEY])
    for changes, message in [
        ({"kind": "other"}, "adapter.kind"),
        ({"size": 0}, "size is 0"),
        ({"scale": -1.0}, "scale is -1.0"),
        ({"parts": []}, "parts should be"),
        ({"first": 501}, "first is 501"),
    ]:
        spec = {**manifest["spec"], "adapter": {**manifest["spec"]["adapter"], **changes}}
        with pytest.raises(CheckpointError, match=message):
            from_metadata("file", {KEY: json.dumps({**manifest, "spec": spec})}, lora.tensors)

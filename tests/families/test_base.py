"""Networks without a classifier, as their own library saves them, are read as classifiers that are still to train."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import transformers as hf
from torch import Tensor, nn
from torch.testing import assert_close

from hydractl.checkpoint.contents import identity
from hydractl.checkpoint.heads import Head
from hydractl.checkpoint.spec import EMBEDDINGS, ModelSpec
from hydractl.errors import CheckpointError, OptionError
from hydractl.exports.stock import write_stock
from hydractl.families import FAMILIES
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.surgery.slicing import drop_heads
from hydractl.training.network import with_new_classifier
from tests.conftest import build_reference
from tests.references import CLASSES, SIZES, Reference, architectures, randomised, save_timm

LABELS = tuple("abcde")
#: By task, how transformers makes a classifier of a network that has none.
CLASSIFIERS: dict[str, Any] = {
    "image-classification": hf.AutoModelForImageClassification,
    "text-classification": hf.AutoModelForSequenceClassification,
}
BASES = [
    pytest.param(name, base, id=f"{name}-{getattr(base, '__self__', base).__name__}")
    for architecture in architectures()
    for name, base in architecture.bases
]


@pytest.mark.parametrize(("name", "base"), BASES)
def test_a_new_classifier_goes_where_transformers_puts_one(
    name: str, base: Callable[[Any], Any], tmp_path: Path
) -> None:
    reference = build_reference(name)
    saved: Any = randomised(name, base(reference.model.config), {}).model
    saved.save_pretrained(tmp_path / "base")
    task = next(family.task for family in FAMILIES if family.name == name)
    automatic = CLASSIFIERS[task]
    # For an encoder of which transformers makes no classifier, the tests do.
    maker = automatic if type(reference.model.config) in automatic._model_mapping else type(reference.model)
    theirs = maker.from_pretrained(tmp_path / "base", num_labels=CLASSES).double().eval()
    theirs.save_pretrained(tmp_path / "theirs")
    check(tmp_path / "base", tmp_path / "theirs", replace(reference, model=theirs))
    if name in ("clip-image", "metaclip-2-image", "siglip"):  # whose base is a zero-shot model
        return
    if saved.config.architectures[0].endswith("Model"):
        if name != "data2vec-vision":  # whose base lacks the norm behind the mean
            check_embedding(tmp_path / "base", saved.double().eval(), reference.inputs)
    else:
        with pytest.raises(CheckpointError, match="with `new_classifier`"):
            read_checkpoint(tmp_path / "base")


def check_embedding(base: Path, theirs: Any, inputs: dict[str, Tensor]) -> None:
    """Without a classifier it embeds: a text as the mean of its tokens, an image as its library pools it.

    So does what is pruned, by our forward passes and theirs.
    """
    dense = read_checkpoint(base)
    assert dense.spec.embeds and dense.labels is None
    for drop in ([], [Head(dense.spec.towers[0].name, 1, head) for head in (0, 2)]):
        pruned = drop_heads(dense, drop)
        write_stock(pruned, base.parent / f"stock{len(drop)}")
        stock = type(theirs).from_pretrained(base.parent / f"stock{len(drop)}").double().eval()
        for model in (from_checkpoint(pruned), from_checkpoint(pruned).optimize_for_inference()):
            with torch.no_grad():
                found = model(**inputs).member_logits[0]
                assert_close(found, embedded(stock, inputs, dense.spec), rtol=0, atol=1e-10)


def embedded(network: Any, inputs: dict[str, Tensor], spec: ModelSpec) -> Tensor:
    output = network(**inputs)
    hidden = output.last_hidden_state
    if spec.modality == "text":
        mask = inputs.get("attention_mask", torch.ones(hidden.shape[:2]))[..., None]
        return (hidden * mask).sum(1) / mask.sum(1)
    if spec.towers[0].pool == "first":
        return hidden[:, 0]
    pooled = getattr(output, "pooler_output", None)
    return hidden.mean(1) if pooled is None else pooled


def check(base: Path, theirs: Path, reference: Reference) -> None:
    """The base network with their classifier on it is their network, and gives their logits."""
    read = read_checkpoint(base, without_classifier=True)
    ours, full = with_new_classifier(read, LABELS, "zeros"), read_checkpoint(theirs)
    assert {tensor.dtype for tensor in ours.tensors.values()} == {torch.float64}
    zeros = from_checkpoint(ours)(**reference.inputs).member_logits
    assert zeros.shape == (1, *reference.logits().shape) and not zeros.any()
    new = [key for key, slot in full.slots().items() if slot.group in ("classifier", "pooler")]
    with_theirs = replace(ours, tensors={**ours.tensors, **{key: full.tensors[key] for key in new}})
    assert identity(with_theirs) == identity(full)
    logits = from_checkpoint(with_theirs)(**reference.inputs).member_logits[0]
    assert logits.abs().max() > 1e-3
    assert_close(logits, reference.logits(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("bare", [hf.CLIPVisionModel, hf.CLIPVisionModelWithProjection, hf.SiglipVisionModel])
def test_an_image_tower_alone(bare: Any, tmp_path: Path) -> None:
    """Transformers makes no classifier of such a file itself: the tower is the one in the model of both."""
    reference = build_reference("siglip" if bare is hf.SiglipVisionModel else "clip-image")
    tower = randomised("tower", bare(reference.model.config.vision_config), {}).model
    tower.save_pretrained(tmp_path / "base")
    classifier = reference.model
    own = classifier.vision_model.state_dict()
    source = {name.removeprefix("vision_model."): tensor for name, tensor in tower.state_dict().items()}
    classifier.vision_model.load_state_dict({name: source[name] for name in own})
    classifier.save_pretrained(tmp_path / "theirs")
    check(tmp_path / "base", tmp_path / "theirs", reference)


@pytest.mark.parametrize("variant", ["timm", "timm-average", "timm-deit"])
def test_timm_without_classes_or_with_an_identity_for_a_head(variant: str, tmp_path: Path) -> None:
    reference = build_reference(variant)
    model: Any = reference.model
    reference.save(tmp_path / "theirs")
    model.head = nn.Identity()
    if hasattr(model, "head_dist"):
        model.head_dist = nn.Identity()
    save_timm(model, tmp_path / "identity")
    model.reset_classifier(0)
    save_timm(model, tmp_path / "none", num_classes=0)
    reference = replace(reference, model=timm.create_model(f"local-dir:{tmp_path / 'theirs'}", pretrained=True))
    reference.model.double().eval()
    for base in ("identity", "none"):
        check(tmp_path / base, tmp_path / "theirs", reference)


def test_timm_by_the_wrapper_of_transformers(tmp_path: Path) -> None:
    reference = build_reference("timm")
    width, depth, heads, _ = SIZES.values()
    args = {"embed_dim": width, "depth": depth, "num_heads": heads, "img_size": 12, "patch_size": 4, "mlp_ratio": 1.5}
    cfg = {"input_size": [3, 12, 12]}
    config = hf.TimmWrapperConfig(
        architecture="vit_tiny_patch16_224", model_args=args, pretrained_cfg=cfg, num_labels=CLASSES
    )
    theirs = hf.TimmWrapperForImageClassification(config)
    theirs.timm_model.load_state_dict(reference.model.state_dict())
    theirs.double().eval().save_pretrained(tmp_path / "theirs")
    base = hf.TimmWrapperModel(config)
    base.timm_model.load_state_dict(reference.model.state_dict(), strict=False)
    base.double().save_pretrained(tmp_path / "base")
    check(tmp_path / "base", tmp_path / "theirs", replace(reference, model=theirs))


def test_every_family_has_a_base_or_a_reason_not_to(tmp_path: Path) -> None:
    tested = {name for architecture in architectures() for name, _ in architecture.bases} | {"timm"}
    assert tested == {family.name for family in FAMILIES if family.base is not None}
    # Those that label tokens are made of the bases of the other classifiers.
    others = {*EMBEDDINGS.values(), "token-classification"}
    without = {family.name for family in FAMILIES if family.task not in others} - tested
    assert without == {"clip", "metaclip-2", "chinese-clip", "siglip-zero-shot", "open-clip", "deit-distilled"}
    # The base of both DeiTs is one network; who wants its second classifier starts from a checkpoint that has it.
    distilled = build_reference("deit-distilled").save(tmp_path / "deit")
    assert identity(read_checkpoint(distilled, without_classifier=True)) == identity(read_checkpoint(distilled))
    # No library has a classifier over an image tower as OpenCLIP writes it.
    zero_shot = read_checkpoint(build_reference("open-clip").save(tmp_path / "open-clip"), without_classifier=True)
    with pytest.raises(OptionError, match="is a zero-shot model"):
        with_new_classifier(zero_shot, LABELS, "zeros")


#: Models that answer no question of one class, as transformers names them.
OTHER_TASKS: dict[str, tuple[str, Any]] = {
    "spans": ("bert", hf.AutoModelForQuestionAnswering),
    "spans of a RoBERTa": ("roberta", hf.AutoModelForQuestionAnswering),
    "choices": ("bert", hf.AutoModelForMultipleChoice),
    "choices of an ELECTRA": ("electra", hf.AutoModelForMultipleChoice),
}


@pytest.mark.parametrize("task", OTHER_TASKS)
def test_other_tasks_are_refused_with_a_remedy_that_works(task: str, tmp_path: Path) -> None:
    name, maker = OTHER_TASKS[task]
    reference = build_reference(name)
    maker.from_config(reference.model.config).save_pretrained(tmp_path / "other")
    with pytest.raises(CheckpointError, match="`new_classifier` zeros"):
        read_checkpoint(tmp_path / "other")
    read = with_new_classifier(read_checkpoint(tmp_path / "other", without_classifier=True), LABELS, "zeros")
    inputs = {key: value.float() if value.is_floating_point() else value for key, value in reference.inputs.items()}
    assert not from_checkpoint(read)(**inputs).member_logits.any()
    assert (read.labels, read.spec.classes) == (LABELS, len(LABELS))


def test_what_is_missing_is_drawn_or_zero_in_the_dtype_of_the_rest(tmp_path: Path) -> None:
    config = build_reference("bert").model.config
    for number, dtype in enumerate((torch.float32, torch.bfloat16)):
        hf.AutoModelForMaskedLM.from_config(config).to(dtype).save_pretrained(tmp_path / str(number))
        read = read_checkpoint(tmp_path / str(number), without_classifier=True)
        assert {tensor.dtype for tensor in read.tensors.values()} == {dtype}
        drawn = read.tensors["text.pooler.weight"].load().float()
        assert drawn.std().item() == pytest.approx(0.02, rel=0.2)
        assert not read.tensors["classifier.weight"].load().any() and not read.tensors["text.pooler.bias"].load().any()

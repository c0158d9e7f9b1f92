from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from hydractl.errors import OptionError
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import from_checkpoint
from tests.conftest import build_reference
from tests.references import Reference, answers, family_variants


def test_plain_and_fast_it_equals_transformers_in_float64(reference: Reference, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(reference.save(tmp_path))
    model = from_checkpoint(checkpoint)
    output = model(**reference.inputs)
    for found in (output.member_logits, answers(checkpoint, reference.inputs, fast=True)):
        assert_close(found[0], reference.logits(), rtol=0, atol=1e-10)
    assert_close(output.probabilities, reference.probabilities(), rtol=0, atol=1e-10)
    assert_close(model.task.probabilities(output.logits), reference.probabilities(), rtol=0, atol=1e-10)


def test_gradients_reach_every_parameter(family_reference: Reference, tmp_path: Path) -> None:
    model = from_checkpoint(read_checkpoint(family_reference.save(tmp_path))).requires_grad_(True)
    model(**family_reference.inputs).logits[:, 0].sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("name", family_variants())
def test_computes_the_same_whether_or_not_gradients_are_wanted(name: str, tmp_path: Path) -> None:
    reference = build_reference(name, dtype=torch.float32)
    model = from_checkpoint(read_checkpoint(reference.save(tmp_path))).requires_grad_(True)
    with torch.inference_mode():
        without = model(**reference.inputs).member_logits
    assert torch.equal(model(**reference.inputs).member_logits, without)


def test_missing_input_is_named(tmp_path: Path) -> None:
    model = from_checkpoint(read_checkpoint(build_reference("vit").save(tmp_path)))
    with pytest.raises(OptionError, match="pixel_values"):
        model()


def test_it_shows_what_it_is_in_a_few_lines(tmp_path: Path) -> None:
    model = from_checkpoint(read_checkpoint(build_reference("vit").save(tmp_path)))
    model.labels = ("cat\x1b[31m", *"bcdefghijklmn")
    title, *facts = repr(model).splitlines()
    found = dict(fact.strip().split(maxsplit=1) for fact in facts)
    tower = model.spec.towers[0]
    assert (title, found["family"], found["members"]) == ("Hydra", "vit, image-classification", "1")
    assert found["heads"] == f"{tower.layers * tower.heads} of {tower.layers * tower.heads} (vision)"
    assert found["labels"].startswith("14: cat") and found["labels"].endswith("b, c, d, e, f, g, h, i, j, ...")
    assert repr(model).replace("\n", "").isprintable() and "hydractl.calibrate" in repr(model)


def test_logits_are_the_classifier_of_the_features(family_reference: Reference, tmp_path: Path) -> None:
    model = from_checkpoint(read_checkpoint(family_reference.save(tmp_path)))
    inputs = dict(family_reference.inputs)
    if model.spec.task == "zero-shot":
        texts = inputs.pop("input_ids"), inputs.pop("attention_mask", None)
        model.class_embeddings = model.embed_texts(*texts)
    output, (weight, bias) = model(**inputs), model.classifier_weights()
    for logits in (output.features[0] @ weight[0].mT + bias[0], output.member_logits[0]):
        assert_close(logits, family_reference.logits(), rtol=0, atol=1e-10)

"""Sizes nobody thought of: whatever a config says, dense and pruned networks equal the library's own."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from hydractl.checkpoint.heads import member_heads
from hydractl.families.load import read_checkpoint
from hydractl.model.assembly import from_checkpoint
from hydractl.surgery.choose import at_random
from hydractl.surgery.fusion import fuse
from hydractl.surgery.members import drop_heads
from tests import references
from tests.conftest import build_reference
from tests.families import bert, roberta, timm_vit, vit
from tests.references import Reference, randomised, variants
from tests.surgery.test_members import zero_heads

ENCODERS = st.fixed_dictionaries(
    {
        "hidden_size": st.sampled_from([8, 16, 24]),
        "num_hidden_layers": st.integers(1, 4),
        "num_attention_heads": st.sampled_from([1, 2, 4, 8]),
        "intermediate_size": st.integers(1, 40),
        "hidden_act": st.sampled_from(["gelu", "relu", "gelu_new", "silu"]),
        "layer_norm_eps": st.sampled_from([1e-12, 1e-6, 1e-3]),
    }
)
IMAGES = st.fixed_dictionaries(
    {
        "image_size": st.sampled_from([8, 12, [4, 12]]),
        "patch_size": st.sampled_from([2, 4]),
        "num_channels": st.integers(1, 4),
    }
)


def vision(config: Any, model: Any) -> st.SearchStrategy[Any]:
    return st.builds(lambda sizes, image: vit.image_model(model, config, **sizes, **image), ENCODERS, IMAGES)


MODELS = {
    "vit": vision(transformers.ViTConfig, transformers.ViTForImageClassification),
    "deit": vision(transformers.DeiTConfig, transformers.DeiTForImageClassificationWithTeacher),
    "bert": st.builds(
        lambda sizes, types: bert.text_model(types=False, type_vocab_size=types, **sizes), ENCODERS, st.integers(1, 3)
    ),
    "roberta": st.builds(lambda sizes, padding: roberta.roberta(padding=padding, **sizes), ENCODERS, st.integers(0, 2)),
    "timm": st.builds(
        lambda heads, depth, registers, scale, pool, placed: timm_vit.timm_model(
            num_heads=heads,
            depth=depth,
            reg_tokens=registers,
            init_values=scale,
            global_pool=pool,
            no_embed_class=not placed,
        ),
        st.sampled_from([1, 2, 4]),
        st.integers(1, 3),
        st.integers(0, 3),
        st.sampled_from([None, 0.1]),
        st.sampled_from(["token", "avg"]),
        st.booleans(),
    ),
}


DRAWN = st.fixed_dictionaries(
    {
        "layers": st.integers(1, 3),
        "heads": st.integers(1, 4),
        "head_width": st.sampled_from([4, 6, 8]),
        "hidden": st.sampled_from([4, 12, 20]),
        "classes": st.integers(2, 5),
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("name", variants())
@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(sizes=DRAWN, data=st.data())
def test_every_variant_of_any_size_equals_theirs(name: str, sizes: dict[str, int], data: st.DataObject) -> None:
    drawn = {
        "hidden_size": sizes["heads"] * sizes["head_width"],
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "intermediate_size": sizes["hidden"],
    }
    classes = mock.patch.object(references, "CLASSES", sizes["classes"])
    with classes, mock.patch.dict(references.SIZES, drawn), tempfile.TemporaryDirectory() as folder:
        models = [build_reference(name, seed) for seed in range(2)]
        models[1] = dataclasses.replace(models[1], inputs=models[0].inputs)
        members, expected = [], []
        for seed, reference in enumerate(models):
            dense = read_checkpoint(reference.save(Path(folder) / str(seed)))
            assert_close(answers(dense, reference)[0], reference.logits(), rtol=0, atol=1e-10)
            heads = member_heads(dense.heads, 0)
            drop = data.draw(st.sets(st.sampled_from(heads)), label="dropped")
            members.append(drop_heads(dense, drop))
            zero_heads(reference, sorted(drop), {tower.name: tower.head_width for tower in dense.spec.towers})
            expected.append(reference.logits())
            assert_close(answers(members[-1], reference)[0], expected[-1], rtol=0, atol=1e-10)
        ensemble = answers(fuse(members, ["all"]), models[0])
        assert_close(ensemble, torch.stack(expected), rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_dense_pruned_and_fused_equal_theirs(name: str, data: st.DataObject) -> None:
    torch.manual_seed(0)
    model, inputs = data.draw(MODELS[name])
    reference = randomised(name, model, inputs)
    with tempfile.TemporaryDirectory() as folder:
        dense = read_checkpoint(reference.save(Path(folder)))
        assert_close(answers(dense, reference)[0], reference.logits(), rtol=0, atol=1e-10)
        heads = member_heads(dense.heads, 0)
        budgets = [data.draw(st.integers(0, len(heads))) for _ in range(2)]
        drops = [at_random(heads, budget, seed) for seed, budget in enumerate(budgets)]
        fused = answers(fuse([drop_heads(dense, drop) for drop in drops]), reference)
        zero_heads(reference, drops[0], {tower.name: tower.head_width for tower in dense.spec.towers})
        assert_close(fused[0], reference.logits(), rtol=0, atol=1e-10)


def answers(checkpoint: Any, reference: Reference) -> torch.Tensor:
    return from_checkpoint(checkpoint)(**reference.inputs).member_logits

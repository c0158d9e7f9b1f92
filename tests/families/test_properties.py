"""Sizes nobody thought of: whatever a config says, dense and pruned networks equal the library's own."""

import dataclasses
import tempfile
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from hydractl.checkpoint.heads import member_heads
from hydractl.families.load import read_checkpoint
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads
from tests import references
from tests.conftest import build_reference
from tests.references import answers, variants
from tests.surgery.test_slicing import zero_heads

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
    # transformers divides by a root of the head width in float32 there, which is exact for widths such as 4 alone.
    atol = 1e-8 if name == "deberta-v2-absolute" else 1e-10
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
            assert_close(answers(dense, reference.inputs)[0], reference.logits(), rtol=0, atol=atol)
            heads = member_heads(dense.heads, 0)
            drop = data.draw(st.sets(st.sampled_from(heads)), label="dropped")
            members.append(drop_heads(dense, drop))
            zero_heads(reference, sorted(drop), {tower.name: tower.head_width for tower in dense.spec.towers})
            expected.append(reference.logits())
            assert_close(answers(members[-1], reference.inputs)[0], expected[-1], rtol=0, atol=atol)
        ensemble = answers(fuse(members, ["all"]), models[0].inputs)
        assert_close(ensemble, torch.stack(expected), rtol=0, atol=atol)

"""A forward pass that is recorded as a CUDA graph answers as the model that it was recorded of."""

import pytest
import torch
from torch.testing import assert_close

from hydractl.checkpoint.heads import member_heads
from hydractl.checkpoint.tower_spec import TextEmbeddings
from hydractl.errors import OptionError
from hydractl.model.fast.graphs import STEP, padded_texts
from hydractl.model.hydra import from_checkpoint
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads
from tests.model.fast.test_optimize import dense
from tests.references import family_variants


def test_a_model_on_a_processor_has_no_graphs() -> None:
    with pytest.raises(OptionError, match="CUDA device"):
        from_checkpoint(dense("vit")[0]).optimize_for_inference(graphs=True)


@pytest.mark.parametrize("name", family_variants())
def test_padding_changes_no_answer(name: str) -> None:
    checkpoint, inputs = dense(name)
    if "input_ids" not in inputs:
        pytest.skip("reads images")
    model = from_checkpoint(checkpoint).optimize_for_inference()
    texts = model.spec.tower("text").embeddings
    assert isinstance(texts, TextEmbeddings)
    padded = padded_texts(inputs, texts.padding or 0, texts.max_tokens)
    assert padded["input_ids"].shape[1] in (inputs["input_ids"].shape[1], texts.max_tokens) or (
        padded["input_ids"].shape[1] % STEP == 0
    )
    assert_close(model(**padded).logits, model(**inputs).logits, rtol=0, atol=1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("name", family_variants())
def test_a_recorded_pass_answers_alike(name: str) -> None:
    checkpoint, inputs = dense(name)
    heads = member_heads(checkpoint.heads, 0)
    fused = fuse([drop_heads(checkpoint, heads[:count]) for count in (1, 2, 3)])
    own = {key: tensor.cuda() for key, tensor in inputs.items()}
    other = {key: x.flip(0) for key, x in own.items()}
    plain = from_checkpoint(fused, "cuda").optimize_for_inference()
    recorded = from_checkpoint(fused, "cuda").optimize_for_inference(graphs=True)
    with torch.inference_mode():
        for batch in (own, own, other, own):
            assert_close(recorded(**batch).member_logits, plain(**batch).member_logits, rtol=0, atol=1e-10)
    assert_close(recorded(**other).probabilities, plain(**other).probabilities, rtol=0, atol=1e-10)
    assert recorded.recorder is not None and any(recorded.recorder.known.values())

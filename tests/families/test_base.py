"""Base networks: read as classifiers whose head is still to train."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, BertModel, ViTConfig, ViTModel

from hydractl.errors import CheckpointError
from hydractl.families.open import read_checkpoint
from hydractl.inference import load_checkpoint
from tests.conftest import BERT, SIZES


@pytest.mark.parametrize("kind", [BertModel, BertForMaskedLM])
def test_a_bert_without_classifier(kind: type[BertModel], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = kind(BertConfig(**BERT)).eval()
    model.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="--new-classifier"):
        read_checkpoint(tmp_path)
    checkpoint = read_checkpoint(tmp_path, without_classifier=True)
    ids = torch.randint(1, 60, (2, 7))
    ours = load_checkpoint(checkpoint)
    with torch.no_grad():
        assert torch.equal(ours(input_ids=ids).member_logits, torch.zeros(1, 2, 5))
        hidden = ours.text.encode(ours.text.embeddings(ids, None), None)[0]
        encoder = model if isinstance(model, BertModel) else model.bert
        torch.testing.assert_close(hidden, encoder(ids).last_hidden_state)
    assert checkpoint.tensors["text.pooler.weight"].load().std() > 0.01


def test_a_vit_without_classifier(tmp_path: Path) -> None:
    ViTModel(ViTConfig(image_size=12, patch_size=4, **SIZES)).save_pretrained(tmp_path)
    checkpoint = read_checkpoint(tmp_path, without_classifier=True)
    assert not checkpoint.tensors["classifier.weight"].load().any()
    assert checkpoint.tensors["vision.norm.weight"].load().all()

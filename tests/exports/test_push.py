"""An exported folder goes to the hub and comes back from there, by transformers' own means."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers
from torch.testing import assert_close

from hydractl.exports.folder import write_hydra
from hydractl.model.assembly import from_checkpoint
from tests.checkpoint import test_hub
from tests.conftest import build_reference
from tests.exports.test_folder import hydra_of

hub = test_hub.hub


def test_push_to_hub_and_back(hub: test_hub.Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    reference = build_reference("vit")
    checkpoint = hydra_of(reference, tmp_path / "theirs")
    write_hydra(checkpoint, tmp_path / "hydra")
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "hydra")
    model.push_to_hub("owner/name")
    assert "Bearer hf_secret" in hub.tokens
    assert {"config.json", "model.safetensors", "README.md"} <= hub.files.keys()
    # What it takes to run without this project goes along.
    assert any(name.endswith(".py") for name in hub.files)
    back = transformers.AutoModelForImageClassification.from_pretrained("owner/name")
    expected = from_checkpoint(checkpoint)(**reference.inputs).logits
    assert_close(back(**reference.inputs).logits, expected, rtol=0, atol=1e-12)

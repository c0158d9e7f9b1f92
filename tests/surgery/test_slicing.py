import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import AutoModel, AutoProcessor, ViTModel

import hydractl
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, member_heads
from hydractl.checkpoint.tensors import rounded
from hydractl.errors import OptionError
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.surgery.slicing import as_embedding, drop_heads
from tests.cli.conftest import save_clip, save_vit
from tests.factories import save_tagger
from tests.references import Reference

TOWER_INPUTS = {"pixel_values", "input_ids"}
OUTPUT_PROJECTIONS = (
    *("attention.o_proj", "attention.output.dense", "self_attn.out_proj", "attention.out_lin"),
    *("attn.proj", "attn.Wo", "attention.attn.o", "attn.out_proj", "self_attn.o_proj"),
)


def output_projection(reference: Reference, head: Head) -> nn.Linear:
    """The layer of transformers' own model whose columns belong to the heads of one layer."""
    [name] = [
        name
        for name, _ in reference.model.named_modules()
        if name.endswith(tuple(f".{head.layer}.{ending}" for ending in OUTPUT_PROJECTIONS))
        and (head.tower == ("vision" if "vis" in name else "text") or len(reference.inputs.keys() & TOWER_INPUTS) == 1)
    ]
    return reference.model.get_submodule(name)


def head_columns(reference: Reference, head: Head, width: int) -> Tensor:
    """The columns of one head in the output projection, which share the model's memory."""
    return output_projection(reference, head).weight.data[:, head.head * width : (head.head + 1) * width]


def zero_heads(reference: Reference, heads: Iterable[Head], width_of: dict[str, int]) -> None:
    """Turns heads off in transformers' own model, as Algorithm 1 does."""
    for head in heads:
        head_columns(reference, head, width_of[head.tower]).zero_()


def test_pruned_equals_zeroed_columns(reference: Reference, tmp_path: Path) -> None:
    dense = read_checkpoint(reference.save(tmp_path / "dense"))
    heads, widths = member_heads(dense.heads, 0), {tower.name: tower.head_width for tower in dense.spec.towers}
    state = {name: tensor.clone() for name, tensor in reference.model.state_dict().items()}
    layers = [[head for head in heads if head.layer == layer] for layer in (1, 2)]
    for dropped in (random.Random(7).sample(heads, len(heads) // 3), *layers, heads):
        write_checkpoint(drop_heads(dense, dropped), tmp_path / "pruned", force=True)
        pruned = from_checkpoint(read_checkpoint(tmp_path / "pruned"))
        reference.model.load_state_dict(state)
        zero_heads(reference, dropped, widths)
        assert_close(pruned(**reference.inputs).member_logits[0], reference.logits(), rtol=0, atol=1e-10)


def test_pruned_weights_are_slices_whether_pruned_once_or_twice(dense: Checkpoint) -> None:
    first, second = Head("vision", 1, 0), Head("vision", 1, 2)
    name = "vision.layers.1.attention"
    query = dense.tensors[f"{name}.q.weight"].load()
    for pruned in (drop_heads(dense, [first, second]), drop_heads(drop_heads(dense, [second]), [first])):
        assert pruned.heads["vision"] == (((0, 1, 2, 3),), ((1, 3),), ((0, 1, 2, 3),))
        assert pruned.tensors[f"{name}.o.weight"].shape == (16, 8)
        assert pruned.tensors[f"{name}.o.bias"].shape == (1, 16)
        assert torch.equal(pruned.tensors[f"{name}.q.weight"].load(), query[[4, 5, 6, 7, 12, 13, 14, 15]])


def test_a_head_that_is_gone_cannot_be_dropped(dense: Checkpoint) -> None:
    once = drop_heads(dense, [Head("vision", 1, 0)])
    with pytest.raises(OptionError, match="vision layer 1 head 0"):
        drop_heads(once, [Head("vision", 1, 0)])


def test_float64_goes_to_half_precision_in_one_rounding() -> None:
    drawn = torch.cat([torch.randn(2000, dtype=torch.float64) * scale for scale in (1, 1e-3, 1e-6, 1e3)])
    # NumPy rounds once; between two numbers of float16, just above and below the middle, is where twice would show.
    middles = 1 + (2 * torch.arange(512, dtype=torch.float64) + 1) * 2.0**-11
    for numbers in (drawn, middles, middles + 2.0**-40, middles - 2.0**-40, -middles - 2.0**-40):
        assert rounded(numbers, torch.float16).numpy().tolist() == numbers.numpy().astype(np.float16).tolist()


def test_ties_go_to_even_in_bfloat16() -> None:
    expected = [1.0, 1 + 2.0**-6, 1 + 2.0**-7, -1 - 2.0**-7, -0.0, float("inf")]
    numbers = [1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-40, -1 - 2.0**-8 - 2.0**-40, -0.0, 1e39]
    assert rounded(torch.tensor(numbers, dtype=torch.float64), torch.bfloat16).tolist() == expected


TEXTS = ["cat", "dog owl"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("towers") / "clip")


def images() -> list[Image.Image]:
    return [Image.fromarray(one) for one in np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)]


def test_a_zero_shot_model_gives_what_it_compares(clip: Path) -> None:
    inputs = AutoProcessor.from_pretrained(clip)(images=images(), text=TEXTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        theirs = AutoModel.from_pretrained(clip)(**inputs)
    found = hydractl.predict(clip, data={"three": images()}, embed="image")
    assert_close(torch.from_numpy(found.embeddings), theirs.image_embeds, rtol=0, atol=1e-5)
    found = hydractl.predict(clip, text=TEXTS, embed="text")
    assert_close(torch.from_numpy(found.embeddings), theirs.text_embeds, rtol=0, atol=1e-5)


def test_a_classifier_gives_what_it_reads(tmp_path: Path) -> None:
    vit = save_vit(tmp_path / "vit")
    found = as_embedding(read_checkpoint(vit), "image")
    pixels = torch.randn(2, 3, 8, 8)
    bare = ViTModel.from_pretrained(vit)
    with torch.no_grad():
        assert_close(from_checkpoint(found)(pixels).member_logits[0], bare(pixels).last_hidden_state[:, 0])
    assert found.labels is None and found.spec.classes is None
    with pytest.raises(OptionError, match="`embed` text: .* image"):
        hydractl.predict(vit, text=["a"], embed="text")


def test_a_tagger_has_nothing_to_pool(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="`embed` text: .* words"):
        hydractl.predict(save_tagger(tmp_path / "tagger"), text=["a"], embed="text")


def test_members_and_scores_stay(clip: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        hydractl.prune(clip, method="random", budget=6, seed=seed, output=tmp_path / f"m{seed}")
    hydra = hydractl.fuse([tmp_path / "m0", tmp_path / "m1"], separate="all", output=tmp_path / "hydra")
    for what, given in (("image", {"data": {"three": images()}}), ("text", {"text": TEXTS})):
        found = hydractl.predict(tmp_path / "hydra", embed=what, **given)
        alone = [hydractl.predict(tmp_path / f"m{seed}", embed=what, **given).embeddings for seed in (0, 1)]
        assert_close(found.member_logits, np.stack(alone), rtol=0, atol=1e-6)
    many = np.random.default_rng(1).integers(0, 256, (60, 8, 8, 3), dtype=np.uint8)
    names, pictures = ["cat", "dog", "owl"], [Image.fromarray(pixels) for pixels in many]
    answers = hydractl.predict(hydra, data={"many": pictures}, classes=names).labels
    right = [names.index(answer) if at % 2 else at % 3 for at, answer in enumerate(answers)]
    data = {"many": list(zip(pictures, right, strict=True))}
    calibrated = hydractl.calibrate(hydra, id_data=data, classes=names)
    whole = hydractl.predict(calibrated, data={"three": images()}, classes=["cat", "dog", "owl"])
    found = hydractl.predict(calibrated, data={"three": images()}, embed="image")
    assert_close(found.typicality, whole.typicality)
    assert hydractl.predict(calibrated, text=TEXTS, embed="text").typicality is None

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.checkpoint.heads import Head
from hydractl.errors import DataError, OptionError, TrainingError
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.surgery.slicing import drop_heads
from hydractl.training.batches import Workplace, training_process
from hydractl.training.conditions import Training
from hydractl.training.loop import Tuned
from hydractl.training.network import trained_names
from hydractl.training.recipe import RECIPES, Recipe
from hydractl.training.request import Execution, Seeds
from hydractl.training.trainer import fine_tune_checkpoint
from hydractl.training.trainset import TrainingData, sample_at, split_off
from tests.cli.conftest import LABELS
from tests.training.conftest import RECIPE, Fit, image_samples, samples_for


def train(fit: Fit, checkpoint: Checkpoint, recipe: Recipe = RECIPE, seed: int = 0, **execution: Any) -> Tuned:
    data = TrainingData(*split_off(samples_for(checkpoint, 30), 10))
    return fit(checkpoint, Training(data, recipe, Seeds(seed)), **execution)


def weights(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    return {name: tensor.load() for name, tensor in checkpoint.tensors.items()}


def float64(checkpoint: Checkpoint) -> Checkpoint:
    lazy = checkpoint.tensors.items()
    wide = {name: replace(tensor, kind="F64", load=lambda t=tensor: t.load().double()) for name, tensor in lazy}
    return replace(checkpoint, tensors=wide)


def test_a_pruned_member_with_an_empty_layer_trains(bert: Checkpoint, folder: Path, fit: Fit) -> None:
    pruned = drop_heads(bert, [Head("text", 0, head) for head in range(4)] + [Head("text", 1, 2)])
    result = train(fit, pruned, replace(RECIPE, optimizer="adamw", lr=(0.01,), steps=80))
    assert result.checkpoint.heads == pruned.heads
    assert result.validation.nll < 0.7
    write_checkpoint(result.checkpoint, folder / "m1")
    assert identity(read_checkpoint(folder / "m1")) == identity(result.checkpoint)


def test_a_network_in_memory_keeps_its_weights(vit: Checkpoint, fit: Fit) -> None:
    first = train(fit, vit).checkpoint
    before = {name: tensor.clone() for name, tensor in weights(first).items()}
    again = weights(train(fit, first).checkpoint)
    for name, tensor in weights(first).items():
        assert torch.equal(tensor, before[name])
    assert any(not torch.equal(again[name], before[name]) for name in before)


def test_best_weights_are_kept_and_training_stops_early(vit: Checkpoint, folder: Path, fit: Fit) -> None:
    # A rate this high reaches its best early and then gets no better.
    recipe = replace(RECIPE, lr=(0.3,), steps=60, validate_every=2, patience=3, improvement=5e-4)
    result = train(fit, vit, recipe)
    validations = [entry for entry in result.log if "accuracy" in entry]
    best = max(validations, key=lambda entry: (entry["accuracy"], -entry["nll"]))
    assert result.step == best["step"]
    assert result.validation.nll == best["nll"]
    reference, waited = -1.0, 0
    for entry in validations[:-1]:
        reference, waited = (entry["accuracy"], 0) if entry["accuracy"] >= reference + 5e-4 else (reference, waited + 1)
        assert waited < 3
    assert validations[-1]["step"] < 60
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_rate_with_the_best_validation_is_chosen(vit: Checkpoint, folder: Path, fit: Fit) -> None:
    result = train(fit, vit, replace(RECIPE, lr=(1e-6, 0.05, 1e-5), steps=20))
    assert result.lr == 0.05
    alone = train(fit, vit, replace(RECIPE, steps=20), within="alone")
    assert identity(result.checkpoint) == identity(alone.checkpoint)
    with pytest.raises(OptionError, match="2 learning rates"):
        fit(vit, Training(TrainingData(image_samples(20)), replace(RECIPE, lr=(0.1, 0.2))))


DROPOUT = replace(RECIPE, dropout=0.2, optimizer="adamw", lr=(0.01,), steps=9, warmup=2, schedule="cosine", flip=True)


def test_a_run_cut_short_goes_on_to_the_same_bits(vit: Checkpoint, folder: Path, fit: Fit) -> None:
    recipe = replace(DROPOUT, validate_every=4)
    whole = train(fit, vit, recipe, save_every=2)

    class Killed(Exception):
        pass

    def stop(_lr: float, progress: Any) -> None:
        if progress.step == 7:
            raise Killed

    with pytest.raises(Killed):
        train(fit, vit, recipe, within="again", on_step=stop, save_every=2)
    torch.manual_seed(99)
    resumed = train(fit, vit, recipe, within="again", save_every=2, resume=True)
    assert identity(resumed.checkpoint) == identity(whole.checkpoint)
    assert (resumed.step, resumed.validation) == (whole.step, whole.validation)
    logs = [
        [{k: v for k, v in entry.items() if k != "samples_per_second"} for entry in one.log] for one in (whole, resumed)
    ]
    assert logs[0] == logs[1]


def test_a_damaged_state_is_refused(vit: Checkpoint, folder: Path, fit: Fit) -> None:
    (folder / "state.pt").write_bytes(b"nonsense")
    with pytest.raises(Exception, match="cannot be read"):
        train(fit, vit, resume=True)


def test_a_loss_that_is_no_number_stops(vit: Checkpoint, fit: Fit) -> None:
    bias = vit.tensors["classifier.bias"]
    broken = replace(bias, load=lambda: torch.full(bias.shape, math.nan))
    with pytest.raises(TrainingError, match="nan at step 1"):
        train(fit, replace(vit, tensors={**vit.tensors, "classifier.bias": broken}))


def test_a_new_classifier_over_other_labels(vit: Checkpoint, folder: Path, fit: Fit) -> None:
    data = TrainingData(replace(image_samples(20), label_names=("red", "green", "blue")))
    with pytest.raises(DataError, match="`new_classifier`"):
        fit(vit, Training(data, RECIPE))
    recipe = replace(RECIPE, new_classifier="zeros", train_only=("classifier",), steps=1)
    result = fit(vit, Training(data, recipe)).checkpoint
    assert result.labels == ("red", "green", "blue")
    write_checkpoint(result, folder / "fresh")
    assert read_checkpoint(folder / "fresh").labels == ("red", "green", "blue")
    # From zero weights every class is as likely: the first step moves biases by lr times the classes' excess.
    labels = torch.tensor([int(data.train.labels[sample_at(0, i, 20)]) for i in range(6)])  # type: ignore[index]
    share = torch.bincount(labels, minlength=len(LABELS)) / 6
    torch.testing.assert_close(weights(result)["classifier.bias"], 0.05 * (share - 1 / 3))


def test_split_is_the_same_for_every_seed_and_leaves_something() -> None:
    samples = image_samples(12)
    train_part, validation = split_off(samples, 5)
    assert (len(train_part), len(validation)) == (7, 5)
    hashes = [set(part.content_hashes()) for part in (train_part, validation)]
    assert not hashes[0] & hashes[1] and hashes[0] | hashes[1] == set(samples.content_hashes())
    assert [a.tobytes() for a in validation.inputs] == [a.tobytes() for a in split_off(samples, 5)[1].inputs]
    with pytest.raises(OptionError, match="`val_split` 12"):
        split_off(samples, 12)


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_published_recipe_freezes_stays_bit_for_bit(name: str, request: pytest.FixtureRequest, fit: Fit) -> None:
    tiny = {"batch": 5, "steps": 3, "epochs": 0, "warmup": 1, "lr": (0.01,), "max_length": 8, "weight_decay": 0.5}
    recipe = replace(RECIPES[name], **tiny)
    checkpoint = request.getfixturevalue({"sst2": "bert", "clip-lit": "clip"}.get(name, "vit"))
    if name == "cifar100":  # of this network's two layers, as of the twelve it was written for, one is frozen
        recipe = replace(recipe, freeze_below=-1)
    if name == "clip-lit":
        pairs = request.getfixturevalue("pairs").train
        data = TrainingData(pairs, pairs)
    else:
        data = TrainingData(samples_for(checkpoint, 20))
    tuned = fit(checkpoint, Training(data, recipe))
    trained = weights(tuned.checkpoint)
    frozen = {
        "imagenet1k": ("vision.embeddings.",),
        "cifar100": ("vision.embeddings.", "vision.layers.0."),
        "clip-lit": ("vision.",),
    }.get(name, ())
    for tensor, before in weights(checkpoint).items():
        stays = tensor.startswith(frozen) if frozen else False
        # Without the key's bias a softmax is the same: only rounding and weight decay move it.
        if stays or not tensor.endswith("attention.k.bias"):
            assert torch.equal(trained[tensor], before) == stays, tensor


def test_bfloat16_products_move_float32_weights(vit: Checkpoint, folder: Path, fit: Fit) -> None:
    recipe = replace(RECIPE, steps=30)
    full = train(fit, vit, recipe).checkpoint
    with training_process(torch.device("cpu"), "bf16") as in_bfloat16:
        place = Workplace(folder / "mixed", in_bfloat16, Execution())
        data = TrainingData(*split_off(image_samples(30), 10))
        mixed = fine_tune_checkpoint(vit, Training(data, recipe, Seeds(0)), place).checkpoint
    assert {tensor.dtype for tensor in mixed.tensors.values()} == {torch.float32}
    before, by_full, by_mixed = (weights(one) for one in (vit, full, mixed))
    differs = 0.0
    for name, start in before.items():
        moved, apart = (by_full[name] - start).norm(), (by_full[name] - by_mixed[name]).norm()
        differs = max(differs, apart.item())
        # bfloat16 keeps three digits: the way is the same, the last digits are not.
        assert apart <= 0.1 * moved + 1e-3, name
    assert differs > 0


def test_unknown_parts_and_layers(vit: Checkpoint) -> None:
    with pytest.raises(OptionError, match="`train_only` heads"):
        trained_names(vit.spec, ["heads"])
    with pytest.raises(OptionError, match="`freeze_below` 3"):
        trained_names(vit.spec, freeze_below=3)
    with pytest.raises(OptionError, match="nothing is left to train"):
        trained_names(vit.spec, ["embeddings"], freeze_below=1)

"""Embeddings: what a Hydra answers, the settings of sentence-transformers, and every command on the way."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from datasets import load_dataset
from torch.testing import assert_close

import hydractl
import hydractl.auto
from hydractl.errors import OptionError
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.embeddings import kept_neighbours, mean_embedding
from tests.cli.conftest import WORDS
from tests.factories import save_encoder, save_texts, write_modules

TEXTS = ("a good film", "bad owl", "a", "good good bad film owl")
PADDED = {"return_tensors": "pt", "padding": True, "truncation": True}


def test_worked_out_by_hand() -> None:
    members, task = torch.tensor([[[2.0, 0.0]], [[0.0, 4.0]]]), find_task("text-embedding")
    # The mean (1, 2) has the direction (1, 2) / sqrt(5); the lengths 2 and 4 have the mean 3.
    for mean in (task.link(members, 1.0), mean_embedding(members.numpy())):
        assert mean[0].tolist() == pytest.approx([3 / 5**0.5, 6 / 5**0.5])
    assert mean_embedding(members.numpy()[:1]).tolist() == [[2.0, 0.0]]
    # 1 - cosine of (2, 0) and (3, 4) is 1 - 3/5.
    assert task.taught_losses(members[:1], torch.tensor([[3.0, 4.0]])).sum().item() == pytest.approx(0.4)
    signs = task.losses(torch.eye(8)[None], torch.zeros(8))
    assert set(signs.tolist()) == {-1.0, 1.0}
    assert_close(task.losses(3 * torch.eye(8)[None], torch.zeros(8)), signs)


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("tower", ["vision", "text"])
def test_towers_of_a_clip_equal_transformers(tower: str, projected: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    ending = "ModelWithProjection" if projected else "Model"
    if tower == "vision":
        config: Any = hf.CLIPVisionConfig(**sizes, image_size=8, patch_size=4, projection_dim=6)
        inputs: dict[str, torch.Tensor] = {"pixel_values": torch.randn(3, 3, 8, 8, dtype=torch.float64)}
        theirs: Any = getattr(hf, f"CLIPVision{ending}")(config).double().eval()
    else:
        config = hf.CLIPTextConfig(**sizes, vocab_size=60, eos_token_id=59, projection_dim=6)
        inputs = {"input_ids": torch.tensor([[3, 4, 59, 0], [5, 59, 0, 0]])}
        theirs = getattr(hf, f"CLIPText{ending}")(config).double().eval()
    theirs.save_pretrained(tmp_path / "clip")
    checkpoint = read_checkpoint(tmp_path / "clip")
    with torch.no_grad():
        output = theirs(**inputs)
        wanted = output[0] if projected else output.pooler_output
        for fast in (False, True):
            model = from_checkpoint(checkpoint)
            found = (model.optimize_for_inference() if fast else model)(**inputs)
            assert_close(found.member_logits[0], wanted, rtol=0, atol=1e-10)
    assert checkpoint.spec.features == (6 if projected else 16)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of sentence-transformers, and texts."""
    folder = tmp_path_factory.mktemp("embedding")
    save_encoder(folder / "st")
    save_texts(folder / "texts.csv")
    return folder


def embedded(folder: Any) -> torch.Tensor:
    return torch.from_numpy(hydractl.load(folder).predict(TEXTS).embeddings)


def reference(folder: Path, first: bool = False) -> torch.Tensor:
    """The embeddings of TEXTS by transformers, pooled and normalised as sentence-transformers does."""
    tokens = hf.AutoTokenizer.from_pretrained(folder)(list(TEXTS), **PADDED, max_length=5)
    with torch.no_grad():
        hidden = hf.AutoModel.from_pretrained(folder)(**tokens).last_hidden_state
    mask = tokens["attention_mask"][..., None]
    return F.normalize(hidden[:, 0] if first else (hidden * mask).sum(1) / mask.sum(1), dim=-1)


def test_pools_normalises_and_cuts_as_sentence_transformers(here: Path) -> None:
    found = hydractl.load(here / "st").predict(TEXTS)
    assert found.embeddings is not None and found.truncated == 1
    assert_close(torch.from_numpy(found.embeddings), reference(here / "st"))
    assert "embeddings of 16 numbers" in repr(found) and len(repr(found).splitlines()) == 6
    assert "embeddings of 16 numbers" in found._repr_html_()


def test_pools_the_first_token(here: Path, tmp_path: Path) -> None:
    hf.AutoModel.from_pretrained(here / "st").save_pretrained(tmp_path)
    hf.AutoTokenizer.from_pretrained(here / "st").save_pretrained(tmp_path)
    write_modules(tmp_path, {"pooling_mode": "cls"}, "Normalize")
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 5}')
    assert_close(embedded(tmp_path), reference(tmp_path, first=True))


def test_an_early_folder_is_pooled_by_what_lies_around_it(
    here: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(here / "st", tmp_path / "early" / "0_Transformer")
    for name in ("modules.json", "1_Pooling"):
        shutil.move(tmp_path / "early" / "0_Transformer" / name, tmp_path / "early" / name)
    assert_close(embedded(tmp_path / "early"), reference(here / "st"))
    assert "0_Transformer" in caplog.text


def test_notes_a_prompt_that_is_not_put_before_texts(
    here: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(here / "st", tmp_path / "st")
    (tmp_path / "st" / "config_sentence_transformers.json").write_text('{"default_prompt_name": "query"}')
    read_checkpoint(tmp_path / "st")
    assert "puts a prompt before each text" in caplog.text


@pytest.fixture(scope="module")
def fused(here: Path) -> Path:
    """A calibrated Hydra of two members, pruned by what their heads move and at random."""
    data = here / "texts.csv"
    hydractl.prune(here / "st", method="taylor", id_data=data, budget=3, output=here / "m0")
    hydractl.prune(here / "st", method="random", budget=5, output=here / "m1")
    hydractl.fuse([here / "m0", here / "m1"], output=here / "hydra")
    hydractl.calibrate(here / "hydra", id_data=data, output=here / "calibrated")
    return here / "calibrated"


def test_a_hydra_embeds_as_the_mean_of_its_members(here: Path, fused: Path) -> None:
    found = hydractl.load(fused).predict(TEXTS)
    members = torch.stack([embedded(here / name) for name in ("m0", "m1")])
    hydra = hydractl.fuse([here / "m0", here / "m1"], separate="all")
    assert_close(torch.from_numpy(hydractl.load(hydra).predict(TEXTS).member_logits), members)
    assert np.linalg.norm(found.embeddings, axis=-1) == pytest.approx(np.ones(4))


def test_scores_find_the_heads_that_move_the_embedding(here: Path) -> None:
    """Heads whose outputs are nothing score nothing."""
    model = hf.AutoModel.from_pretrained(here / "st")
    with torch.no_grad():
        model.encoder.layer[1].attention.output.dense.weight[:, 4:8] = 0
    folder = here / "silenced"
    model.save_pretrained(folder)
    hf.AutoTokenizer.from_pretrained(here / "st").save_pretrained(folder)
    write_modules(folder, {"pooling_mode_mean_tokens": True}, "Normalize")
    maps = hydractl.score_heads(folder, method="taylor", id_data=here / "texts.csv").maps
    [scores] = (np.array(rows) for rows in maps.values())
    assert (scores == 0).sum() == 1 and scores[1, 1] == 0


def test_a_hydra_is_a_folder_of_transformers_with_its_typicality(fused: Path, tmp_path: Path) -> None:
    expected = hydractl.load(fused).predict(TEXTS)
    hydractl.export(fused, format="hf", output=tmp_path / "hf")
    tokens = hf.AutoTokenizer.from_pretrained(tmp_path / "hf")(list(TEXTS), **PADDED)
    output = hf.AutoModel.from_pretrained(tmp_path / "hf")(**tokens)
    assert_close(output.pooler_output, torch.from_numpy(expected.embeddings))
    assert_close(output.typicality, torch.from_numpy(expected.typicality))
    assert output.member_embeddings.shape == (4, 2, 16)


def test_predict_writes_embeddings(here: Path, fused: Path, tmp_path: Path) -> None:
    data = here / "texts.csv"
    found = hydractl.predict(fused, data=data)
    assert found.columns == ("input", "typicality", "ood") and len(found) == 120
    hydractl.predict(fused, data=data, output=tmp_path / "out.parquet")
    written = load_dataset("parquet", data_files=str(tmp_path / "out.parquet"), split="train", cache_dir=str(tmp_path))
    assert_close(torch.tensor(written["embedding"]), torch.from_numpy(found.embeddings), rtol=0, atol=1e-6)
    row = next(iter(found))
    assert {"label", "msp", "entropy"}.isdisjoint(row) and len(row["embedding"]) == 16
    assert json.loads(found.to_csv().splitlines()[1].split('"')[1]) == pytest.approx(row["embedding"])


def test_a_member_learns_from_the_network(here: Path) -> None:
    learning = {"train_data": here / "texts.csv", "steps": 60, "lr_grid": [3e-3], "seed": 1}
    tuned = hydractl.finetune(here / "m1", teacher=here / "st", **learning)
    teacher, before, after = (embedded(model) for model in (here / "st", here / "m1", tuned))
    near, far = (F.cosine_similarity(teacher, one).mean() for one in (after, before))
    assert near > far + 0.05
    with pytest.raises(OptionError, match="`teacher`.*`settings`"):
        hydractl.finetune(here / "m1", **learning)


def test_evaluate_counts_the_neighbours_that_members_keep(here: Path, fused: Path, tmp_path: Path) -> None:
    data = tmp_path / "texts.csv"
    rows = [" ".join(np.random.default_rng(900 + n).choice(WORDS[5:], 7 + n % 3)) for n in range(60)]
    data.write_text("\n".join(["text", *rows]) + "\n")
    (tmp_path / "other.csv").write_text("text\n" + "film film film film bad bad bad bad\n" * 20)
    hydractl.calibrate(here / "st", id_data=here / "texts.csv", output=tmp_path / "network")
    systems = {"network": tmp_path / "network", "hydra": fused, "deep": [here / "m0", here / "m1"]}
    found = hydractl.evaluate(systems, id_data=data).report.models
    dense, hydra = (hydractl.load(one).predict(rows).embeddings for one in (here / "st", fused))
    wanted = kept_neighbours(dense, hydra).mean()
    assert found["network"].id.neighbours == 1
    assert found["hydra"].id.neighbours == pytest.approx(wanted) and 0.2 < wanted < 1
    assert found["hydra"].difference is not None and found["hydra"].difference.id["neighbours"].beyond_chance
    assert found["deep"].id.accuracy is None and found["deep"].selective is None
    told = hydractl.evaluate(systems, id_data=data, bootstrap=0)
    assert "kept nbrs %" in "\n".join(told.lines()) and "acc %" not in "\n".join(told.lines())
    page = hydractl.evaluate(fused, id_data=data, report=tmp_path / "page")
    assert page is not None and (tmp_path / "page" / "index.html").is_file()
    sets = {"id_data": data, "ood_data": [tmp_path / "other.csv"]}
    fitted = hydractl.evaluate(here / "m0", **sets, calib_data=here / "texts.csv", ood_score="layers")
    assert fitted.report.models["m0"].ood["other"].samples == 20
    with pytest.raises(OptionError, match="embeddings cannot detect OOD"):
        hydractl.evaluate(here / "m0", **sets)


def test_members_cannot_be_selected(here: Path) -> None:
    with pytest.raises(OptionError, match="does not improve"):
        hydractl.select(here / "st", id_data=here / "texts.csv", random=2, budgets="1")

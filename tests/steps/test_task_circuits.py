"""Circuits, ablation scores and selections of models that choose no class, by command."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

import hydractl
from hydractl.circuit.circuit_file import SearchJournal
from hydractl.errors import OptionError
from hydractl.tasks.all_tasks import TASKS, find_task
from tests.cli.conftest import LABELS, WORDS, save_vit
from tests.tasks.corpus import save_tagger, sentences
from tests.tasks.encoders import save_encoder, save_texts
from tests.tasks.test_regression import REGRESSION, save_bert, with_config
from tests.tasks.test_several_labels import PROBLEM


@dataclass(frozen=True)
class Place:
    """A model, data of its task, and OOD data where answers have a confidence."""

    model: Path
    data: Any
    odd: Any = None

    @property
    def task(self) -> Any:
        return find_task(hydractl.load(self.model).spec.task)

    @property
    def given(self) -> dict[str, Any]:
        return {"id_data": self.data, **({} if self.odd is None else {"ood_data": self.odd})}


def place(key: str, folder: Path) -> Place:
    draw = np.random.default_rng(0)
    if key == "f1":
        hot = draw.integers(0, 2, (14, 3))
        rows = {"tags": [[LABELS[at] for at in np.flatnonzero(row)] for row in hot]}
        pixels = list(draw.integers(0, 256, (14, 8, 8, 3), dtype=np.uint8))
        features = datasets.Features({"image": datasets.Image(), "tags": datasets.List(datasets.Value("string"))})
        data = datasets.Dataset.from_dict({"image": pixels, **rows}, features=features)
        odd = [np.full((8, 8, 3), 50 * at, np.uint8) for at in range(5)]
        return Place(save_vit(folder / "vit", **PROBLEM), data, odd)
    if key == "r2":
        texts = [" ".join(draw.choice(WORDS[5:], 4)) for _ in range(14)]
        data = datasets.Dataset.from_dict({"text": texts, "score": draw.normal(size=14).tolist()})
        return Place(with_config(save_bert(folder / "bert"), **REGRESSION), data)
    if key == "token_accuracy":
        odd = datasets.Dataset.from_dict(
            {"tokens": [["in", "in", "Lee"][: 1 + at % 3] + ["met"] * at for at in range(5)]}
        )
        return Place(save_tagger(folder / "tagger"), sentences(14), odd)
    return Place(save_encoder(folder / "encoder"), str(save_texts(folder / "texts.csv", 14)))


COLUMNS = {"f1": {"label_column": "tags"}, "r2": {"label_column": "score"}, "token_accuracy": {}, "similarity": {}}
KEYS = [key for key in dict.fromkeys(task.key for task in TASKS) if key != "accuracy"]
SMALL = {"batch_size": 4}


@pytest.mark.parametrize("key", KEYS)
def test_a_circuit_is_searched_followed_and_gone_on_with(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = place(key, tmp_path)
    own = {**here.given, **COLUMNS[key], **SMALL}
    found = hydractl.extract_circuit(here.model, **own, budget=3, output=tmp_path / "c.json")
    written = json.loads((tmp_path / "c.json").read_text())
    assert written["objective"] == ("acc" if here.odd is None else "avg")
    assert [*written["baseline"]] == [key, *([] if here.odd is None else ["auroc"]), "nll"]
    assert here.task.measured in found._repr_html_()
    # The first step of the search, taken as scores.
    scored = hydractl.score_heads(here.model, method="ablation", **own)
    best = min(scored.scores.known().items(), key=lambda one: one[1])
    step = written["steps"][0]
    assert best[0] == found.circuit.ranking[0] and scored.artifact["options"]["objective"] == written["objective"]
    score = (
        written["baseline"][key] if here.odd is None else (written["baseline"][key] + written["baseline"]["auroc"]) / 2
    )
    assert best[1] == pytest.approx(score - step["score"], abs=1e-12)
    pruned = hydractl.prune(here.model, method="circuit", circuit=found, budget=3)
    assert hydractl.prune(here.model, method="circuit", budget=3, **own).dropped == pruned.dropped

    def killed(journal: SearchJournal, rankings: Any) -> None:
        save(journal, rankings)
        raise KeyboardInterrupt

    save = SearchJournal.save
    monkeypatch.setattr(SearchJournal, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        hydractl.extract_circuit(here.model, **own, budget=3, output=tmp_path / "again.json")
    monkeypatch.undo()
    hydractl.extract_circuit(here.model, **own, budget=3, output=tmp_path / "again.json", resume=True)
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "c.json").read_bytes()


@pytest.mark.parametrize("key", ["r2", "similarity"])
def test_what_needs_a_confidence_is_refused_where_there_is_none(key: str, tmp_path: Path) -> None:
    here = place(key, tmp_path)
    own = {"id_data": here.data, **COLUMNS[key]}
    odd = {"ood_data": str(save_texts(tmp_path / "odd.csv", 9))}
    for asked in ({"objective": "avg"}, {"objective": "acc,ood", **odd}):
        with pytest.raises(OptionError, match="`objective` .* needs a confidence, .*: choose acc"):
            hydractl.extract_circuit(here.model, **own, **asked, budget=2)
    for call in (
        lambda: hydractl.extract_circuit(here.model, **own, **odd, budget=2),
        lambda: hydractl.score_heads(here.model, method="ablation", **own, **odd),
        lambda: hydractl.prune(here.model, method="circuit", **own, **odd, budget=2),
    ):
        with pytest.raises(OptionError, match="`ood_data` .*: leave it out"):
            call()

"""A model card says what a model is, and nothing that names in the model or a report would have it say."""

from dataclasses import replace

import yaml
from markdown_it import MarkdownIt

from hydractl.checkpoint.contents import Checkpoint
from hydractl.exports.folder import model_card
from hydractl.reports.page import report_json
from hydractl.text import printable
from tests.hostile import controls, generated
from tests.reports.test_formats import SETS, SYSTEMS, markdown_rows, plain, report_of

FRONT = {
    "library_name": "transformers",
    "pipeline_tag": "image-classification",
    "tags": ["hydractl", "ensemble", "uncertainty"],
}
SECTIONS = ["Hydra ensemble", "Loading", "Members and heads", "Origin"]


@generated(SYSTEMS, SETS)
def test_names_stay_names(dense: Checkpoint, systems: list[str], sets: list[str]) -> None:
    made = {"command": systems[0], systems[-1]: {sets[0]: sets[-1]}, "inputs": [{"source": name} for name in sets]}
    named = replace(dense, labels=(*systems, *sets), provenance=made)
    card = model_card(named, report_json(report_of(systems, sets)), "AutoModel")
    assert not controls(card)
    assert dense.name not in card
    _, head, body = card.split("---\n", 2)
    assert yaml.safe_load(head) == FRONT
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(body)
    headings = [plain(tokens[place + 1]) for place, token in enumerate(tokens) if token.type == "heading_open"]
    assert headings == [*SECTIONS, *(f"Results of {printable(name).strip()}".strip() for name in systems)]
    rows = list(markdown_rows(tokens))
    assert {len(row) for row in rows} == {2}
    assert [plain(row[0]) for row in rows].count("metric") == len(systems)
    of_sets = [row for row in rows if plain(row[0]).startswith("ood") and plain(row[0]).endswith("auroc")]
    assert len(of_sets) == len(systems) * len(sets)

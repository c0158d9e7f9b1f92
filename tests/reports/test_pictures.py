from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.decomposition import PCA

from hydractl.drawing import COLORS, GREY, Key, explained, inline, line, panels, write_picture
from hydractl.evaluation.results import LabelledMetrics, Results, SystemResult
from hydractl.reports.figures import MOST, _draw_cost, _Point, pictures, told_apart
from hydractl.reports.head_maps import heat_map_figure, project, separation_figure
from hydractl.systems.system import Cost
from tests.reports.test_formats import curves

MAPS = {"vision": [[0.1, 0.2, 0.3], [0.4, None, 0.6]]}
CLOUDS = [project("layer 0, head 1", np.eye(3), np.ones((3, 3)) - np.eye(3))]


FIGURES = {
    "scores": lambda: heat_map_figure(MAPS),
    "separation": lambda: separation_figure(MAPS, {"": CLOUDS}),
    "heads": lambda: separation_figure(MAPS, {"first": CLOUDS, "last": []}, "distance", {"vision": [(0, 1)]}),
}


@pytest.mark.parametrize("name", FIGURES)
def test_axes_are_named_with_whole_numbers_where_something_is_counted_and_layer_0_on_top(name: str) -> None:
    counted = ("head", "layer", "member", "severity", "heads dropped", "dropped at step", "how many")
    seen = 0
    for axes in FIGURES[name]().axes:
        colors = axes.get_label() == "<colorbar>"
        assert axes.get_ylabel() if colors else axes.get_title() and axes.get_xlabel()
        for name, ticks in ((axes.get_xlabel(), axes.get_xticks()), (axes.get_ylabel(), axes.get_yticks())):
            if name in counted:
                seen += 1
                assert all(float(tick).is_integer() for tick in ticks)
        if axes.get_ylabel() == "layer":
            bottom, top = axes.get_ylim()
            assert top < bottom
    assert seen


def test_a_picture_is_the_same_bytes_and_leaves_no_trace(tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    for name in ("a.svg", "b.svg"):
        write_picture(heat_map_figure(MAPS), tmp_path / name, force=False)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert dict(mpl.rcParams) == before


def test_crosses_stand_on_the_heads_of_their_own_map() -> None:
    maps = {"vision": MAPS["vision"], "text": MAPS["vision"]}
    panels = {axes.get_title(): axes for axes in separation_figure(maps, {"": CLOUDS}, "", {"text": [(1, 2)]}).axes}
    assert not panels["vision"].lines
    assert [tuple(map(float, at)) for at in panels["text"].lines[0].get_xydata()] == [(2.0, 1.0)]


def test_lines_are_told_apart_beyond_the_number_of_colours() -> None:
    looks = [tuple(line(place).values()) for place in range(2 * len(COLORS))]
    assert len(set(looks)) == len(looks)


def system(cost: int, nll: float) -> SystemResult:
    return SystemResult(id=LabelledMetrics(nll=nll, accuracy=0.5), ood={}, cost=Cost(1, 1, cost), curves=curves([]))


def test_of_many_systems_the_first_and_the_best_are_drawn_and_the_cost_of_all() -> None:
    models = {f"s{place}": system(100 + place, 1 - place / 100) for place in range(20)}
    found = pictures(Results(models=models))
    best = [f"s{place}" for place in range(20 - MOST + 1, 20)]
    assert [axes.get_title() for axes in found["reliability"].axes] == ["s0", *best]
    keys = {name: found[name].legends[0].get_lines() for name in ("cost", "risk-coverage")}
    assert [key.get_label() for key in keys["cost"]] == [key.get_label() for key in keys["risk-coverage"]]
    assert len({key.get_color() for key in keys["cost"]}) == MOST
    points = [line for line in found["cost"].axes[0].lines if line.get_marker() == "o"]
    assert len(points) == 20 and sum(point.get_color() == GREY for point in points) == 20 - MOST
    few = dict(list(models.items())[:MOST])
    assert told_apart(few) == (few, "")


@pytest.mark.parametrize(
    ("higher", "joined"), [(True, [(1, 4), (3, 5)]), (False, [(1, 3), (2, 2), (3, 1)])], ids=["higher", "lower"]
)
def test_the_line_joins_the_best_for_their_cost(higher: bool, joined: list[tuple[float, float]]) -> None:
    places = [(4, 5), (1, 4), (3, 1), (1, 3), (2, 2), (3, 5), (4, 1)]
    axes = Figure().subplots()
    _draw_cost(axes, [_Point(cost, value, None, GREY) for cost, value in places], higher)
    (drawn,) = (one for one in axes.get_lines() if one.get_linestyle() == "--")
    assert [tuple(point) for point in drawn.get_xydata()] == joined


def test_projection_is_on_the_principal_components_of_both_sets() -> None:
    generator = np.random.default_rng(0)
    inside, outside = generator.normal(size=(30, 5)), generator.normal(2.0, 1.0, size=(20, 5))
    found = project("head", inside, outside)
    theirs = PCA(2)
    expected = theirs.fit_transform(np.concatenate([inside, outside]))
    points = np.concatenate([found.id_outputs, found.ood_outputs])
    signs = np.sign((points * expected).sum(0))
    np.testing.assert_allclose(points, expected * signs, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.shares, theirs.explained_variance_ratio_, rtol=0, atol=1e-12)
    assert (len(found.id_outputs), len(found.ood_outputs)) == (30, 20)


def test_a_head_of_width_one_lies_on_a_line() -> None:
    found = project("head", np.array([[0.0], [2.0]]), np.array([[4.0]]))
    np.testing.assert_allclose(np.abs(found.id_outputs - found.ood_outputs), [[4, 0], [2, 0]], rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.shares, [1, 0], rtol=0, atol=1e-12)


def test_a_page_draws_each_panel_by_itself_so_that_they_wrap() -> None:
    figure, _ = panels(["a", "b", "c"])
    drawn = inline(explained(figure, [Key("x", "red")]), "some").replace("xlink:", "")
    page = ElementTree.fromstring(f"<div>{drawn}</div>")
    drawings = list(page.iter("svg"))
    assert [drawing.get("class") for drawing in drawings] == ["panel", "panel", "panel", "legend"]
    windows = [list(map(float, drawing.get("viewBox", "").split())) for drawing in drawings]
    assert all(left + width <= right for (left, _, width, _), (right, *_) in pairwise(windows[:3]))
    assert all(top + height <= windows[3][1] + 8 for _, top, _, height in windows[:3])  # each has a margin of 4
    [whole] = [one for one in page.iter() if one.get("id") == "picture-some"]
    assert whole in list(drawings[0]) and [one[0].get("href") for one in drawings[1:]] == ["#picture-some"] * 3

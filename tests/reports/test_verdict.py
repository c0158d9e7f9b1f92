import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import pytest

from hydractl.evaluation import results as evaluated
from hydractl.evaluation.results import DataInfo, Difference, LabelledMetrics, Ood, Resampled, SetInfo, SystemResult
from hydractl.reports.columns import JUDGED, main_groups
from hydractl.reports.page import html_page, join_reports, read_report, report_json, results
from hydractl.reports.table import markdown_table, result_table
from hydractl.reports.verdict import caption, own_score, recommended, rivalries, verdicts
from hydractl.systems.system import Cost
from tests.reports.test_table import printed, result

PLAIN = SystemResult(id=LabelledMetrics(nll=0.5, accuracy=0.9), ood={}, cost=Cost(1, 100, 100))


def system(multiply_adds: int = 100, **differences: tuple[float, float, float]) -> SystemResult:
    """A system that differs so much from the first one, with these intervals; `auroc` is the mean over sets."""
    found = {name: Difference(value, (low, high)) for name, (value, low, high) in differences.items()}
    means = {"all": {"auroc": found.pop("auroc")}} if "auroc" in found else None
    cost, difference = Cost(1, 2 * multiply_adds, multiply_adds), Resampled(found, ood_means=means)
    return SystemResult(id=LabelledMetrics(nll=0.6, accuracy=0.92), ood={}, cost=cost, difference=difference)


def test_better_worse_and_chance_by_the_direction_of_each_metric() -> None:
    of_hydra = {"accuracy": (-0.01, -0.017, -0.003), "nll": (-0.1, -0.15, -0.05), "ece": (0.01, -0.001, 0.02)}
    models = {"single": PLAIN, "hydra": system(250, **of_hydra, auroc=(0.03, 0.015, 0.045))}
    assert verdicts({"a": PLAIN, "b": PLAIN}) == {}  # without intervals
    verdict = verdicts(models)["hydra"]
    outcomes = {"accuracy": "worse", "NLL": "better", "ECE": "within chance", "mean AUROC": "better"}
    assert {one.metric: one.outcome for one in verdict.judgements} == outcomes
    numbers = [float(number) for number in re.findall(r"[+-]?\d+(?:\.\d+)?", verdict.sentence().replace("95 %", ""))]
    assert numbers == [-0.1, -0.15, -0.05, 3.0, 1.5, 4.5, -1.0, -1.7, -0.3, 2.5, 5.0]
    deployed, why = verdict.deployment(".st")
    assert deployed == "hydra" and why.startswith("Deploy hydra.st")
    even = replace(verdict, judgements=tuple(verdict.of("within chance")))
    assert even.of("within chance") and not even.gains and "nothing" not in even.sentence()
    unsure = verdicts({**models, "hydra": system(250, nll=(0, -1, 1))})["hydra"]
    assert unsure.deployment()[0] == "single"


def test_a_gain_needs_more_than_an_interval_and_a_loss_does_not() -> None:
    normal = NormalDist()
    corrected = normal.inv_cdf(1 - 0.05 / 4) / normal.inv_cdf(0.975)  # two metrics are looked at
    needed = (normal.inv_cdf(1 - 0.05 / 4) + normal.inv_cdf(0.8)) / normal.inv_cdf(0.975)
    for value, expected in [
        (-1.01 * needed, "better"),
        (-0.99 * needed, "within chance"),
        (0.99 * corrected, "within chance"),
        (1.01 * corrected, "worse"),
    ]:
        models = {"network": PLAIN, "hydra": system(nll=(value, value - 1, value + 1), accuracy=(0, -0.01, 0.01))}
        assert verdicts(models)["hydra"].judgements[1].outcome == expected


@pytest.mark.parametrize(
    ("samples", "odd", "lost", "deployed", "words"),
    [
        (2000, 183, 0.019, "hydra", "better in NLL"),
        (2000, 183, 0.03, "network", "4500"),
        (183, 183, 0.0, "hydra", "better in NLL"),
        (182, 183, 0.0, "network", "182 samples are too few .* 183 or more"),  # .98^183 < .025 < .98^182
        (2000, 3, 0.0, "network", "3 samples of far are too few"),
    ],
)
def test_too_few_samples_to_rule_out_a_loss_recommend_nothing(
    samples: int, odd: int, lost: float, deployed: str, words: str
) -> None:
    hydra = system(nll=(-0.1, -0.11, -0.09), accuracy=(0.0, -lost, lost), auroc=(0.0, 0.0, 0.0))
    far = {"far": Ood(samples=odd, auroc=1.0, ood_share=0.5)}
    hydra = replace(hydra, id=replace(hydra.id, samples=samples), ood=far)
    chosen, why = recommended({"network": PLAIN, "hydra": hydra})
    assert chosen == deployed and re.search(words, why)


def test_gains_on_ood_sets_of_the_kind_that_training_saw_do_not_decide() -> None:
    gain = Difference(0.15, (0.14, 0.16))
    found = {"all": {"auroc": gain}, "unseen": {"auroc": Difference(0.0, (-0.01, 0.01))}}
    hydra = replace(system(), difference=Resampled({}, ood_means=found), exposed=("noise",))
    models = {"network": PLAIN, "hydra": hydra}
    assert recommended(models)[0] == "network"
    [judged], [uncounted] = verdicts(models)["hydra"].judgements, verdicts(models)["hydra"].uncounted
    assert (judged.difference.value, uncounted.difference.value) == (0.0, 0.15)
    assert uncounted.text in verdicts(models)["hydra"].sentence()
    assert any("noise" in line for line in caption(results(models, DataInfo(), {})))
    assert recommended({**models, "hydra": replace(hydra, exposed=None)})[0] == "hydra"
    alone = replace(hydra, difference=Resampled({}, ood_means={"all": found["all"]}))
    assert verdicts({**models, "hydra": alone}) == {}


def test_a_score_of_its_own_is_told_where_it_detects_better() -> None:
    means = {"all": Ood(auroc=0.794, msp_auroc=0.741, ood_share=0.5)}
    scored = replace(PLAIN, score="knn", typicality=evaluated.Typicality(0.95, 0.94), ood_means=means)
    (sentence,) = own_score("network.safetensors", scored)
    assert all(part in sentence for part in ("network.safetensors", "79.4", "knn", "74.1"))
    worse = {"all": replace(means["all"], auroc=0.7)}
    for other in (PLAIN, replace(scored, typicality=None), replace(scored, ood_means=worse)):
        assert not list(own_score("network.safetensors", other))


GAIN, LOSS, EVEN = (-0.1, -0.15, -0.05), (0.1, 0.05, 0.15), (0.0, -0.1, 0.1)
Found = tuple[float, float, float]


@pytest.mark.parametrize(
    ("network", "trained", "ahead", "deployed"),
    [
        (GAIN, GAIN, EVEN, "hydra"),
        (GAIN, GAIN, GAIN, "hydra"),
        (GAIN, EVEN, GAIN, "trained"),
        (GAIN, LOSS, GAIN, "trained"),
        (EVEN, EVEN, GAIN, "trained"),
        (EVEN, EVEN, EVEN, "network"),
        (EVEN, GAIN, LOSS, "network"),
    ],
)
def test_what_costs_no_more_and_is_as_good_is_what_to_deploy(
    network: Found, trained: Found, ahead: Found, deployed: str
) -> None:
    rivals = {name: system(nll=found).difference for name, found in {"trained": trained, "teacher": LOSS}.items()}
    hydra = replace(system(130, nll=network), rivals=rivals)
    models = {"network": PLAIN, "hydra": hydra, "trained": system(nll=ahead), "teacher": system(300, nll=GAIN)}
    found = {one.other: one for one in rivalries(models)}
    assert {name: one.multiply_adds for name, one in found.items()} == {"trained": 1.3, "teacher": 130 / 300}
    chosen, why = recommended(models, ".safetensors")
    assert chosen == deployed and why.startswith(f"Deploy {deployed}.safetensors: ")
    losing = replace(models["trained"], difference=system(nll=ahead, ece=LOSS).difference)  # it alone loses this
    apart = recommended({**models, "trained": losing}, ".safetensors")
    assert apart[0] == deployed and ("; if ECE matters, hydra" in apart[1]) == (
        deployed == "trained" and network == GAIN
    )
    report = results(models, DataInfo(), {})
    for text in (printed(models, 1000), html_page(report, {})):
        assert found["trained"].sentence() in text and found["teacher"].sentence() in text
    assert f"Deploy {deployed}: " in html_page(report, {}) and "hydractl predict" not in html_page(report, {})
    joined, _ = join_reports({"one.json": report, "two.json": report})
    assert rivalries(joined.models) == []


@pytest.mark.parametrize(("low", "high", "expected"), [(0.0, 0.1, "within chance"), (0.02, 0.1, "better")])
def test_an_interval_that_touches_zero_is_chance(low: float, high: float, expected: str) -> None:
    assert JUDGED["accuracy"].outcome(system(accuracy=(0.05, low, high))) == expected


def on_sets(**sets: tuple[float, float, float, float]) -> dict[str, SystemResult]:
    """Two systems by the AUROC of sets: of the first, of the second, and the interval of the difference."""
    names = {name: (before, after) for name, (before, after, *_) in sets.items()}
    first, second = (
        replace(PLAIN, ood={name: Ood(auroc=both[at], fpr95=0.5, ood_share=0.5) for name, both in names.items()})
        for at in (0, 1)
    )
    ood = {
        name: {"auroc": Difference(after - before, (low, high)), "fpr95": Difference(0.0, (-0.1, 0.1))}
        for name, (before, after, low, high) in sets.items()
    }
    even = {"all": {"auroc": Difference(0.0, (-0.05, 0.05))}}
    return {"vit": first, "network": replace(second, difference=Resampled({}, ood, even))}


def test_a_set_that_got_worse_is_named_in_every_form_though_the_mean_did_not() -> None:
    models = on_sets(
        textures=(0.6413, 0.4021, -0.28, -0.2), letters=(0.6, 0.72, 0.08, 0.16), noise=(0.7, 0.71, 0, 0.02)
    )
    verdict = verdicts(models)["network"]
    assert [one.metric for one in verdict.losses] == ["AUROC of textures"]
    report = results(models, DataInfo(), {})
    written = report_json(report)["models"]["network"]["verdict"]
    assert {name: one["auroc"]["outcome"] for name, one in written["sets"].items()} == {
        "textures": "worse", "letters": "better", "noise": "within chance"}  # fmt: skip
    forms = (printed(models, 1000), markdown_table(result_table(report)), html_page(report, {}))
    for text in (*forms, written["sentence"]):
        assert "64.13 to 40.21" in text and "coin on textures" in text and "coin on noise" not in text
    # Nothing gained: the network stays; a gain elsewhere names the set that pays for it.
    assert recommended(models)[0] == "vit"
    gain = Resampled({"nll": Difference(-0.1, (-0.11, -0.09))}, models["network"].difference.ood)  # type: ignore[union-attr]
    chosen, why = recommended({**models, "network": replace(models["network"], difference=gain)})
    assert chosen == "network" and "NLL" in why and "AUROC of textures" in why


def test_arrows_and_sentences_are_one_test() -> None:
    """An interval beside 0 of one number among nine is chance, in the table as in the sentence."""
    random = [Difference(value, (value - 0.02, value + 0.02)) for value in (-0.05, -0.024, 0.021, 0.03, 0.05)]
    for difference in random:
        found = {name: replace(difference, value=difference.value) for name in ("accuracy", "nll", "ece")}
        models = on_sets(one=(0.6, 0.6, -0.1, 0.1), two=(0.6, 0.6, -0.1, 0.1))
        sets = models["network"].difference
        models["network"] = replace(models["network"], difference=replace(sets, id=found))  # type: ignore[type-var]
        outcomes = {one.key: one.outcome for one in verdicts(models)["network"].judgements}
        report = results(models, DataInfo(), {})
        for brief in (True, False):
            columns = {name: cells for _, group in result_table(report, brief=brief).groups for name, cells in group}
            shown = {key: columns[name][1].outcome for key, name in (("accuracy", "acc %"), ("nll", "NLL"))}
            assert shown == {key: outcomes[key] for key in shown}
        written = report_json(report)["models"]["network"]["verdict"]
        assert {key: written[key]["outcome"] for key in outcomes} == outcomes
        # Eight numbers: accuracy, NLL, ECE, the mean AUROC, two metrics of two sets.
        corrected = NormalDist().inv_cdf(1 - 0.05 / 16) / NormalDist().inv_cdf(0.975)
        assert (outcomes["accuracy"] == "worse") == (-difference.value > 0.02 * corrected)
        assert any("corrected for 8" in line for line in caption(report))


def test_a_single_system_says_where_its_own_score_or_a_coin_is_better() -> None:
    losing = {"textures": {"auroc": Difference(-0.24, (-0.28, -0.2)), "fpr95": Difference(0.0, (-0.1, 0.1))}}
    ood = {"textures": Ood(auroc=0.4, msp_auroc=0.64, fpr95=0.9, msp_fpr95=0.9, ood_share=0.5)}
    alone = replace(PLAIN, ood=ood, score="layers", typicality=evaluated.Typicality(0.95, 0.95), own_less_msp=losing)
    lines = list(caption(results({"network": alone}, DataInfo(), {})))
    assert any("coin on textures" in line for line in lines)
    for sentences in (lines, own_score("network", alone)):
        assert any("AUROC of textures (64.00 to 40.00)" in line for line in sentences)


def compared(**of_b: tuple[float, float, float]) -> evaluated.Results:
    """A report of `a` and of `b`, whose metrics of ID samples differ from it so much, with these intervals."""
    return results({"a": PLAIN, "b": system(150, **of_b)}, DataInfo(id=SetInfo("x")), {})


def test_every_form_of_a_report_says_it_and_marks_the_numbers() -> None:
    report = compared(accuracy=(0.02, 0.01, 0.03), nll=(0.1, 0.05, 0.15))
    written = report_json(report)["models"]
    sentence = written["b"]["verdict"]["sentence"]
    assert sentence == verdicts(report.models)["b"].sentence()
    assert "verdict" not in written["a"]
    table = result_table(report, brief=True)
    for text in (printed(report.models, 1000), markdown_table(table), html_page(report, {})):
        assert sentence in text
    assert "92.00▲  0.600▼" in printed(report.models, 1000)
    assert "| **92.00** ▲ | 0.600 ▼ |" in markdown_table(table)
    assert f'<p class="verdict">{sentence}</p>' in html_page(report, {})


def test_joined_reports_keep_differences_to_the_same_first_system_only() -> None:
    one, two = compared(accuracy=(0.02, 0.01, 0.03)), compared(accuracy=(0.04, 0.01, 0.06))
    same = replace(two, models={"a": PLAIN, "c": two.models["b"]})
    joined, notes = join_reports({"one.json": one, "two.json": same})
    assert not notes
    assert list(verdicts(joined.models)) == ["b", "c"]
    worse = replace(PLAIN, id=replace(PLAIN.id, accuracy=0.8))
    joined, notes = join_reports({"one.json": one, "two.json": replace(same, models={**same.models, "a": worse})})
    assert notes == ["two.json: its differences are to a, which is not the first system here: left out"]
    assert list(verdicts(joined.models)) == ["b"]
    three = {f"{name}/r.json": results({"a": result(name / 10)}, DataInfo(), {}) for name in (1, 2, 3)}
    assert list(join_reports(three)[0].models) == ["a", "a (r)", "a (r 2)"]


def test_a_verdict_in_a_file_is_computed_again(tmp_path: Path) -> None:
    content = report_json(compared(accuracy=(0.02, 0.01, 0.03)))
    forged = copy.deepcopy(content)
    forged["models"]["b"]["verdict"] = {"sentence": "all is well"}
    (tmp_path / "r.json").write_text(json.dumps(forged))
    assert report_json(read_report(str(tmp_path / "r.json"))) == content


@pytest.mark.parametrize(("near", "columns"), [("far", ["far"]), ("near", ["near: dtd", "far: mnist", "mean"])])
def test_a_mean_over_all_sets_is_shown_where_it_is_not_that_of_one_group(near: str, columns: list[str]) -> None:
    found = result(0.5)
    one = replace(found, ood=found.ood | {"dtd": replace(found.ood["dtd"], group=near)})  # type: ignore[operator, arg-type]
    (group,) = (group for group in main_groups([one]) if group.title == "AUROC %")
    assert [column.name for column in group.columns] == columns

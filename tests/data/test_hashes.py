import json

import numpy as np
import pytest

from hydractl.data.hashes import EXACT, merged, remembered_samples, sketch
from hydractl.errors import ArtifactError

HASHES = np.random.default_rng(0).integers(0, 2**64, size=3 * EXACT, dtype=np.uint64)


def copied(entry: object) -> object:
    return json.loads(json.dumps(entry))


@pytest.mark.parametrize("count", [0, 1, 2, 1500, EXACT])
def test_remembers_every_one_and_no_other(count: int) -> None:
    entry = copied(sketch(HASHES[:count]))
    assert remembered_samples(entry, HASHES, "a").sum() == count
    assert remembered_samples(entry, HASHES[count:], "a").sum() == 0


def test_is_small_and_the_same_in_any_order() -> None:
    entry = sketch(HASHES[:1500])
    assert len(json.dumps(entry)) < 7 * 1500
    assert sketch(np.concatenate([HASHES[:1500][::-1], HASHES[:10]])) == {**entry, "samples": 1510}


def test_of_many_samples_a_fair_draw() -> None:
    entry = copied(sketch(HASHES))
    assert remembered_samples(entry, HASHES, "a").sum() == EXACT
    third = remembered_samples(entry, HASHES[:EXACT], "a").sum()
    assert abs(third - EXACT / 3) < 5 * np.sqrt(EXACT * 2 / 9)


def test_merged_is_the_sketch_of_all_under_each_name() -> None:
    first, second, none = sketch(HASHES[:100]), sketch(HASHES[50:200]), sketch(HASHES[:0])
    named = [("id", first), ("ood", second), ("id", second), ("id", none), ("ood", second)]
    assert merged(named, "a") == {"id": sketch(HASHES[:200]), "ood": second}
    assert merged([], "a") == {}


def test_merged_forgets_nothing_where_there_is_too_much_for_one() -> None:
    draw, half, other = sketch(HASHES), sketch(HASHES[:EXACT]), sketch(HASHES[EXACT : EXACT + 9])
    result = merged([("id", half), ("id", draw), ("id", other), ("id", draw)], "a")
    assert result == {"id": half, "id (2)": draw, "id (3)": other}
    assert merged(result.items(), "a") == result


@pytest.mark.parametrize(
    "entry",
    [
        *(None, [], {}, {"samples": 2, "complete": True}),
        *({"samples": 2, "complete": True, "hashes": hashes} for hashes in ("%%%", "aGVsbG8=", 5)),
        {**sketch(HASHES[:9]), "hashes": sketch(HASHES[:9])["hashes"][:-8]},
        {**sketch(HASHES[:0]), "samples": 4},
    ],
)
def test_a_damaged_record_is_refused(entry: object) -> None:
    with pytest.raises(ArtifactError, match="^model: "):
        remembered_samples(entry, HASHES, "model")

from __future__ import annotations

import pytest
import synthetic

from chaosity.statistics import drives_among_siblings

SLOW = "drive-0000-11-00-0"


def machine(**keys):
    return synthetic.Machine("h", ((0, 1), (2, 3)), {0: 2, 1: 2, 2: 2, 3: 2}, **keys)


def models(found):
    return {name: document["model"] for name, document in found.components().items()}


def test_a_throttled_drive_is_found_with_its_factor():
    found = machine(slow={SLOW: 0.2})
    first, *others = drives_among_siblings(found.tidy(), models(found))
    assert first.drive == SLOW
    assert first.ratio == pytest.approx(0.2, rel=0.05)
    assert first.low < 0.2 * 1.05 and first.high < 0.3
    assert (first.siblings, first.initiators, first.n) == (7, 4, 3)
    assert first.median == pytest.approx(0.2 * first.median_of_siblings, rel=0.1)
    # One slow sibling does not make the others fast.
    assert all(0.95 < one.ratio < 1.05 for one in others)


def test_a_place_that_is_slow_for_all_drives_is_no_fault_of_a_drive():
    found = machine()
    tidy = found.tidy()
    far = tidy["relation"] == "other_package"
    tidy.loc[far & (tidy["load"] == "storage"), "value"] *= 0.3
    assert all(0.9 < one.ratio < 1.1 for one in drives_among_siblings(tidy, models(found)))


def test_another_model_is_no_sibling():
    found = machine(slow={SLOW: 0.2})
    kinds = {**models(found), SLOW: "another"}
    assert SLOW not in {one.drive for one in drives_among_siblings(found.tidy(), kinds)}
    assert drives_among_siblings(found.tidy(), {}) == []


def test_two_drives_cannot_tell_which_of_them_is_wrong():
    found = synthetic.Machine("h", ((0,),), {0: 2}, slow={"drive-0000-01-00-0": 0.2})
    assert drives_among_siblings(found.tidy(), models(found)) == []


def test_a_file_is_no_drive():
    found = synthetic.small()
    assert drives_among_siblings(found.tidy(), {"file0": "file"}) == []


def test_a_single_replicate_has_no_interval():
    found = machine(replicates=1, slow={SLOW: 0.2})
    first = drives_among_siblings(found.tidy(), models(found))[0]
    assert (first.drive, first.low, first.high, first.n) == (SLOW, None, None, 1)

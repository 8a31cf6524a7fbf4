"""The analysis of variance against published examples: NIST, R and others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from statsmodels.stats.multicomp import pairwise_tukeyhsd

from chaosity.statistics.anova import analyse_variance

SIX_DIGITS = 1e-6

# Dobson, "An Introduction to Generalized Linear Models" (1983); R's PlantGrowth.
PLANT_GROWTH = {
    "ctrl": [4.17, 5.58, 5.18, 6.11, 4.50, 4.61, 5.17, 4.53, 5.33, 5.14],
    "trt1": [4.81, 4.17, 4.41, 3.59, 5.87, 3.83, 6.03, 4.89, 4.32, 4.69],
    "trt2": [6.31, 5.12, 5.54, 5.50, 5.37, 5.29, 4.92, 6.15, 5.80, 5.26],
}
# Venables and Ripley, "Modern Applied Statistics with S", yield of peas; R's npk.
NPK = {
    1: [(0, 1, 1, 49.5), (1, 1, 0, 62.8), (0, 0, 0, 46.8), (1, 0, 1, 57.0)],
    2: [(1, 0, 0, 59.8), (1, 1, 1, 58.5), (0, 0, 1, 55.5), (0, 1, 0, 56.0)],
    3: [(0, 1, 0, 62.8), (1, 1, 1, 55.8), (1, 0, 0, 69.5), (0, 0, 1, 55.0)],
    4: [(1, 0, 0, 62.0), (1, 1, 1, 48.8), (0, 0, 1, 45.5), (0, 1, 0, 44.2)],
    5: [(1, 1, 0, 52.0), (0, 0, 0, 51.5), (1, 0, 1, 49.8), (0, 1, 1, 48.8)],
    6: [(1, 0, 1, 57.2), (1, 1, 0, 59.0), (0, 1, 1, 53.2), (0, 0, 0, 56.0)],
}

# Tippett, "Technological Applications of Statistics" (1950), breaks of warp yarn; R's warpbreaks.
WARP_BREAKS = {
    ("A", "L"): [26, 30, 54, 25, 70, 52, 51, 26, 67],
    ("A", "M"): [18, 21, 29, 17, 12, 18, 35, 30, 36],
    ("A", "H"): [36, 21, 24, 18, 10, 43, 28, 15, 26],
    ("B", "L"): [27, 14, 29, 19, 29, 31, 41, 20, 44],
    ("B", "M"): [42, 26, 19, 16, 39, 28, 21, 39, 29],
    ("B", "H"): [20, 21, 24, 17, 13, 15, 15, 16, 28],
}


def one_way(groups):
    rows = [(level, y) for level, ys in groups.items() for y in ys]
    return pd.DataFrame(rows, columns=["group", "y"])


def two_way(cells, *names):
    rows = [(*levels, y) for levels, ys in cells.items() for y in ys]
    return pd.DataFrame(rows, columns=[*names, "y"])


def table(found):
    return {term.name: term for term in found.terms}


def squares(found):
    return {term.name: (term.degrees_of_freedom, term.sum_of_squares) for term in found.terms}


# SmLs07 to 09 have thirteen digits in common, more than a double can hold to six digits of F.
@pytest.mark.parametrize("name", ["AtmWtAg", "SiRstv", *(f"SmLs0{n}" for n in range(1, 7))])
def test_nist_certified_values(name):
    path = Path(scipy.stats.__file__).parent / f"tests/data/nist_anova/{name}.dat"
    if not path.exists():
        pytest.skip("scipy was installed without its tests")
    lines = path.read_text().splitlines()
    certified = [line.split() for line in lines[40:50]]
    between = next(words for words in certified if words[:1] == ["Between"])
    within = next(words for words in certified if words[:1] == ["Within"])
    rows = [line.split() for line in lines[60:] if line.strip()]
    found = table(
        analyse_variance(pd.DataFrame(rows, columns=["g", "y"]), "y", ["g"], transform="none")
    )
    freedom, total, mean, f = between[-4:]
    assert found["g"].degrees_of_freedom == int(freedom)
    shown = (found["g"].sum_of_squares, found["g"].mean_square, found["g"].f)
    assert shown == pytest.approx((float(total), float(mean), float(f)), rel=SIX_DIGITS)
    assert found["error"].sum_of_squares == pytest.approx(float(within[-2]), rel=SIX_DIGITS)


def test_warp_breaks_as_r_has_them():
    frame = two_way(WARP_BREAKS, "wool", "tension")
    found = analyse_variance(frame, "y", ["wool", "tension"], transform="none")
    # As R's summary(aov(breaks ~ wool * tension, warpbreaks)) prints them.
    assert {name: (df, round(total, 1)) for name, (df, total) in squares(found).items()} == {
        "wool": (1, 450.7),
        "tension": (2, 2034.3),
        "wool x tension": (2, 1002.8),
        "error": (48, 5745.1),
        "total": (53, 9232.8),
    }
    tests = [(round(term.f, 3), round(term.p_value, 6)) for term in found.terms[:3]]
    assert tests == [(3.765, 0.058213), (8.498, 0.000693), (4.189, 0.021044)]
    assert found.sums_of_squares == "orthogonal"
    # TukeyHSD's differences; its intervals are tested against scipy below.
    differences = {(pair.level, pair.against): pair.difference.value for pair in found.contrasts}
    assert differences["M", "L"] == pytest.approx(-10.0)
    assert differences["L", "H"] == pytest.approx(14.72222, abs=1e-5)


def test_a_confounded_interaction_is_left_out_with_a_note():
    rows = [(block, *plot) for block, plots in NPK.items() for plot in plots]
    frame = pd.DataFrame(rows, columns=["block", "N", "P", "K", "yield"])
    found = analyse_variance(frame, "yield", ["N", "P", "K"], block="block", transform="none")
    # As R's summary(aov(yield ~ block + N*P*K, npk)) prints them.
    assert {name: (df, round(total, 1)) for name, (df, total) in squares(found).items()} == {
        "N": (1, 189.3),
        "P": (1, 8.4),
        "K": (1, 95.2),
        "N x P": (1, 21.3),
        "N x K": (1, 33.1),
        "P x K": (1, 0.5),
        "block": (5, 343.3),
        "error": (12, 185.3),
        "total": (23, 876.4),
    }
    assert any("N x P x K" in note for note in found.notes)
    assert round(table(found)["N"].p_value, 5) == 0.00437


def test_tukey_of_unequal_groups_as_statsmodels_has_it():
    frame = one_way(PLANT_GROWTH).drop([0, 1, 12])
    found = analyse_variance(frame, "y", ["group"], transform="none")
    expected = pairwise_tukeyhsd(frame["y"], frame["group"]).confint
    shown = [(p.difference.low, p.difference.high) for p in found.contrasts]
    assert shown == pytest.approx(expected, rel=1e-4)  # theirs interpolates the quantile


@pytest.mark.parametrize(("groups", "size"), [(3, 2), (12, 2), (12, 40)])
def test_tukey_as_scipy_has_it(groups, size):
    values = np.random.default_rng(1).normal(10.0, 1.0, (groups, size))
    frame = one_way({str(number): list(own) for number, own in enumerate(values)})
    found = analyse_variance(frame, "y", ["group"], transform="none")
    expected = scipy.stats.tukey_hsd(*values).confidence_interval(0.95)
    for pair in found.contrasts:
        both = int(pair.level), int(pair.against)
        interval = (expected.low[both], expected.high[both])
        assert (pair.difference.low, pair.difference.high) == pytest.approx(interval, rel=1e-6)


def test_two_levels_are_compared_by_student():
    frame = one_way({name: PLANT_GROWTH[name] for name in ("ctrl", "trt2")})
    [pair] = analyse_variance(frame, "y", ["group"], transform="none").contrasts
    expected = scipy.stats.ttest_ind(PLANT_GROWTH["trt2"], PLANT_GROWTH["ctrl"])
    interval = expected.confidence_interval(0.95)
    assert (pair.difference.low, pair.difference.high) == pytest.approx(tuple(interval))
    assert pair.adjusted is None

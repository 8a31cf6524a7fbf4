"""The analysis of variance of made-up tables against other programs' arithmetic, and its texts."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import statsmodels.formula.api as smf
from hypothesis import given, settings
from hypothesis import strategies as st

from chaosity.statistics.anova import analyse_variance

SIX_DIGITS = 1e-6


def table(found):
    return {term.name: term for term in found.terms}


def crossed(sizes, replicates, seed):
    """A full crossing with made-up values."""
    random = np.random.default_rng(seed)
    names = [f"f{n}" for n in range(len(sizes))]
    rows = itertools.product(range(replicates), *map(range, sizes))
    frame = pd.DataFrame(rows, columns=["replicate", *names])
    base = sum((n + 1.0) * frame[name] for n, name in enumerate(names))
    together = 0.7 * frame[names[0]] * frame[names[-1]]
    frame["y"] = 50.0 + base + together + 2.0 * frame["replicate"]
    frame["y"] += random.normal(0.0, 1.0, len(frame))
    return frame, names


def residual(frame, terms):
    """Residual sum of squares and rank of a model, by least squares over all its indicators."""
    texts = [frame[list(term)].astype(str).agg("|".join, axis=1) for term in terms]
    matrix = np.hstack([np.ones((len(frame), 1)), *(pd.get_dummies(t, dtype=float) for t in texts)])
    y = frame["y"].to_numpy(float)
    solution, _, rank, _ = np.linalg.lstsq(matrix, y, rcond=1e-10)
    return float(((y - matrix @ solution) ** 2).sum()), int(rank)


def some_designs(draw):
    """A crossing of factors of which values, and maybe whole cells, are lost."""
    sizes = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    frame, names = crossed(sizes, draw(st.integers(2, 3)), draw(st.integers(0, 1000)))
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    cell = frame.groupby(names).ngroup()
    empty = random.choice(cell.max() + 1, draw(st.integers(0, cell.max() // 4)), replace=False)
    frame = frame[~cell.isin(empty)]
    lost = random.choice(len(frame), draw(st.integers(0, len(frame) // 4)), replace=False)
    return frame.drop(frame.index[lost]), names, draw(st.sampled_from([None, "replicate"]))


def has_all_combinations(frame, names):
    names = list(names)
    return frame.groupby(names).ngroups == frame[names].nunique().prod()


@settings(max_examples=25, deadline=None)
@given(design=st.composite(some_designs)())
def test_sums_of_squares_are_those_of_nested_models(design):
    frame, names, block = design
    found = analyse_variance(frame, "y", names, block, "none")
    *terms, rest, total = found.terms
    models = [frozenset(term.name.split(" x ")) for term in terms]
    error, rank = residual(frame, models)
    freedom = len(frame) - rank
    assert (rest.degrees_of_freedom, total.degrees_of_freedom) == (freedom, len(frame) - 1)
    assert rest.sum_of_squares == pytest.approx(error, rel=SIX_DIGITS, abs=1e-9)
    for model, term in zip(models, terms, strict=True):
        others = [other for other in models if not model <= other]
        without, rank_without = residual(frame, others)
        with_term, rank_with = residual(frame, [*others, model])
        assert term.degrees_of_freedom == rank_with - rank_without > 0
        expected = without - with_term
        assert term.sum_of_squares == pytest.approx(expected, rel=SIX_DIGITS, abs=1e-9)
        if term.f is not None:
            f = expected / term.degrees_of_freedom / (error / freedom)
            p = scipy.stats.f.sf(f, term.degrees_of_freedom, freedom)
            assert (term.f, term.p_value) == pytest.approx((f, p), rel=1e-5, abs=1e-9)
    if found.balanced:
        shares = [term.variation_percent for term in found.terms]
        assert sum(shares[:-1]) == pytest.approx(100.0)
    assert any("type II" in note for note in found.notes) != found.balanced
    full = {pair: has_all_combinations(frame, pair) for pair in itertools.combinations(names, 2)}
    shown = {effect.term for effect in found.interactions}
    assert shown == {" x ".join(pair) for pair in full if full[pair]} & table(found).keys()
    assert any(" combinations of levels have no value" in note for note in found.notes) != (
        has_all_combinations(frame, names)
    )
    assert found.fitted + found.residuals == pytest.approx(frame["y"].to_numpy())
    json.dumps(found.to_json(), allow_nan=False)


def test_a_lost_value_keeps_the_interaction_of_many_nodes():
    frame, names = crossed((14, 14, 4), 2, 1)
    found = analyse_variance(frame.iloc[1:], "y", names, "replicate", "none")
    assert table(found)["f0 x f1 x f2"].degrees_of_freedom == 13 * 13 * 3
    assert len(found.notes) == 1


def test_an_unbalanced_model_with_too_many_effects_has_smaller_interactions():
    frame, names = crossed((60, 6, 7), 1, 1)
    found = analyse_variance(frame.iloc[1:], "y", names, transform="none")
    assert list(table(found)) == [*names, "error", "total"]
    assert any("too many levels for interactions of 2 factors" in note for note in found.notes)


def test_effects_and_their_intervals_as_statsmodels_has_them():
    frame, names = crossed((3, 4), 3, 11)
    for table_ in (frame, frame.drop([0, 7, 8, 20])):
        found = analyse_variance(table_, "y", names, "replicate", "none")
        model = smf.ols("y ~ C(f0, Sum) + C(f1, Sum) + C(replicate, Sum)", table_).fit()
        error = table(found)["error"]
        effects = [one for one in found.effects if one.factor == "f0"]
        for place, name in enumerate(("C(f0, Sum)[S.0]", "C(f0, Sum)[S.1]")):
            one = effects[place].effect
            assert one.value == pytest.approx(model.params[name], rel=SIX_DIGITS)
            # The interval is made with the error of the model that has the interaction.
            spread = model.bse[name] * (error.mean_square / model.mse_resid) ** 0.5
            half = scipy.stats.t.ppf(0.975, error.degrees_of_freedom) * spread
            assert (one.low, one.high) == pytest.approx((one.value - half, one.value + half))


def test_interaction_effects_by_hand():
    values = [10.0, 12.0, 20.0, 22.0, 30.0, 32.0, 60.0, 62.0]
    frame = pd.DataFrame({"p": list("aaaabbbb"), "q": list("xxyyxxyy"), "v": values})
    found = analyse_variance(frame, "v", ["p", "q"], transform="none")
    effects = {one.levels: one.effect for one in found.interactions}
    assert effects[("a", "x")].value == pytest.approx(5.0)
    assert effects[("a", "y")].value == pytest.approx(-5.0)
    # Error: 8 in 4 degrees of freedom; an effect of eight values has a standard error of 0.5.
    half = scipy.stats.t.ppf(0.975, 4) * 0.5
    assert effects[("b", "y")].high - 5.0 == pytest.approx(half)


def test_a_factor_that_follows_from_another_is_named():
    frame, _ = crossed((3,), 4, 1)
    frame["again"] = frame["f0"].map({0: "x", 1: "y", 2: "z"})
    found = analyse_variance(frame, "y", ["f0", "again"])
    assert "again" not in table(found)
    assert any("again" in note for note in found.notes)
    assert {one.factor for one in found.effects} == {"f0"}


def test_three_factors_of_four_interact_at_most():
    frame, names = crossed((2, 2, 2, 2), 2, 6)
    found = analyse_variance(frame, "y", names)
    assert max(term.name.count(" x ") for term in found.terms) == 2
    assert any("more than 3 factors" in note for note in found.notes)


def test_one_value_for_each_level_gives_shares_without_tests():
    frame = pd.DataFrame({"node": ["a", "b", "c"], "v": [1.0, 2.0, 4.0]})
    found = analyse_variance(frame, "v", ["node"])
    node = table(found)["node"]
    assert (node.f, node.p_value, node.significant) == (None, None, None)
    assert node.variation_percent == pytest.approx(100.0)
    assert "effects cannot be separated from noise" in node.sentence
    assert found.effects[0].effect.low is None
    assert found.contrasts[0].difference.high is None
    assert any("Measure at least twice" in note for note in found.notes)


def test_values_without_noise_have_no_test():
    frame = pd.DataFrame({"n": ["a", "a", "b", "b"], "v": [0.1 + 0.2, 0.3, 0.7, 0.1 * 7]})
    found = analyse_variance(frame, "v", ["n"], transform="none")
    assert table(found)["n"].f is None
    assert any("no noise" in note for note in found.notes)


def test_what_is_significant_may_be_unimportant():
    frame, _ = crossed((2, 2), 4, 5)
    frame["y"] += 50.0 * frame["f0"] + 3.0 * frame["f1"]
    found = table(analyse_variance(frame, "y", ["f0", "f1"], "replicate", "none"))
    assert [(found[name].significant, found[name].important) for name in ("f0", "f1")] == [
        (True, True),
        (True, False),
    ]
    assert "significant (p < 0.001) but unimportant" in found["f1"].sentence


def noisy(multiply):
    noise = np.random.default_rng(2).normal(0.0, 0.1, (3, 6))
    means = np.array([[10.0], [100.0], [400.0]])
    values = means * np.exp(noise) if multiply else means + 20.0 * noise
    return pd.DataFrame({"place": np.repeat(["near", "far", "farther"], 6), "v": values.ravel()})


def test_the_transform_is_chosen_as_box_and_cox_do():
    for multiply in (True, False):
        frame = noisy(multiply)
        y = frame["v"].to_numpy()
        # Box and Cox's profile log likelihoods, with the error's degrees of freedom.
        likelihoods = []
        for z in (y, np.log(y) * np.exp(np.log(y).mean())):
            means = pd.Series(z).groupby(frame["place"].to_numpy()).transform("mean")
            likelihoods.append(-(len(y) - 3) / 2.0 * np.log(((z - means) ** 2).sum()))
        gain = likelihoods[1] - likelihoods[0]
        for transform in ("better", "auto"):
            found = analyse_variance(frame, "v", ["place"], transform=transform)
            assert (found.transform == "log") == multiply == (gain > 0.0)
            assert f"{abs(gain):.1f}" in found.transform_reason
        assert (found.contrasts[0].difference.ratio is None) == (not multiply)
    mild = pd.DataFrame({"place": list("aabb"), "v": [10.0, 11.0, 20.0, 21.6]})
    for transform, chosen in (("better", "log"), ("auto", "none")):  # better, but not clearly
        assert analyse_variance(mild, "v", ["place"], transform=transform).transform == chosen
    below_zero = noisy(True).assign(v=lambda t: t["v"] - 200.0)
    assert analyse_variance(below_zero, "v", ["place"]).transform == "none"


def test_quantiles_have_the_order_of_the_residuals():
    found = analyse_variance(noisy(True).sample(frac=1.0, random_state=3), "v", ["place"])
    assert (np.diff(found.normal_quantiles[np.argsort(found.residuals)]) > 0.0).all()
    assert found.normal_quantiles.mean() == pytest.approx(0.0, abs=1e-9)


def test_many_levels_list_the_extremes_only():
    frame, names = crossed((20,), 2, 1)
    [pair] = analyse_variance(frame, "y", names, transform="none").contrasts
    assert (pair.level, pair.against, pair.adjusted) == ("19", "0", "Tukey")


def test_levels_are_in_natural_order():
    frame = pd.DataFrame({"node": ["node10", "node9", "node2"] * 2, "v": [1.0, 2, 3, 1.1, 2.1, 3]})
    assert analyse_variance(frame, "v", ["node"]).levels["node"] == ("node2", "node9", "node10")
    frame["node"] = [128, 64.0, 8] * 2
    assert analyse_variance(frame, "v", ["node"]).levels["node"] == ("8", "64", "128")


def test_values_far_from_one_are_analysed_as_they_are():
    """Values of 1e10 without logarithms once ended in an overflow of exp()."""
    frame, names = crossed((4,), 3, 1)
    analysis = analyse_variance(frame.assign(y=frame["y"] * 1e10), "y", names, "replicate", "none")
    assert analysis.transform == "none"
    assert [found.effect.ratio for found in analysis.effects] == [None] * 4


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000), dropped=st.integers(0, 6), shuffle=st.randoms())
def test_order_of_rows_and_names_of_levels_do_not_matter(seed, dropped, shuffle):
    frame, names = crossed((3, 3), 3, seed)
    frame = frame.iloc[dropped:]
    order = list(range(len(frame)))
    shuffle.shuffle(order)
    other = frame.iloc[order].assign(f0=lambda t: t["f0"].map({0: "z", 1: "k k", 2: "b"}))
    one = analyse_variance(frame, "y", names, "replicate")
    two = analyse_variance(other, "y", names, "replicate")
    assert (one.transform, one.conclusion) == (two.transform, two.conclusion)
    for a, b in zip(one.terms, two.terms, strict=True):
        assert (a.name, a.degrees_of_freedom) == (b.name, b.degrees_of_freedom)
        assert a.sum_of_squares == pytest.approx(b.sum_of_squares, rel=1e-8, abs=1e-8)

"""Identities that hold for every batch."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from corrgrpo_train.advantages import ESTIMATORS, estimate

torch.set_num_threads(1)
EXAMPLES = settings(max_examples=100, deadline=None)

reward = st.one_of(st.integers(-10, 10).map(lambda k: k / 10), st.floats(-10, 10).map(lambda x: round(x, 3)))


@st.composite
def batches(draw, min_rows=1, max_width=6, signed=True):
    size, width = draw(st.integers(min_rows, 16)), draw(st.integers(1, max_width))
    rows = draw(st.lists(st.lists(reward, min_size=width, max_size=width), min_size=size, max_size=size))
    labels = draw(st.lists(st.integers(-2, 2), min_size=size, max_size=size))
    weight = st.sampled_from([1.0, 0.05, 0.3, 2.0] + ([-1.0, -0.5, 0.0] if signed else []))
    weights = draw(st.lists(weight, min_size=width, max_size=width))
    return (
        torch.tensor(rows, dtype=torch.float64),
        torch.tensor(labels),
        torch.tensor(weights, dtype=torch.float64),
    )


@EXAMPLES
@given(batches(), st.randoms(use_true_random=False))
def test_positive_affine_maps_of_components_leave_correlations_alone(batch, rng):
    """Q knows no scale and no origin of a reward."""
    rows, labels, weights = batch
    scale = torch.tensor([10 ** rng.uniform(-3, 3) for _ in weights], dtype=torch.float64)
    shift = torch.tensor([rng.uniform(-5, 5) for _ in weights], dtype=torch.float64)
    before = estimate("corrgrpo", rows, labels, weights).diagnostics
    # A component that only varies by less than 1e-6 of its new level would be a test of rounding.
    spread = (rows.max(dim=0).values - rows.min(dim=0).values) * scale
    assume(bool(((spread == 0) | (spread > 1e-3)).all()))
    after = estimate("corrgrpo", rows * scale + shift, labels, weights).diagnostics
    torch.testing.assert_close(after["correlation_sum"], before["correlation_sum"], rtol=1e-6, atol=1e-6)


@EXAMPLES
@given(batches(), st.sampled_from([0.01, 0.5, 3.0, 1000.0]))
def test_a_common_scale_multiplies_corrgrpo_and_leaves_grpo(batch, scale):
    rows, labels, weights = batch
    for name, factor in {
        "corrgrpo": scale,
        "dr_grpo": scale,
        "rloo": scale,
        "grpo": 1.0,
        "mo_grpo": 1.0,
    }.items():
        options = {"epsilon": 0.0} if factor == 1 else {}
        before = estimate(name, rows, labels, weights, **options).advantages
        after = estimate(name, rows * scale, labels, weights, **options).advantages
        torch.testing.assert_close(after, before * factor, rtol=1e-5, atol=1e-6 * factor)


@EXAMPLES
@given(batches())
def test_within_a_group_corrgrpo_is_grpo_times_a_positive_factor(batch):
    """Same signs, same order, same ratios; and the advantages of a group sum to 0."""
    rows, labels, weights = batch
    corrgrpo = estimate("corrgrpo", rows, labels, weights)
    grpo = estimate("grpo", rows, labels, weights)
    factors = dict(
        zip(
            corrgrpo.diagnostics["group"].tolist(),
            corrgrpo.diagnostics["ratio_to_grpo"].tolist(),
            strict=True,
        )
    )
    for label in labels.unique().tolist():
        ours, theirs = (out.advantages[labels == label].double() for out in (corrgrpo, grpo))
        assert abs(ours.sum().item()) <= 1e-5 * (1 + ours.abs().max().item())
        assert torch.equal(ours.sign(), theirs.sign())
        if math.isnan(factors[label]):
            assert not ours.any()
            assert not theirs.any()
        else:
            assert factors[label] > 0
            torch.testing.assert_close(ours, theirs * factors[label], rtol=1e-5, atol=1e-9)


@EXAMPLES
@given(batches(max_width=1, signed=False))
def test_one_component_is_dr_grpo(batch):
    """Q = 1, so A = t / sqrt(1 + ε)."""
    rows, labels, weights = batch
    corrgrpo = estimate("corrgrpo", rows, labels, weights).advantages
    dr_grpo = estimate("dr_grpo", rows, labels, weights).advantages
    torch.testing.assert_close(corrgrpo, dr_grpo / math.sqrt(1 + 1e-6), rtol=3e-7, atol=0)
    exact = estimate("corrgrpo", rows, labels, weights, epsilon=0.0).advantages
    torch.testing.assert_close(exact, dr_grpo, rtol=2e-7, atol=0)


@EXAMPLES
@given(batches(), st.randoms(use_true_random=False), st.sampled_from(sorted(ESTIMATORS)))
def test_the_order_of_rows_does_not_matter(batch, rng, name):
    rows, labels, weights = batch
    order = list(range(len(rows)))
    rng.shuffle(order)
    options = {"paper_exact": True} if "paper_exact" in ESTIMATORS[name].options else {}
    straight = estimate(name, rows, labels, weights, **options)
    mixed = estimate(name, rows[order], labels[order], weights, **options)
    torch.testing.assert_close(mixed.advantages, straight.advantages[order], rtol=1e-5, atol=1e-6)
    for key, value in straight.diagnostics.items():
        torch.testing.assert_close(
            torch.as_tensor(mixed.diagnostics[key]),
            torch.as_tensor(value),
            rtol=1e-5,
            atol=1e-6,
            equal_nan=True,
            msg=lambda text, key=key: f"{key}: {text}",
        )


@EXAMPLES
@given(batches(), st.sampled_from([name for name, estimator in ESTIMATORS.items() if estimator.per_group]))
def test_groups_do_not_see_each_other(batch, name):
    """A group's advantages are what they are without the other groups, whatever its label."""
    rows, labels, weights = batch
    together = estimate(name, rows, labels, weights).advantages
    for label in labels.unique().tolist():
        own = labels == label
        alone = estimate(name, rows[own], [99] * int(own.sum()), weights).advantages
        torch.testing.assert_close(together[own], alone, rtol=1e-6, atol=1e-9)


@EXAMPLES
@given(batches(), st.randoms(use_true_random=False), st.sampled_from(sorted(ESTIMATORS)))
def test_a_component_of_weight_zero_has_no_influence(batch, rng, name):
    rows, labels, weights = batch
    place = rng.randrange(len(weights) + 1)
    extra = torch.tensor([rng.choice([0.0, 1.0, 1e6, math.nan]) for _ in rows], dtype=torch.float64)
    wider = torch.cat([rows[:, :place], extra[:, None], rows[:, place:]], dim=1)
    zero = torch.cat([weights[:place], torch.zeros(1, dtype=torch.float64), weights[place:]])
    without = estimate(name, rows, labels, weights)
    given_it = estimate(name, wider, labels, zero)
    assert torch.equal(given_it.advantages, without.advantages)
    assert given_it.diagnostics["rows_left_out"] == 0


@EXAMPLES
@given(batches(), st.sampled_from(sorted(ESTIMATORS)))
def test_turning_a_component_and_its_weight_changes_nothing(batch, name):
    """−w · (−R) = w · R: in the total, and in the signs of the correlations."""
    rows, labels, weights = batch
    turned_rows, turned_weights = rows.clone(), weights.clone()
    turned_rows[:, 0] *= -1
    turned_weights[0] *= -1
    before = estimate(name, rows, labels, weights).advantages
    after = estimate(name, turned_rows, labels, turned_weights).advantages
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_groups_of_one_get_nothing(name):
    out = estimate(name, [[0.3, 1.0], [0.9, 0.0], [0.1, 0.5]], [5, -2, 8], [1.0, 0.5])
    assert out.advantages.tolist() == [0.0, 0.0, 0.0]
    assert out.diagnostics["share_without_signal"] == 1.0


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
@pytest.mark.parametrize("paper_exact", [False, True])
def test_groups_without_variation_get_nothing(name, paper_exact):
    options = {"paper_exact": paper_exact} if "paper_exact" in ESTIMATORS[name].options else {}
    rows = [[0.05, 1 / 3]] * 7 + [[0.1, 0.3]] * 3
    assert not estimate(name, rows, [0] * 7 + [1] * 3, [0.05, 0.6], **options).advantages.any()


@pytest.mark.parametrize("width", range(1, 65))
def test_any_number_of_components(width):
    """Two rows and K components that agree: every correlation is 1, Q = K²."""
    rows = [[0.0] * width, [float(k + 1) for k in range(width)]]
    out = estimate("corrgrpo", rows, [1, 1], [1.0] * width)
    assert out.diagnostics["correlation_sum"].item() == pytest.approx(width**2, rel=1e-12)
    expected = width * (width + 1) / 4 / math.sqrt(width**2 + 1e-6)
    assert out.advantages.tolist() == pytest.approx([-expected, expected], rel=1e-6)


extreme = st.one_of(
    st.floats(-1e300, 1e300),
    st.sampled_from([math.nan, 5e-324, 1e-310, 1e-160, -1e155, 1e300, -1e300, 1.0, 0.0]),
)


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(sorted(ESTIMATORS)))
def test_extreme_numbers_give_finite_advantages_or_a_clear_error(data, name):
    size, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    rows = data.draw(st.lists(st.lists(extreme, min_size=width, max_size=width), min_size=size, max_size=size))
    weights = data.draw(
        st.lists(st.sampled_from([1.0, -0.5, 1e-300, 1e300, 5e-324, 0.0]), min_size=width, max_size=width)
    )
    labels = data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    for options in ({}, {"epsilon": 0.0}):
        if set(options) <= set(ESTIMATORS[name].options):
            try:
                out = estimate(name, rows, labels, weights, **options)
            except ValueError as error:
                assert "beyond float32" in str(error)  # noqa: PT017
            else:
                assert out.advantages.isfinite().all()


@pytest.mark.parametrize("whitening", ["completions", "tokens"])
@pytest.mark.parametrize("weight", [1e-3, 1e10, 1e250])
def test_gdpo_is_free_of_the_weights_scale(whitening, weight):
    """Up to ε, whatever the squares do."""
    rows, labels, lengths = [[0.0], [1.0], [3.0], [4.0], [9.0]], [0, 0, 1, 1, 1], [1, 2, 3, 4, 5]
    unit = estimate("gdpo", rows, labels, [1.0], lengths, whitening=whitening).advantages
    found = estimate("gdpo", rows, labels, [weight], lengths, whitening=whitening).advantages
    torch.testing.assert_close(found, unit, rtol=0.2 if weight < 1 else 1e-3, atol=0)

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corrgrpo_envs import RewardComponent, RewardSpec

NUMBER = st.floats(-1e6, 1e6)
NAMES = st.lists(st.text(st.characters(codec="ascii", categories=["L"]), min_size=1), min_size=1, unique=True)


@st.composite
def specs(draw):
    names = draw(NAMES.filter(lambda names: not {"episode"} & set(names)))
    return RewardSpec([RewardComponent(name, draw(st.sampled_from([0, 1, 0.5, -2.0, 0.3]))) for name in names])


@given(specs(), st.data())
def test_total_is_the_exact_weighted_sum(spec, data):
    values = {name: data.draw(NUMBER) for name in spec.names}
    exact = sum((Fraction(spec.weights[n]) * Fraction(values[n]) for n in spec.names), Fraction(0))
    size = sum(abs(spec.weights[n] * values[n]) for n in spec.names)
    assert spec.total(values) == pytest.approx(float(exact), abs=1e-15 * size)
    assert type(spec.total(values)) is float


@given(specs(), st.data())
def test_total_is_nan_exactly_where_a_weighted_component_is(spec, data):
    values = {name: data.draw(st.sampled_from([math.nan, 1.0])) for name in spec.names}
    expected = any(math.isnan(values[name]) and spec.weights[name] != 0 for name in spec.names)
    assert math.isnan(spec.total(values)) == expected


@given(specs(), st.data())
def test_vector_keeps_the_order(spec, data):
    values = {name: data.draw(st.floats(width=32, allow_infinity=False)) for name in reversed(spec.names)}
    vector = spec.vector(spec.check(values))
    assert vector.dtype == np.float32
    np.testing.assert_array_equal(vector, np.array([values[name] for name in spec.names], dtype=np.float32))
    assert spec.vector(values) is not spec.vector(values)


@given(specs(), st.data())
def test_other_weights_change_only_what_is_named(spec, data):
    changed = data.draw(st.dictionaries(st.sampled_from(spec.names), st.floats(-10, 10)))
    other = spec.with_weights(changed)
    assert other.weights == {**spec.weights, **changed}
    assert other.names == spec.names
    assert (other == spec) == (other.weights == spec.weights)
    assert pickle.loads(pickle.dumps(other)) == other
    assert hash(spec.with_weights({})) == hash(spec.with_weights(None)) == hash(spec)


def test_members():
    a, b = RewardComponent("a", 2, -1, 1, "the first"), RewardComponent("b", low=-3, high=0)
    spec = RewardSpec([a, b])
    assert list(spec) == [a, b]
    assert len(spec) == 2
    assert spec["a"] is a
    assert "a" in spec
    assert b in spec
    assert "c" not in spec
    assert spec.weights == {"a": 2.0, "b": 1.0}
    assert type(spec["a"].weight) is float
    assert spec.zeros() == {"a": 0.0, "b": 0.0}
    assert all(value is math.nan for value in spec.unscored().values())
    assert repr(spec) == "RewardSpec(a=2, b=1)"
    with pytest.raises(ValueError, match="reward component 'aa' is unknown; allowed: 'a', 'b'"):
        spec["aa"]
    spec.weights["a"] = 5.0
    assert spec.weights["a"] == 2.0
    with pytest.raises(AttributeError):
        a.weight = 3.0


def test_the_space_holds_the_ranges_and_zero():
    space = RewardSpec([RewardComponent("a", low=1, high=2), RewardComponent("b", low=-1.5, high=-0.5)]).space()
    assert (space.low.tolist(), space.high.tolist()) == ([0.0, -1.5], [2.0, 0.0])
    assert (space.dtype, space.shape) == (np.float32, (2,))
    assert np.zeros(2, dtype=np.float32) in space


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": ""}, "name"),
        ({"name": "_x"}, "does not start with '_'"),
        ({"name": "episode"}, "episode"),
        ({"name": 3}, "name"),
        ({"name": "x", "weight": math.nan}, "the weight of reward component 'x'"),
        ({"name": "x", "weight": math.inf}, "the weight of reward component 'x'"),
        ({"name": "x", "weight": "1"}, "the weight of reward component 'x'"),
        ({"name": "x", "weight": None}, "the weight of reward component 'x'"),
        ({"name": "x", "weight": True}, "the weight of reward component 'x'"),
        ({"name": "x", "low": -math.inf}, "the low of reward component 'x'"),
        ({"name": "x", "high": 1e39}, "the high of reward component 'x'"),
        ({"name": "x", "low": 2.0}, "ordered"),
    ],
)
def test_wrong_components(arguments, words):
    with pytest.raises(ValueError, match=words):
        RewardComponent(**arguments)


def test_wrong_specs():
    with pytest.raises(ValueError, match="at least one"):
        RewardSpec([])
    with pytest.raises(ValueError, match=r"twice: \['x'\]"):
        RewardSpec([RewardComponent("x"), RewardComponent("x", 2.0)])


def test_totals_that_overflow_raise():
    spec = RewardSpec([RewardComponent("a", 1e38), RewardComponent("b", 1e38)])
    for values in ({"a": 1e308, "b": 0}, {"a": 1e308, "b": -1e308}):
        with pytest.raises(RuntimeError, match="not finite"):
            spec.total(values)
    assert spec.total({"a": 1e200, "b": -1e200}) == 0.0

"""What is compared: crossing, seeds, sweeps."""

import pytest

from corrgrpo_train.benchmark.plan import make_plan, parse_seeds, parse_sweep, swept
from corrgrpo_train.errors import UsageError


def test_methods_objectives_and_sweep_values_are_crossed():
    plan = make_plan(["grpo", "mine:soft"], [0, 1], ["grpo", "cispo"], {"scale": [1, 5], "steps": [2]})
    assert len(plan.cells) == 2 * 2 * 2
    assert plan.baseline == "grpo"
    assert {tuple(cell.sweep.items()) for cell in plan.cells} == {
        (("scale", 1), ("steps", 2)),
        (("scale", 5), ("steps", 2)),
    }
    assert {cell.method_name for cell in plan.cells} == {"grpo", "soft"}
    assert make_plan(["grpo", "mine:soft"], [0], baseline="mine:soft").baseline == "soft"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([], [0]), "methods must name"),
        ((["grpo"], []), "seeds must name"),
        ((["grpo", "a:grpo"], [0]), "methods name 'grpo' twice"),
        ((["grpo"], [1, 1]), "seeds name 1 twice"),
        ((["grpo", "gdpo"], [0], ["grpo"], {}, "gdop"), "Did you mean 'gdpo'"),
    ],
)
def test_wrong_plans(arguments, words):
    with pytest.raises(UsageError, match=words):
        make_plan(*arguments)


def test_seeds():
    assert parse_seeds("3") == [0, 1, 2]
    assert parse_seeds("3,5") == [3, 5]
    assert parse_seeds("7,") == [7]
    for wrong in ("", "0", "-1", "two", "1.5", "3,-1"):
        with pytest.raises(UsageError, match="seeds must be"):
            parse_seeds(wrong)


def test_sweeps():
    assert parse_sweep("scale=1,2.5,1e-6") == ("scale", [1, 2.5, 1e-6])
    assert parse_sweep("scales=[1, 1, 5],[1, 1, 1]") == ("scales", [[1, 1, 5], [1, 1, 1]])
    assert parse_sweep("group-size=4,8") == ("group_size", [4, 8])
    for wrong in ("scale", "=1", "scale=", "scale=[1", "scale=1,1"):
        with pytest.raises(UsageError, match="sweep"):
            parse_sweep(wrong)


def test_swept_values_find_their_places():
    settings = {"env": "CorrelatedBandit-v0", "env_args": {"noise": 0.5}}
    point = {"scale": 5, "components": 4, "learning_rate": 2.0, "method_args.epsilon": 0.1, "correlation": 0.2}
    assert swept(settings, point) == {
        "env": "CorrelatedBandit-v0",
        "env_args": {"noise": 0.5, "components": 4, "scales": [1.0, 1.0, 1.0, 5], "correlation": 0.2},
        "learning_rate": 2.0,
        "method_args": {"epsilon": 0.1},
    }
    assert settings["env_args"] == {"noise": 0.5}


@pytest.mark.parametrize(
    ("env", "name", "words"),
    [
        ("CorrelatedBandit-v0", "corelation", "Did you mean 'correlation'"),
        ("RLLA-v0", "scale", "neither a setting nor an argument"),
        ("RLLA-v0", "seed", "not swept"),
    ],
)
def test_unknown_sweeps(env, name, words):
    with pytest.raises(UsageError, match=words):
        swept({"env": env}, {name: 1})

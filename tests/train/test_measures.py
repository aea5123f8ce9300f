import math

import pytest
import torch

from corrgrpo_train.advantages import estimate
from corrgrpo_train.measures import flat_diagnostics, mean, spread, step_metrics, summary
from corrgrpo_train.rollout import Episode, TokenSequence

NAN = math.nan


def episode(group, a, b, *, status="ok", length=3):
    tokens = TokenSequence([1, 2] + [3] * length, [False] * 2 + [True] * length, [0.0] * (2 + length))
    found = Episode(group, 0, "t", tokens, {"a": a, "b": b}, {"a": 1.0, "b": 2.0}, a + 2 * b, status)
    found.metrics = {"exact": a}
    return found


EPISODES = [
    episode(0, 1.0, 0.0),
    episode(0, 0.0, 1.0, length=7),
    episode(1, 1.0, 1.0),
    episode(1, NAN, 0.0, status="x"),
]


def test_mean_and_spread_pass_over_what_is_not_known():
    assert mean([1.0, NAN, 3.0]) == 2.0
    assert math.isnan(mean([NAN]))
    assert math.isnan(mean([]))
    assert spread([1.0, NAN, 3.0]) == pytest.approx(math.sqrt(2))
    assert spread([5.0]) == 0.0


def test_summary():
    found = summary(EPISODES)
    assert found["reward"] == pytest.approx((1 + 2 + 3) / 3)
    assert found["components/a"] == pytest.approx(2 / 3)
    assert found["components/b"] == 0.5
    assert found["failed"] == 1


def test_step_metrics():
    components = torch.tensor([[e.components["a"], e.components["b"]] for e in EPISODES])
    result = estimate("corrgrpo", components, torch.tensor([0, 0, 1, 1]), torch.tensor([1.0, 2.0]))
    found = step_metrics(EPISODES, ["a", "b"], result, {"loss/policy": 0.5})
    assert found["reward/mean"] == 2.0
    assert found["reward/std"] == 1.0
    assert found["components/a/std"] == pytest.approx(math.sqrt(1 / 3))
    assert found["tokens/completion_mean"] == 4.0
    assert found["tokens/completion_max"] == 7.0
    assert found["tokens/prompt_mean"] == 2.0
    assert found["episodes/status/ok"] == 3
    assert found["episodes/status/x"] == 1
    assert found["episodes/failed"] == 1
    assert found["loss/policy"] == 0.5
    assert all(isinstance(value, float) for value in found.values())
    assert any(name.startswith("estimator/") for name in found)


def test_nothing_scored():
    failed = Episode(0, 0, "t", status="environment_error", reward=NAN)
    failed.tokens.add_given([1])
    found = step_metrics([failed], [], None, {})
    assert math.isnan(found["reward/mean"])
    assert found["episodes/failed"] == 1
    assert found["tokens/completion_mean"] == 0


def test_diagnostics_get_flat_names():
    found = flat_diagnostics(
        {
            "share_without_signal": 0.5,
            "group": torch.tensor([3, 4, 5, 6]),
            "denominator": torch.tensor([1.0, NAN, 3.0, math.inf]),
            "constant_share": torch.tensor([0.1, 0.2]),
            "correlation": torch.tensor([[1.0, 0.3], [0.3, 1.0]]),
        },
        ["a", "b"],
    )
    assert found == {
        "estimator/share_without_signal": 0.5,
        "estimator/denominator": 2.0,
        "estimator/constant_share/a": pytest.approx(0.1),
        "estimator/constant_share/b": pytest.approx(0.2),
        "estimator/correlation/a/b": pytest.approx(0.3),
    }

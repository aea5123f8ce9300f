"""The table policy: it learns, methods meet equal random numbers, seeds are independent."""

import numpy as np
import pytest
import torch

from corrgrpo_envs.synthetic import CorrelatedBandit
from corrgrpo_train.advantages import ESTIMATORS, estimate
from corrgrpo_train.bandit_policy import _advantages, train_bandit
from corrgrpo_train.objectives import OBJECTIVES

torch.set_num_threads(1)


@pytest.mark.parametrize("method", ESTIMATORS)
def test_every_estimator_learns_the_best_arms(method):
    run = train_bandit(method, seeds=range(3), steps=400, env_args={"correlation": 0.3})
    assert run.best_arm[:, 0].tolist() == pytest.approx([1 / 8] * 3)
    assert (run.best_arm[:, -1] > 0.5).all()
    assert (run.reward[:, -1] > run.reward[:, 0] + 1).all()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_every_objective_and_optimizer_learns(objective, optimizer):
    rate = {"sgd": 8.0, "adamw": 0.05}[optimizer]
    run = train_bandit(
        "grpo", objective, [0, 1], steps=300, learning_rate=rate, optimizer=optimizer, updates_per_rollout=4
    )
    assert (run.best_arm[:, -1] > 0.4).all()


def test_a_divergence_penalty_keeps_the_policy_near_the_first():
    free, held = (train_bandit("grpo", seeds=[0, 1], steps=200, kl_coefficient=c) for c in (0.0, 2.0))
    assert free.kl[:, 0].tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    assert (held.kl[:, -1] < 0.5 * free.kl[:, -1]).all()


@pytest.mark.parametrize("method", ["corrgrpo", "gdpo", "shuffled"])
def test_a_seed_does_not_depend_on_the_others(method):
    together = train_bandit(method, seeds=[3, 5, 9], steps=30, env_args={"noise": 0.5})
    alone = train_bandit(method, seeds=[5], steps=30, env_args={"noise": 0.5})
    torch.testing.assert_close(together.logits[1:2], alone.logits)
    assert not torch.equal(together.logits[0], together.logits[1])


@pytest.mark.parametrize("method", ESTIMATORS)
def test_advantages_are_those_of_estimate(method):
    """Seed by seed, against the public way in."""
    bandit = CorrelatedBandit(components=3, reward_weights={"reward_2": 0.0, "reward_3": -0.5})
    paid = torch.randn(2, 3, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = _advantages(method, paid, bandit, {}, 7, [0, 1])
    for seed in range(2):
        options = {"seed": seed * 1_000_003 + 7} if "seed" in ESTIMATORS[method].options else {}
        groups = torch.arange(3).repeat_interleave(4)
        expected = estimate(method, paid[seed].flatten(0, 1), groups, [1.0, 0.0, -0.5], **options).advantages
        torch.testing.assert_close(found[seed].flatten(), expected)


def test_measurements_are_exact():
    run = train_bandit(seeds=[4], steps=20, measure_every=7)
    assert run.steps == [0, 7, 14, 20]
    env = CorrelatedBandit(split="all")
    probabilities = run.logits[0].double().softmax(dim=-1).numpy()
    totals = [
        sum(p * np.array(row) for p, row in zip(task_probabilities, task.data, strict=True))
        for task_probabilities, task in zip(probabilities, env.tasks, strict=True)
    ]
    np.testing.assert_allclose(run.components[0, -1].numpy(), np.mean(totals, axis=0))
    assert run.reward[0, -1].item() == pytest.approx(np.mean(totals, axis=0).sum())
    assert run.step_size.shape == (1, 4)
    assert (run.step_size[:, 1:] > 0).all()


def test_equal_seeds_pull_the_same_first_arms_under_every_method():
    """GRPO's advantages are Dr. GRPO's over the group's spread: after one SGD step one factor lies between tables."""
    runs = [train_bandit(m, seeds=[0], steps=1, groups_per_step=1).logits[0] for m in ("grpo", "dr_grpo")]
    moved = [run.abs().sum(dim=1).nonzero().flatten().tolist() for run in runs]
    assert moved[0] == moved[1]
    ratio = (runs[0] / runs[1])[runs[1].abs() > 1e-4]
    assert len(ratio) > 2
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio), rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "corgrpo"}, "Did you mean 'corrgrpo'"),
        ({"objective": "ppo"}, "objective 'ppo' is unknown"),
        ({"optimizer": "adam"}, "Did you mean 'adamw'"),
        ({"groups_per_step": 65}, "groups_per_step must be from 1 to the 64 tasks"),
        ({"updates_per_rollout": 9}, "updates_per_rollout must be from 1 to groups_per_step"),
        ({"method_args": {"epsilonn": 1}}, "Did you mean 'epsilon'"),
        ({"env_args": {"difficulty": 2}}, "difficulty must be"),
    ],
)
def test_wrong_options(options, words):
    with pytest.raises(ValueError, match=words):
        train_bandit(**{"steps": 1, **options})

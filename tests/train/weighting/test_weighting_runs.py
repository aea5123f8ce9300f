"""Weightings in whole runs: logged, checkpointed, resumed bit for bit; the gradients behind `gradient`."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import rollout_envs  # noqa: F401  (registers the environments)
import torch

from corrgrpo_train.cli import main
from corrgrpo_train.component_gradients import gradient_products, layer_parameters
from corrgrpo_train.config import Config
from corrgrpo_train.errors import UsageError
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout.episode import Episode
from corrgrpo_train.weighting import WEIGHTINGS, Weighting, make_rule

ROOT = Path(__file__).parents[3]
RUN = [
    *("--env", "rollout_envs:rollout/Toy-v0", "--model", "tiny", "--groups-per-step", "2", "--group-size", "4"),
    *("--max-new-tokens", "6", "--max-prompt-tokens", "600", "--learning-rate", "1e-3", "--validation-tasks", "2"),
    *("--validation-every", "1", "--checkpoint-every", "2", "--threads", "1", "--no-tensorboard"),
]
ARGUMENTS = {
    "lagrangian": {"at_least": {"letters": 0.5}},
    "linear": {"to": {"short": 2.0}, "end": 3},
    "piecewise": {"points": {"letters": [[1, 0.0], [4, 3.0]]}},
}


def rows(run):
    return [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]


def arguments(name):
    return ["--weighting", name, "--weighting-args", json.dumps(ARGUMENTS.get(name, {}))]


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_a_resumed_run_has_the_same_weights(tmp_path, name):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert main([*RUN, *arguments(name), "--steps", "4", "--output", str(whole)]) == 0
    assert main([*RUN, *arguments(name), "--steps", "2", "--output", str(cut)]) == 0
    assert main([*RUN, *arguments(name), "--steps", "4", "--output", str(cut), "--resume"]) == 0
    trained = [row for row in rows(whole) if "reward/mean" in row]
    assert trained == [row for row in rows(cut) if "reward/mean" in row]
    for row in trained:
        assert row["weights/base/letters"] == 1.0
        assert row["weights/base/short"] == 0.5
        # Rewards are paid under base weights; the estimator's total is under the effective ones.
        means = {component: row[f"components/{component}/mean"] for component in ("letters", "short")}
        assert row["reward/mean"] == pytest.approx(means["letters"] + 0.5 * means["short"])
        effective = {component: row[f"weights/effective/{component}"] for component in means}
        assert row["reward/effective_mean"] == pytest.approx(sum(effective[c] * means[c] for c in means))
    changes = {tuple(row[f"weights/effective/{c}"] for c in ("letters", "short")) for row in trained}
    assert (len(changes) == 1) == (name == "fixed")
    for row in rows(whole):
        if "validation/reward" in row:
            expected = row["validation/components/letters"] + 0.5 * row["validation/components/short"]
            assert row["validation/reward"] == pytest.approx(expected)


@pytest.mark.slow
def test_two_processes_have_the_weights_of_one(tmp_path):
    """The first computes the gradients, both have the same weights: else their policies would part."""
    one, two = tmp_path / "one", tmp_path / "two"
    settings = [*RUN, "--autocast", "off", "--weighting", "gradient", "--weighting-args.mu", "0.01", "--steps", "2"]
    assert main([*settings, "--output", str(one)]) == 0
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*start, "-m", "corrgrpo_train", *settings, "--output", str(two)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/train'}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    found, expected = rows(two), rows(one)
    assert len(found) == len(expected)
    for mine, row in zip(found, expected, strict=True):
        for name in row:
            if name.startswith(("weights/", "reward/")):
                assert mine[name] == pytest.approx(row[name], rel=1e-3, abs=1e-4), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--weighting", "lagrange"], "Did you mean 'lagrangian'?"),
        (["--weighting", "lagrangian"], "needs a threshold"),
        (["--weighting", "nowhere_at_all:mine"], "No module named 'nowhere_at_all'"),
        (["--weighting", "hypervolume", "--validation-tasks", "0"], "learns from validations"),
        (["--weighting", "gradient", "--sharding", "fsdp"], "use --sharding none"),
        (
            ["--env", "RLLA-v0", "--weighting", "lagrangian", "--weighting-args.at_least", '{"fromat": 1}'],
            "component 'fromat' is unknown; allowed: 'function_name'",
        ),
        (
            ["--weighting", "linear", "--weighting-args", '{"to": {"shrot": 1}, "end": 5}'],
            "Did you mean 'short'?",
        ),
    ],
)
def test_settings_that_cannot_work_are_told_in_one_line(tmp_path, capsys, change, message):
    assert main([*RUN, "--steps", "1", "--output", str(tmp_path / "run"), *change]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert message in error


def test_a_damaged_state_is_told(tmp_path, capsys):
    run = tmp_path / "run"
    assert main([*RUN, *arguments("lagrangian"), "--steps", "1", "--output", str(run)]) == 0
    state = run / "checkpoints/step_000001/state.json"
    content = json.loads(state.read_text())
    content["state"]["weighting"] = {"recent": {}}
    state.write_text(json.dumps(content))
    marker = run / "checkpoints/step_000001/COMPLETE"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "state.json": state.stat().st_size}))
    capsys.readouterr()
    assert main(["--output", str(run), "--resume", "--steps", "2"]) == 2
    assert "the weighting's state must have" in capsys.readouterr().err


def episode(group, components, tokens=(), weights=None):
    one = Episode(group, 0, "t", components=components, weights=weights or dict.fromkeys(components, 1.0))
    one.tokens.add_given([1, 2, 3])
    one.tokens.add_sampled(tuple(tokens) or (4,), (0.0,) * (len(tokens) or 1))
    return one


def test_a_constraint_on_a_component_of_weight_zero_decides_who_counts():
    """Under the effective weights a missing cost makes an episode invalid; under the base weights it did not."""
    weighting = Weighting(make_rule("lagrangian", {"at_most": {"cost": 0.1}}))
    base = {"reward": 1.0, "cost": 0.0}
    episodes = [episode(0, {"reward": 1.0, "cost": cost}, weights=base) for cost in (0.0, math.nan)]
    assert all(one.valid for one in episodes)
    measures = weighting.weigh(episodes, 1)
    assert [one.valid for one in episodes] == [True, False]
    assert measures["weights/base/cost"] == 0.0
    assert measures["weights/effective/cost"] == -0.5
    assert measures["reward/effective_mean"] == 0.5


def test_a_component_that_only_the_first_step_shows_to_be_missing():
    weighting = Weighting(make_rule("linear", {"to": {"csot": 1.0}, "end": 3}))
    with pytest.raises(UsageError, match=r"component 'csot' is unknown.*Did you mean 'cost'"):
        weighting.weigh([episode(0, {"reward": 1.0, "cost": 0.0})], 1)


def test_weights_that_differ_between_episodes_are_refused():
    weighting = Weighting(make_rule("fixed", {}))
    episodes = [episode(0, {"a": 1.0}, weights={"a": weight}) for weight in (1.0, 2.0)]
    with pytest.raises(UsageError, match="differ between episodes"):
        weighting.weigh(episodes, 1)


def test_products_are_those_of_the_components_own_gradients(tiny):
    """Against one plain backward pass per component, without packing."""
    model, _ = tiny
    policy = Policy(model)
    config = Config(env="RLLA-v0", method="dr_grpo", aggregation="token", token_budget=40)
    values = [(0, 1.0, 0.0), (0, 0.0, 2.0), (1, 1.0, 1.0), (1, 0.0, 0.0), (1, 0.5, 0.0)]
    episodes = [
        episode(group, {"a": a, "b": b, "unused": 9.0 * a}, tokens=[5 + i, 6, 7][: 1 + i % 3])
        for i, (group, a, b) in enumerate(values)
    ]
    base = {"a": 2.0, "b": -0.1, "unused": 0.0}
    found = gradient_products(policy, episodes, base, config, 1, layers=(1, 1))
    parameters = [p for name, p in model.named_parameters() if ".layers.1." in name]
    total_tokens = sum(e.tokens.completion_length for e in episodes)
    gradients = []
    for name, sign in (("a", 1.0), ("b", -1.0)):
        means = {g: [e.components[name] for e in episodes if e.group == g] for g in (0, 1)}
        loss = 0.0
        for e in episodes:
            advantage = sign * (e.components[name] - sum(means[e.group]) / len(means[e.group]))
            ids = torch.tensor([e.tokens.token_ids])
            logprobs = model(input_ids=ids).logits.log_softmax(-1)[0, 2:-1].gather(-1, ids[0, 3:, None])
            loss = loss + advantage * logprobs.sum() / total_tokens
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]).double())
    expected = {n: float(g @ (gradients[0] + gradients[1])) for n, g in zip(("a", "b"), gradients, strict=True)}
    assert found == pytest.approx(expected, rel=1e-3)
    assert all(p.grad is None for p in model.parameters())


def test_the_published_layers(tiny):
    class Deep(torch.nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.embed = torch.nn.Linear(1, 1, bias=False)
            self.layers = torch.nn.ModuleList(torch.nn.Linear(1, 1, bias=False) for _ in range(depth))

    model = Deep(36)
    assert [id(p) for p in layer_parameters(model, None)] == [id(layer.weight) for layer in model.layers[10:26]]
    assert [id(p) for p in layer_parameters(model, (3, 4))] == [id(layer.weight) for layer in model.layers[3:5]]
    assert len(layer_parameters(Deep(0), None)) == 1

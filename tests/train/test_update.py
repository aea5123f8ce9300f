import math

import pytest
import torch

from corrgrpo_train.config import Config
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout.episode import TokenSequence
from corrgrpo_train.update import Sample, update

LENGTHS = (3, 5, 1, 4, 2, 6)
ADVANTAGES = (1.0, -2.0, 0.0, 0.5, 0.0, -0.25)


def sequences(model):
    found = []
    for number, length in enumerate(LENGTHS):
        prompt = [10 + number // 2, 11, 12]
        tokens = prompt + [(7 * number + 3 * i) % 200 + 3 for i in range(length)]
        sequence = TokenSequence(tokens, [False] * 3 + [True] * length, [0.0] * (3 + length))
        found.append(sequence)
    return found


def samples(model, advantages=ADVANTAGES):
    return [Sample(s, n // 2, a) for n, (s, a) in enumerate(zip(sequences(model), advantages, strict=True))]


class Recorder(torch.optim.SGD):
    """Keeps each update's gradient; a learning rate of 0 leaves the policy as it is."""

    def __init__(self, model, lr=0.0):
        super().__init__(model.parameters(), lr=lr)
        self.gradients, self.rates = [], []

    def step(self, closure=None):
        gradient = [p.grad.flatten() for group in self.param_groups for p in group["params"]]
        self.gradients.append(torch.cat(gradient))
        self.rates.append(self.param_groups[0]["lr"])
        super().step(closure)


def config(**settings):
    return Config(**{"env": "x", "max_grad_norm": 1e9, "learning_rate": 0.0, **settings})


def run(model, settings, advantages=ADVANTAGES, done=0):
    recorder = Recorder(model)
    metrics = update(
        Policy(model, share_prompts=settings.shared_prompts), recorder, samples(model, advantages), settings, done=done
    )
    return recorder, metrics


def expected_gradient(model, weight_of, chosen=(0, 1, 2, 3, 4, 5)):
    """Independent: the policy gradient Σ −w_t A ∇log π, one plain forward pass per sequence."""
    model.zero_grad()
    for number in chosen:
        sequence = sequences(model)[number]
        logits = model(torch.tensor([sequence.token_ids[:-1]])).logits[0, 2:]
        logprobs = torch.log_softmax(logits, -1).gather(1, torch.tensor(sequence.token_ids[3:]).unsqueeze(1))
        (-ADVANTAGES[number] * weight_of(LENGTHS[number]) * logprobs).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


WEIGHTS = {
    "sequence": lambda length: 1 / (len(LENGTHS) * length),
    "token": lambda length: 1 / sum(LENGTHS),
    "constant": lambda length: 1 / (len(LENGTHS) * 50),
}


@pytest.mark.parametrize("aggregation", WEIGHTS)
@pytest.mark.parametrize(("budget", "shared"), [(1, True), (20, True), (20, False), (10_000, True)])
def test_the_gradient_is_the_policy_gradient_whatever_the_pieces(tiny, aggregation, budget, shared):
    model, _ = tiny
    settings = config(aggregation=aggregation, aggregation_length=50, token_budget=budget, shared_prompts=shared)
    recorder, metrics = run(model, settings)
    expected = expected_gradient(model, WEIGHTS[aggregation])
    assert torch.allclose(recorder.gradients[0], expected, rtol=1e-3, atol=1e-5 * expected.abs().max())
    # At ratio 1 the loss is −Σ w A over tokens, sequences of advantage 0 included in the weights.
    total = -sum(a * n * WEIGHTS[aggregation](n) for a, n in zip(ADVANTAGES, LENGTHS, strict=True))
    assert metrics["loss/policy"] == pytest.approx(total, rel=1e-5)
    assert metrics["policy/ratio_mean"] == 1.0
    assert metrics["policy/clip_share"] == 0.0
    assert metrics["tokens/trained"] == sum(n for a, n in zip(ADVANTAGES, LENGTHS, strict=True) if a)
    assert metrics["policy/grad_norm"] == pytest.approx(float(expected.norm()), rel=1e-3)


def test_several_updates_take_whole_groups_in_turn(tiny):
    model, _ = tiny
    recorder, metrics = run(model, config(updates_per_rollout=3, aggregation="constant", aggregation_length=50))
    assert len(recorder.gradients) == 3
    for part, gradient in enumerate(recorder.gradients):
        expected = expected_gradient(model, lambda _: 1 / (2 * 50), (2 * part, 2 * part + 1))
        assert torch.allclose(gradient, expected, rtol=1e-3, atol=1e-5 * expected.abs().max())
    # At ratio 1 the loss of an update is −Σ w A over its tokens; what is logged is the mean of the three.
    losses = [-a * n / (2 * 50) for a, n in zip(ADVANTAGES, LENGTHS, strict=True)]
    assert metrics["loss/policy"] == pytest.approx(sum(losses) / 3, rel=1e-5)


def plain_logprobs(model, sequence):
    """Independent: one plain forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([sequence.token_ids[:-1]])).logits[0, 2:].double()
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(sequence.token_ids[3:]).unsqueeze(1)).squeeze(1)


def test_later_updates_compare_with_the_policy_that_sampled(tiny):
    model, _ = tiny
    groups = samples(model)
    second = [s.tokens for s in groups if s.group == 2 and s.advantage]
    before = [plain_logprobs(model, s) for s in second]

    class Half(Recorder):
        """Takes the first step only, so that the policy of the second update can be looked at afterwards."""

        def step(self, closure=None):
            super().step(closure)
            for group in self.param_groups:
                group["lr"] = 0.0
            self.after = [plain_logprobs(model, s) for s in second] if len(self.gradients) == 1 else self.after

    recorder = Half(model)
    settings = config(updates_per_rollout=2, learning_rate=0.5, clip_low=1.0, clip_high=1e6)
    metrics = update(Policy(model), recorder, groups, settings, done=0)
    # Groups 0 and 1 make the first update (ratio 1), group 2 the second, on the policy that the first left.
    ratios = [torch.exp(new - old) for new, old in zip(recorder.after, before, strict=True)]
    first = sum(n for a, n in zip(ADVANTAGES[:4], LENGTHS[:4], strict=True) if a)
    total = first + float(sum(r.sum() for r in ratios))
    assert metrics["policy/ratio_mean"] == pytest.approx(total / metrics["tokens/trained"], rel=1e-4)
    assert metrics["policy/ratio_mean"] != 1.0


def test_nothing_to_learn_leaves_everything_alone(tiny):
    model, _ = tiny
    weights = [p.clone() for p in model.parameters()]
    recorder, metrics = run(model, config(learning_rate=1.0), advantages=(0.0,) * 6)
    assert recorder.gradients == []
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    assert metrics["tokens/trained"] == 0
    assert math.isnan(metrics["loss/policy"])
    assert math.isnan(metrics["policy/grad_norm"])


def test_no_samples_at_all(tiny):
    model, _ = tiny
    metrics = update(Policy(model), Recorder(model), [], config(updates_per_rollout=2), done=0)
    assert metrics["tokens/trained"] == 0


def test_learning_rate_warm_up_goes_on_over_steps(tiny):
    model, _ = tiny
    settings = config(learning_rate=1e-9, warmup_steps=4, updates_per_rollout=3)
    assert run(model, settings, done=0)[0].rates == pytest.approx([0.25e-9, 0.5e-9, 0.75e-9])
    assert run(model, settings, done=3)[0].rates == pytest.approx([1e-9] * 3)


def test_a_gradient_that_is_not_finite_is_thrown_away(tiny):
    model, _ = tiny
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    settings = config(learning_rate=0.1)
    recorder, metrics = run(model, settings, advantages=[math.inf, *ADVANTAGES[1:]])
    assert recorder.gradients == []
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert all(weight.grad is None for weight in model.parameters())
    assert metrics["policy/updates_skipped"] == 1
    assert math.isnan(metrics["policy/grad_norm"])
    _, metrics = run(model, settings)
    assert metrics["policy/updates_skipped"] == 0


def test_gradients_are_clipped_by_norm(tiny):
    model, _ = tiny
    recorder, metrics = run(model, config(max_grad_norm=1e-3))
    assert float(recorder.gradients[0].norm()) == pytest.approx(1e-3, rel=1e-2)
    assert metrics["policy/grad_norm"] > 1e-3

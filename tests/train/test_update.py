import math

import pytest
import torch

from corrgrpo_train.advantages import ESTIMATORS, estimate
from corrgrpo_train.config import Config
from corrgrpo_train.objectives import OBJECTIVES
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


# ---- KL, entropy, importance, objectives -----------------------------------------------------------------


def perturbed(model, seed=3, size=0.05):
    """Move every weight a little and say where it was."""
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += size * torch.randn(weight.shape, generator=random)
    return before


def row_of(model, sequence):
    """Log-probabilities and entropies of a sequence's sampled tokens by one plain forward pass."""
    table = torch.log_softmax(model(torch.tensor([sequence.token_ids[:-1]])).logits[0, 2:], -1)
    targets = torch.tensor(sequence.token_ids[3:]).unsqueeze(1)
    return table.gather(1, targets).squeeze(1), -(table.exp() * table).sum(1)


@pytest.mark.parametrize("aggregation", WEIGHTS)
@pytest.mark.parametrize(("budget", "shared"), [(1, True), (20, False), (10_000, True)])
@pytest.mark.parametrize(("kl", "entropy"), [(0.3, 0.0), (0.0, 0.2), (0.3, 0.2)])
def test_kl_and_entropy_have_the_losses_normaliser_and_every_token(tiny, aggregation, budget, shared, kl, entropy):
    model, _ = tiny
    policy = Policy(model, share_prompts=shared)
    policy.freeze_reference()
    with torch.no_grad():
        references = [row_of(model, sequence)[0] for sequence in sequences(model)]
    perturbed(model)
    model.zero_grad()
    total = 0.0
    divergences = []
    for number, sequence in enumerate(sequences(model)):
        logprobs, entropies = row_of(model, sequence)
        difference = references[number] - logprobs
        divergence = difference.exp() - difference - 1
        divergences += divergence.tolist()
        terms = -ADVANTAGES[number] * (logprobs - logprobs.detach()).exp() + kl * divergence - entropy * entropies
        total = total + WEIGHTS[aggregation](LENGTHS[number]) * terms.sum()
    total.backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad()

    recorder = Recorder(model)
    settings = config(
        aggregation=aggregation,
        aggregation_length=50,
        token_budget=budget,
        kl_coefficient=kl,
        entropy_coefficient=entropy,
    )
    metrics = update(policy, recorder, samples(model), settings, done=0)
    assert torch.allclose(recorder.gradients[0], expected, rtol=1e-3, atol=1e-5 * expected.abs().max())
    # Episodes without an advantage take part: the terms concern them as well.
    assert metrics["tokens/trained"] == sum(LENGTHS)
    if kl:
        assert metrics["policy/kl"] == pytest.approx(sum(divergences) / sum(LENGTHS), rel=1e-3)
    else:
        assert "policy/kl" not in metrics


def test_without_kl_and_entropy_episodes_without_advantage_cost_no_backward_pass(tiny):
    model, _ = tiny
    _, metrics = run(model, config())
    assert metrics["tokens/trained"] == sum(n for a, n in zip(ADVANTAGES, LENGTHS, strict=True) if a)


def test_a_kl_term_needs_a_reference(tiny):
    model, _ = tiny
    with pytest.raises(RuntimeError, match="freeze_reference"):
        run(model, config(kl_coefficient=0.1))


@pytest.mark.parametrize(
    ("correction", "factors"), [("none", (1.0, 1.0)), ("truncate", (0.5, 1.6)), ("mask", (0.5, 0.0))]
)
def test_importance_weighs_tokens_and_leaves_the_normaliser(tiny, correction, factors):
    model, _ = tiny
    groups = samples(model)
    for sample in groups:
        own = plain_logprobs(model, sample.tokens).tolist()
        # The engine gave every other token twice the probability, the others half of it.
        sample.tokens.behaviour_logprobs = [0.0] * 3 + [p + math.log((2, 0.5)[i % 2]) for i, p in enumerate(own)]
    model.zero_grad()
    total = 0.0
    for number, sample in enumerate(groups):
        logprobs, _ = row_of(model, sample.tokens)
        weights = torch.tensor([factors[i % 2] for i in range(len(logprobs))])
        total = total - ADVANTAGES[number] * (weights * logprobs).sum() / sum(LENGTHS)
    total.backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad()
    recorder = Recorder(model)
    settings = config(aggregation="token", importance_correction=correction, importance_cap=1.6)
    metrics = update(Policy(model), recorder, groups, settings, done=0)
    assert torch.allclose(recorder.gradients[0], expected, rtol=1e-3, atol=1e-5 * expected.abs().max())
    live = [n for a, n in zip(ADVANTAGES, LENGTHS, strict=True) if a]
    mean = sum(factors[i % 2] for n in live for i in range(n)) / sum(live)
    assert metrics["policy/importance_mean"] == pytest.approx(mean, rel=1e-4)
    assert metrics["policy/engine_mismatch"] == pytest.approx(math.log(2), rel=1e-3)


def test_clip_shares_and_ratios_are_counted_by_side(tiny):
    """Group 2 is updated after the first step has moved the policy: its ratios are known from the outside."""
    model, _ = tiny
    groups = samples(model)
    second = [s.tokens for s in groups if s.group == 2 and s.advantage]
    before = [plain_logprobs(model, s) for s in second]
    after = []

    class First(Recorder):
        def step(self, closure=None):
            super().step(closure)
            if len(self.gradients) == 1:
                after.extend(plain_logprobs(model, s) for s in second)

    settings = config(updates_per_rollout=2, learning_rate=0.3, clip_low=0.0, clip_high=0.0)
    metrics = update(Policy(model), First(model), groups, settings, done=0)
    ratios = torch.cat([torch.exp(new - old) for new, old in zip(after, before, strict=True)])
    signs = torch.cat([torch.full((len(b),), s.advantage) for b, s in zip(before, groups[5:], strict=True)])
    tokens = metrics["tokens/trained"]
    high, low = ((ratios > 1) & (signs > 0)).sum(), ((ratios < 1) & (signs < 0)).sum()
    assert high + low > 0
    assert metrics["policy/clip_share_high"] == pytest.approx(float(high) / tokens)
    assert metrics["policy/clip_share_low"] == pytest.approx(float(low) / tokens)
    assert metrics["policy/clip_share"] == pytest.approx(float(high + low) / tokens)
    assert metrics["policy/ratio_max"] == pytest.approx(max(1.0, float(ratios.max())), rel=1e-4)
    assert metrics["policy/ratio_min"] == pytest.approx(min(1.0, float(ratios.min())), rel=1e-4)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_estimator_runs_with_every_objective(tiny, objective):
    model, _ = tiny
    start = {name: weight.clone() for name, weight in model.state_dict().items()}
    components = [[0, 0.3], [1, 0.1], [1, 0.9], [0, 0.8], [0, 0.2], [1, 0.7]]
    groups, lengths = [0, 0, 0, 1, 1, 1], list(LENGTHS)
    policy = Policy(model)
    for method in ESTIMATORS:
        model.load_state_dict(start)
        found = estimate(method, components, groups, [1.0, 0.5], lengths).advantages.tolist()
        rows = [Sample(s, g, a) for s, g, a in zip(sequences(model), groups, found, strict=True)]
        settings = config(objective=objective, updates_per_rollout=2, learning_rate=0.01, aggregation="token")
        metrics = update(policy, torch.optim.SGD(model.parameters()), rows, settings, done=0)
        assert metrics["policy/grad_norm"] > 0
        assert any(not torch.equal(weight, start[name]) for name, weight in model.state_dict().items())

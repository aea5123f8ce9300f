"""Log-probabilities and entropies of logits, against plain operations in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from corrgrpo_train.scoring import _token_scores

torch.set_num_threads(1)


def plain(logits, targets, temperature):
    logprobs = (logits / temperature).log_softmax(-1)
    shares = torch.where(logprobs.isinf(), 0.0, logprobs.exp() * logprobs)
    return logprobs.gather(-1, targets[:, None])[:, 0], -shares.sum(-1)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(0, 20),
    words=st.integers(1, 30),
    scale=st.sampled_from([0.01, 1.0, 30.0, 1000.0]),
    temperature=st.sampled_from([1.0, 0.3, 2.0]),
    bonus=st.booleans(),
)
def test_values_and_gradients(seed, rows, words, scale, temperature, bonus):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, words, generator=generator)
    targets = torch.randint(words, (rows,), generator=generator)
    factors = torch.randn(2, rows, generator=generator)
    factors[1] *= bonus
    exact, mine = logits.double().requires_grad_(), logits.clone().requires_grad_()
    expected = plain(exact, targets, temperature)
    found = _token_scores(torch.nn.Identity(), mine, targets, temperature, bonus)
    # float32 rounds logits of this size by so much.
    error = 1e-6 * (1 + scale / temperature) * 10
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, atol=error, rtol=1e-5)
    for scores in (found, expected):
        parts = zip(scores, factors.to(scores[0].dtype), strict=True)
        sum((score * factor).sum() for score, factor in parts if score.requires_grad).backward()
    torch.testing.assert_close(
        mine.grad.double(), exact.grad, atol=error * (1 + scale / temperature) / temperature, rtol=1e-3
    )


@pytest.mark.parametrize("bonus", [False, True])
def test_a_token_that_cannot_come_adds_nothing(bonus):
    logits = torch.tensor([[0.0, 0.0, -math.inf, 0.0]], requires_grad=True)
    logprobs, entropies = _token_scores(torch.nn.Identity(), logits, torch.tensor([1]), 1.0, bonus)
    assert logprobs.item() == pytest.approx(-math.log(3))
    assert entropies.item() == pytest.approx(math.log(3))
    (logprobs.sum() + (entropies.sum() if bonus else 0.0)).backward()
    # The entropy of equal probabilities is flat.
    torch.testing.assert_close(logits.grad, torch.tensor([[-1 / 3, 2 / 3, 0.0, -1 / 3]]))


def test_a_graph_can_be_used_twice():
    logits = torch.randn(3, 5, requires_grad=True)
    logprobs, _ = _token_scores(torch.nn.Identity(), logits, torch.tensor([1, 2, 0]), 1.0, False)
    (once,) = torch.autograd.grad(logprobs.sum(), logits, retain_graph=True)
    (again,) = torch.autograd.grad(logprobs.sum(), logits)
    torch.testing.assert_close(once, again, atol=0, rtol=0)

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from corrgrpo_train.engines.sampling import draw, uniforms


def test_draws_follow_the_distribution():
    # Evenly spaced uniforms must hit each token in proportion to its probability, up to one draw per token.
    probabilities = torch.tensor([0.5, 0.0, 0.2, 0.05, 0.25])
    count = 20_000
    grid = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens, logprobs = draw(probabilities.log().expand(count, -1), grid, 1.0)
    shares = torch.bincount(tokens, minlength=5) / count
    assert torch.allclose(shares, probabilities, atol=2 / count)
    assert torch.allclose(logprobs, probabilities.log()[tokens], atol=1e-6)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_temperature_divides_the_logits(temperature):
    logits = torch.tensor([[2.0, -1.0, 0.5, 3.0]])
    weights = [math.exp(value / temperature) for value in logits[0].tolist()]
    for uniform in (0.01, 0.4, 0.99):
        token, logprob = draw(logits, torch.tensor([uniform], dtype=torch.float64), temperature)
        cumulative = np.cumsum(weights) / sum(weights)
        assert token.item() == int(np.searchsorted(cumulative, uniform))
        assert logprob.item() == pytest.approx(math.log(weights[token.item()] / sum(weights)), abs=1e-6)


def test_greedy_takes_the_first_maximum_and_reports_temperature_one():
    logits = torch.tensor([[0.0, 4.0, 4.0], [1.0, 0.0, 0.0]])
    tokens, logprobs = draw(logits, torch.zeros(2, dtype=torch.float64), 0)
    assert tokens.tolist() == [1, 0]
    assert logprobs.tolist() == pytest.approx([-math.log(2 + math.exp(-4)), -math.log(1 + 2 * math.exp(-1))])


@given(
    logits=st.lists(st.floats(-200, 200) | st.just(-math.inf), min_size=1, max_size=30),
    uniform=st.sampled_from([0.0, 5e-324, 0.5, 1 - 2**-53]) | st.floats(0, 1, exclude_max=True),
    temperature=st.sampled_from([0.1, 1.0, 3.0]),
)
@settings(deadline=None, max_examples=300)
def test_an_impossible_token_is_never_drawn(logits, uniform, temperature):
    logits[0] = max(0.0, logits[0])
    token, logprob = draw(torch.tensor([logits]), torch.tensor([uniform], dtype=torch.float64), temperature)
    assert 0 <= token.item() < len(logits)
    assert logits[token.item()] > -math.inf
    assert math.isfinite(logprob.item())


def test_the_last_token_is_reachable_with_a_large_vocabulary():
    logits = torch.zeros(1, 50_000)
    token, _ = draw(logits, torch.tensor([1 - 2**-53], dtype=torch.float64), 1.0)
    assert token.item() == 49_999


def test_streams_belong_to_their_key():
    assert np.array_equal(uniforms((1, 2, 3), 10), uniforms((1, 2, 3), 10))
    assert np.array_equal(uniforms((1, 2, 3), 10)[:4], uniforms((1, 2, 3), 4))
    streams = [uniforms(key, 4).tolist() for key in [(1, 2, 3), (1, 3, 2), (0, 1, 2, 3), (1, 2, 3, 1)]]
    assert len({tuple(stream) for stream in streams}) == 4
    assert all(0 <= value < 1 for stream in streams for value in stream)

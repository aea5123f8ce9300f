"""Every estimator learns under every objective: a policy of a few numbers, two reward components, three seeds."""

import pytest
import torch

from corrgrpo_train.advantages import ESTIMATORS, estimate
from corrgrpo_train.objectives import AGGREGATIONS, OBJECTIVES

# Six answers; the two components agree on the last, the second is five times as large and has a rival.
COMPONENTS = torch.tensor([[0, 0], [0, 1], [0, 4], [1, 0], [0, 2], [1, 5]], dtype=torch.float64)
WEIGHTS = [1.0, 0.2]
TOTALS = COMPONENTS @ torch.tensor(WEIGHTS, dtype=torch.float64)
PROMPTS, SIZE = 4, 8
NAMES = sorted({estimator.name for estimator in ESTIMATORS.values()})


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("method", NAMES)
def test_learns(method, objective):
    for seed in range(3):
        random = torch.Generator().manual_seed(seed)
        logits = torch.zeros(PROMPTS, len(COMPONENTS), requires_grad=True)
        optimizer = torch.optim.Adam([logits], lr=0.15)
        groups = torch.arange(PROMPTS).repeat_interleave(SIZE)
        for _ in range(20):
            with torch.no_grad():
                table = torch.log_softmax(logits, 1)
                answers = torch.multinomial(table.exp(), SIZE, replacement=True, generator=random).flatten()
                old = table[groups, answers]
            lengths = torch.ones(len(answers), dtype=torch.long)
            advantages = estimate(method, COMPONENTS[answers], groups, WEIGHTS, lengths).advantages
            weights = AGGREGATIONS["token"](lengths, None).float()
            for _ in range(2):  # the second update is off the policy that sampled
                logprobs = torch.log_softmax(logits, 1)[groups, answers]
                optimizer.zero_grad()
                (OBJECTIVES[objective](logprobs, old, advantages).losses * weights).sum().backward()
                optimizer.step()
        reached = float((torch.softmax(logits.detach().double(), 1) @ TOTALS).mean())
        assert float(TOTALS.mean()) < 0.8
        assert reached > 1.5, f"seed {seed}"

"""Every estimator learns under every objective: a policy of a few numbers, two reward components, three seeds."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from corrgrpo_train.advantages import ESTIMATORS, estimate
from corrgrpo_train.config import Config
from corrgrpo_train.objectives import AGGREGATIONS, OBJECTIVES
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout.episode import TokenSequence
from corrgrpo_train.update import Sample, update

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


def tiny_model(seed):
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=16,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            tie_word_embeddings=False,
        )
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("method", NAMES)
def test_a_tiny_model_learns(method, objective):
    """The same task through the trainer's own update: an answer is one token after a prompt of two."""
    for seed in range(2):
        random = torch.Generator().manual_seed(seed)
        policy = Policy(tiny_model(seed))
        optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2)
        config = Config(
            env="x", objective=objective, learning_rate=1e-2, aggregation="token", autocast="off", updates_per_rollout=2
        )
        prompts = torch.tensor([[1, 2 + number] for number in range(PROMPTS)])
        groups = torch.arange(PROMPTS).repeat_interleave(SIZE)
        expected = []
        for _ in range(15):
            with torch.no_grad():
                # Of all tokens only six are answers, so that chance is what it was above.
                answers = policy.model(prompts).logits[:, -1, 8 : 8 + len(COMPONENTS)].softmax(1)
            expected.append(float((answers.double() @ TOTALS).mean()))
            drawn = torch.multinomial(answers, SIZE, replacement=True, generator=random).flatten()
            advantages = estimate(method, COMPONENTS[drawn], groups, WEIGHTS, torch.ones(len(drawn))).advantages
            samples = [
                Sample(
                    TokenSequence([*prompts[group].tolist(), 8 + answer], [False, False, True], [0.0, 0.0, 0.0]),
                    group,
                    advantage,
                )
                for group, answer, advantage in zip(groups.tolist(), drawn.tolist(), advantages.tolist(), strict=True)
            ]
            update(policy, optimizer, samples, config, done=0)
        assert expected[0] < 1
        assert expected[-1] > 1.5, f"seed {seed}: {expected}"

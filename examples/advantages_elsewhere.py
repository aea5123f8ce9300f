"""CorrGRPO's advantages in a training loop that knows nothing of this project: plain torch, nothing but the function.

    python examples/advantages_elsewhere.py [--method grpo]

The policy is a table of logits over 16 answers to each of 32 questions. Every answer has three rewards on scales of
their own. What is borrowed is one import and one call.
"""

import argparse

import torch

from corrgrpo_train.advantages import ESTIMATORS, estimate


def main() -> None:
    """Train, and print the mean total as it rises."""
    parser = argparse.ArgumentParser(description="Advantages in a loop of one's own.")
    parser.add_argument("--method", default="corrgrpo", choices=sorted(ESTIMATORS))
    method = parser.parse_args().method

    draw = torch.Generator().manual_seed(0)
    questions, answers, group_size = 32, 16, 8
    rewards = torch.randn(questions, answers, 3, generator=draw) * torch.tensor([1.0, 2.0, 0.5])
    weights = torch.tensor([1.0, 0.5, 1.0])
    logits = torch.zeros(questions, answers, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.05)

    for step in range(201):
        if step % 50 == 0:
            expected = (logits.softmax(-1)[..., None] * rewards).sum(1).mean(0)
            print(f"step {step:3}: mean total {float((expected * weights).sum().detach()):+.3f}")
        chosen = torch.multinomial(logits.detach().softmax(-1), group_size, replacement=True, generator=draw)
        rows = torch.arange(questions).repeat_interleave(group_size)
        components = rewards[rows, chosen.flatten()]  # (N, K), raw

        out = estimate(method, components, groups=rows, weights=weights)  # the borrowed line

        log_probabilities = logits.log_softmax(-1)[rows, chosen.flatten()]
        loss = -(out.advantages * log_probabilities).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

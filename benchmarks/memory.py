"""Peak memory of the training pass by the number of tokens whose logits exist at one time.

Each row is a process of its own: forward and backward over one micro-batch of random tokens. A chunk of all
tokens computes the logits of the whole micro-batch at once, as a plain loss on a model's output does.

    python -m benchmarks.memory [--model default] [--tokens 2048] [--chunks 128 512 2048] [--gradient-checkpointing]
"""

import argparse
import resource
import subprocess
import sys

import torch

from corrgrpo_train.device import chosen_autocast
from corrgrpo_train.models import load_policy_model
from corrgrpo_train.packing import micro_batches
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout.episode import TokenSequence


def peak(model, tokens, chunk, gradient_checkpointing):
    """Peak resident memory in MB of this process after one pass, and before it."""
    loaded = load_policy_model(model)
    policy = Policy(
        loaded.model,
        autocast=chosen_autocast("auto", "cpu"),
        gradient_checkpointing=gradient_checkpointing,
        chunk=chunk,
    )
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, loaded.model.config.vocab_size, (tokens + 1,), generator=generator).tolist()
    (batch,) = micro_batches([TokenSequence(ids, [False] + [True] * tokens, [0.0] * (tokens + 1))], [0], tokens + 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    policy.score(batch, 1.0).logprobs.mean().backward()
    return before / 1024, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--chunks", type=int, nargs="+", default=[128, 512, 2048])
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one is not None:
        before, after = peak(chosen.model, chosen.tokens, chosen.one, chosen.gradient_checkpointing)
        print(f"{chosen.one:>6} {before:>12.0f} {after:>12.0f}")
        return
    print(f"{chosen.model}, {chosen.tokens} tokens in one micro-batch\n chunk    loaded, MB    peak, MB", flush=True)
    for chunk in chosen.chunks:
        arguments = ["--model", chosen.model, "--tokens", str(chosen.tokens), "--one", str(chunk)]
        arguments += ["--gradient-checkpointing"] * chosen.gradient_checkpointing
        subprocess.run([sys.executable, "-m", "benchmarks.memory", *arguments], check=True)


if __name__ == "__main__":
    main()

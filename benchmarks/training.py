"""Time and memory of the training passes and of generation, as ratios on the same work.

Compares, with the default policy and forced completion lengths:

- update: forward and backward over groups with the prompt computed once against plain batches, in bfloat16 autocast
  where the machine has it;
- generation: the engine's sampling loop against the library's `generate`, same prompts, greedy, same tokens.

Each figure is the median of the rounds; the two sides alternate. Memory is the peak of a process of its own.

    python -m benchmarks.training [--rounds 3] [--prompt 120] [--new 40] [--model default]
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time

import torch

from corrgrpo_train.device import chosen_autocast
from corrgrpo_train.engines import SamplingRequest
from corrgrpo_train.engines.transformers import TransformersEngine
from corrgrpo_train.models import load_policy_model
from corrgrpo_train.packing import micro_batches
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout.episode import TokenSequence

GROUPS, MEMBERS, BUDGET = 2, 8, 2048


def sequences(vocabulary, prompt, new):
    """Groups of random sequences with equal prompts."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for group in range(GROUPS):
        start = torch.randint(3, vocabulary, (prompt,), generator=generator).tolist()
        for _ in range(MEMBERS):
            tokens = TokenSequence()
            tokens.add_given(list(start))
            end = torch.randint(3, vocabulary, (new,), generator=generator).tolist()
            tokens.add_sampled(tuple(end), (0.0,) * new)
            found.append((group, tokens))
    return found


def update_pass(policy, work, *, shared):
    """Forward and backward over all sequences; return the wall time in seconds."""
    policy.model.zero_grad(set_to_none=True)
    begin = time.perf_counter()
    for batch in micro_batches([s for _, s in work], [g for g, _ in work], BUDGET, shared=shared):
        (-policy.score(batch, 1.0).logprobs.mean()).backward()
    return time.perf_counter() - begin


def engine_pass(model, prompts, new):
    """Greedy generation with the engine; no end token, so that lengths are equal."""
    begin = time.perf_counter()
    TransformersEngine(model, [-1]).generate(
        [SamplingRequest(tuple(p), new, (0, i)) for i, p in enumerate(prompts)], temperature=0
    )
    return time.perf_counter() - begin


@torch.inference_mode()
def library_pass(model, prompts, new):
    """The same with the library's generate."""
    ids = torch.tensor(prompts)
    begin = time.perf_counter()
    model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=False)
    return time.perf_counter() - begin


def peak_gigabytes(arguments):
    """Peak resident memory of one update pass in a fresh process."""
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.training", *arguments], capture_output=True, text=True, check=True
    )
    return float(output.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=120)
    parser.add_argument("--new", type=int, default=40)
    parser.add_argument("--model", default="default")
    parser.add_argument("--memory-of", choices=["shared", "plain"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    model = load_policy_model(args.model).model
    policy = Policy(model, autocast=chosen_autocast("auto", "cpu"))
    work = sequences(model.config.vocab_size, args.prompt, args.new)
    if args.memory_of:
        update_pass(policy, work, shared=args.memory_of == "shared")
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
        return
    prompts = [s.token_ids[: args.prompt] for _, s in work]
    sides = {
        ("update", "shared prompts"): lambda: update_pass(policy, work, shared=True),
        ("update", "plain batches"): lambda: update_pass(policy, work, shared=False),
        ("generation", "engine"): lambda: engine_pass(model, prompts, args.new),
        ("generation", "library generate"): lambda: library_pass(model, prompts, args.new),
    }
    times = {side: [] for side in sides}
    for round_number in range(args.rounds + 1):
        for side, run in sides.items():
            seconds = run()
            if round_number:  # the first round warms up
                times[side].append(seconds)
    medians = {side: statistics.median(values) for side, values in times.items()}
    shape = ["--prompt", str(args.prompt), "--new", str(args.new), "--model", args.model]
    memory = {name: peak_gigabytes([*shape, "--memory-of", name]) for name in ("shared", "plain")}
    print(
        f"{GROUPS} groups of {MEMBERS}, prompt {args.prompt}, {args.new} new tokens, {torch.get_num_threads()} threads"
    )
    print(f"{'work':12} {'side':18} {'seconds':>8} {'ratio':>6}  peak GB")
    for (kind, name), seconds in medians.items():
        other = next(value for (k, n), value in medians.items() if k == kind and n != name)
        peak = f"{memory[name.split()[0]]:.1f}" if name.split()[0] in memory else ""
        print(f"{kind:12} {name:18} {seconds:8.2f} {seconds / other:6.2f}  {peak}")


if __name__ == "__main__":
    main()

"""Completion tokens per second of the transformers engine and of vLLM, on the same prompts in one run.

Per second of the clock, and per second of CPU time (all threads together), which other work on the machine hardly
changes.

Groups of equal prompts, as in training, completed for the same number of tokens (no end token counts). The engines take
turns; each figure is the median of the rounds, after one that warms up. Prefixes that vLLM has cached from the round
before are forgotten, as after every update.

    python -m benchmarks.engines [--rounds 3] [--groups 4] [--group-size 8] [--prompt 120] [--new 40] [--model default]
"""

import argparse
import statistics
import time

import torch

from corrgrpo_train.config import Config
from corrgrpo_train.engines import SamplingRequest
from corrgrpo_train.engines.registry import ENGINES
from corrgrpo_train.models import load_policy_model
from corrgrpo_train.policy import Policy


def asked(vocabulary, args):
    """Requests of groups with equal random prompts."""
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(3, vocabulary, (args.groups, args.prompt), generator=generator).tolist()
    return [
        SamplingRequest(tuple(prompt), args.new, (group, member))
        for group, prompt in enumerate(prompts)
        for member in range(args.group_size)
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rounds", 3), ("groups", 4), ("group-size", 8), ("prompt", 120), ("new", 40)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model", default="default")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    model = load_policy_model(args.model, device=args.device).model
    config = Config(env="none", autocast="off")
    policy = Policy(model)
    engines = {name: make(policy, [-1], config, args.prompt + args.new) for name, make in ENGINES.items()}
    requests = asked(model.config.vocab_size, args)
    clock = {name: [] for name in engines}
    cpu = {name: [] for name in engines}
    pushes = []
    for round_number in range(args.rounds + 1):
        for name, engine in engines.items():
            begin = time.process_time()
            engine.update_weights()
            pushed, start = time.process_time(), time.perf_counter()
            tokens = sum(len(completion.token_ids) for completion in engine.generate(requests, temperature=1.0))
            if round_number:
                clock[name].append(tokens / (time.perf_counter() - start))
                cpu[name].append(tokens / (time.process_time() - pushed))
                pushes += [pushed - begin] if name == "vllm" else []
    for engine in engines.values():
        engine.close()
    print(
        f"{args.groups} groups of {args.group_size}, prompt {args.prompt}, {args.new} new tokens, float32, "
        f"{torch.get_num_threads()} threads"
    )
    for name in engines:
        rounds = " ".join(f"{value:.0f}" for value in cpu[name])
        by_clock, by_cpu = statistics.median(clock[name]), statistics.median(cpu[name])
        print(f"{name:14} {by_clock:6.0f} tokens/s   {by_cpu:6.0f} tokens per CPU second (rounds: {rounds})")
    print(f"vLLM's push of all weights, compared: {statistics.median(pushes):.2f} CPU seconds")


if __name__ == "__main__":
    main()

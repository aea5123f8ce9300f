"""This trainer and TRL's GRPOTrainer, side by side on the same work: time, memory, and where the time goes.

Both train the same model on the same prompts with the same two rewards: groups of completions of a forced length,
GRPO's advantages, the mean over all tokens, AdamW, bfloat16 autocast over float32 weights, gradient checkpointing
(TRL's default), micro-batches of one group, generation with transformers. `--trl-args` and `--our-args` change
settings.

The two take turns, each time in a process of its own, so that the peak of resident memory is that of one trainer. A
process takes `--steps` steps; the last one is measured, from its rollout to its optimiser step. Figures are medians of
the rounds. `raw` is neither trainer: the library's `generate` and a plain training pass, alone, on the same shapes.

On a machine that others use as well, compare CPU seconds with `--threads 1`: threads that wait for one another use up
CPU time.

Needs an environment with TRL (`make trl`):

    .venv-trl/bin/python -m benchmarks.trainer_vs_trl [--prompt 120] [--new 40] [--rounds 3] [--model default]
"""

import argparse
import json
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import gymnasium as gym
import torch

from corrgrpo_envs import MultiRewardEnv, Opening, Outcome, RewardComponent, Task, TaskSet
from corrgrpo_train.models import load_policy_model
from corrgrpo_train.models.default import fetch_default_model
from corrgrpo_train.models.load import load_tokenizer

SIDES = ("ours", "trl", "raw")
WORDS = ("river", "stone", "light", "garden", "music", "winter", "bread", "window")


def components(text):
    """Two rewards of any text; they hardly ever tie, so that every group has a signal on both sides."""
    words = text.split()
    return {"letters": text.count("e") / max(1, len(text)), "words": len(set(words)) / 40}


class FixedPrompts(MultiRewardEnv):
    """Prompts given as arguments; one answer each."""

    components = (RewardComponent("letters", 1.0), RewardComponent("words", 1.0))

    def __init__(self, *, prompts=(), **kwargs):
        super().__init__(**kwargs)
        self.prompts = prompts

    def load_tasks(self):
        """One task a prompt."""
        return TaskSet([Task(f"prompt-{i}", "train", text) for i, text in enumerate(self.prompts)], self.split)

    def open(self, task):
        """The prompt alone."""
        return Opening([{"role": "user", "content": task.data}])

    def answer(self, text):
        """Score any text."""
        return Outcome(components(text), True, "ok")

    def cut(self, text):
        """The same for a text that was broken off."""
        return Outcome(components(text), True, "length")


gym.register(
    "benchmarks/FixedPrompts-v0",
    entry_point=lambda **kwargs: FixedPrompts(**kwargs),
    disable_env_checker=True,
)


def tokenizer_of(model):
    """The tokenizer alone, of the default model or of a folder."""
    return load_tokenizer(model, fetch_default_model() if model == "default" else Path(model))


def prompts_of(tokenizer, groups, length):
    """User messages, one a group, whose rendered prompt has exactly `length` tokens."""

    def size(text):
        messages = [{"role": "user", "content": text}]
        return len(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))

    found = []
    for group in range(groups):
        text = f"Write about a {WORDS[group % len(WORDS)]}, number {group}."
        text += " again" * (length - size(text))
        if size(text) != length:
            raise SystemExit(f"no prompt of exactly {length} tokens: {size(text)}")
        found.append(text)
    return found


# ---- one step of each side -------------------------------------------------------------------------------


def ours(args, folder):
    """Seconds of the measured step, in parts."""
    from corrgrpo_train.config import Config
    from corrgrpo_train.processes import Processes
    from corrgrpo_train.trainer import Trainer

    tokenizer = tokenizer_of(args.model)  # not the whole model: the trainer loads its own
    config = Config(
        env="benchmarks/FixedPrompts-v0",
        env_args={"prompts": prompts_of(tokenizer, args.groups, args.prompt)},
        method="grpo",
        aggregation="token",
        model=args.model,
        output=str(folder / "run"),
        steps=args.steps,
        groups_per_step=args.groups,
        group_size=args.group_size,
        max_prompt_tokens=args.prompt,
        max_new_tokens=args.new,
        weight_decay=0.0,
        token_budget=args.prompt + args.group_size * args.new,  # a micro-batch is one group, as on the other side
        gradient_checkpointing=True,
        validation_tasks=0,
        validation_every=0,
        checkpoint_every=0,
        tensorboard=False,
        quiet=True,
        autocast="bf16",
        device="cpu",
        threads=args.threads,
    )
    for name, value in json.loads(args.our_args).items():
        setattr(config, name, value)
    with ExitStack() as closing:
        trainer = Trainer(config, closing, Processes())
        trainer.engine.eos = torch.tensor([-1])  # no token ends a completion: lengths are forced
        clock = {}
        timed(trainer.engine, "generate", clock)
        timed(trainer.engine, "_prefill", clock)
        timed(trainer.policy, "clip_gradients", clock)
        timed(trainer.optimizer, "step", clock)
        for step in range(1, args.steps + 1):
            clock.clear()
            begin, cpu = time.perf_counter(), time.process_time()
            trainer._step(step)
            seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    rows = [json.loads(line) for line in (config.run_dir / "timings.jsonl").read_text().splitlines()]
    metrics = [json.loads(line) for line in (config.run_dir / "metrics.jsonl").read_text().splitlines()]
    tokens = round(metrics[-1]["tokens/trained"])
    generation, update = (rows[-1][f"seconds/{part}"] for part in ("rollout", "update"))
    passes = update - clock["clip_gradients"] - clock["step"]
    parts = {
        "prompts": clock["_prefill"],
        "decoding": clock["generate"] - clock["_prefill"],
        "environment": generation - clock["generate"],
        "forward and backward": passes,
        "optimiser": clock["clip_gradients"] + clock["step"],
        "log": seconds - generation - update,
    }
    return {
        "seconds": seconds,
        "cpu": cpu,
        "generation": generation,
        "update": update,
        "tokens": tokens,
        "parts": parts,
    }


def timed(owner, name, clock):
    """Add the seconds spent in a method up, under its name."""
    method = getattr(owner, name)

    def call(*args, **kwargs):
        begin = time.perf_counter()
        try:
            return method(*args, **kwargs)
        finally:
            clock[name] = clock.get(name, 0.0) + time.perf_counter() - begin

    setattr(owner, name, call)


def trl(args, folder):
    """Seconds of the measured step, in parts."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    loaded = load_policy_model(args.model)
    rows = [[{"role": "user", "content": text}] for text in prompts_of(loaded.tokenizer, args.groups, args.prompt)]
    settings = {
        "per_device_train_batch_size": args.group_size,
        "gradient_accumulation_steps": args.groups,
        "num_generations": args.group_size,
        "max_completion_length": args.new,
        "generation_kwargs": {"min_new_tokens": args.new},
        "temperature": 1.0,
        "top_k": 0,
        "loss_type": "dapo",
        "bf16": True,
        "use_cpu": True,
        "max_steps": args.steps,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        **json.loads(args.trl_args),
    }

    def letters(completions, **kwargs):
        return [components(messages[0]["content"])["letters"] for messages in completions]

    def words(completions, **kwargs):
        return [components(messages[0]["content"])["words"] for messages in completions]

    trainer = GRPOTrainer(
        loaded.model,
        [letters, words],
        GRPOConfig(str(folder / "trl"), **settings),
        Dataset.from_dict({"prompt": rows}),
        processing_class=loaded.tokenizer,
    )
    clock = {"begin": 0.0, "seconds": 0.0, "cpu": 0.0, "generation": 0.0, "tokens": 0}
    scored = trainer._generate_and_score_completions

    def timed(inputs):
        begin = time.perf_counter()
        output = scored(inputs)
        clock["generation"] = time.perf_counter() - begin
        clock["tokens"] = int(output["completion_mask"].sum())
        width = output["prompt_ids"].shape[1]
        if width != args.prompt or int(output["prompt_mask"].sum()) != width * len(inputs):
            raise SystemExit(f"TRL's prompts have {width} tokens")
        return output

    trainer._generate_and_score_completions = timed

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            clock["begin"], clock["cpu"] = time.perf_counter(), time.process_time()

        def on_step_end(self, *_, **__):
            clock["seconds"] = time.perf_counter() - clock["begin"]
            clock["cpu"] = time.process_time() - clock["cpu"]

    trainer.add_callback(Clock())
    trainer.train()
    seconds, generation = clock["seconds"], clock["generation"]
    return {
        "seconds": seconds,
        "cpu": clock["cpu"],
        "generation": generation,
        "update": seconds - generation,
        "tokens": clock["tokens"],
    }


def raw(args, folder):
    """The library's generate and a plain training pass alone, in seconds, and their tokens."""
    loaded = load_policy_model(args.model)
    texts = prompts_of(loaded.tokenizer, args.groups, args.prompt)
    rows = [
        loaded.tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
        )
        for text in texts
        for _ in range(args.group_size)
    ]
    ids = torch.tensor(rows)
    for _ in range(args.steps):
        begin, cpu = time.perf_counter(), time.process_time()
        with torch.inference_mode():
            full = loaded.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=args.new,
                min_new_tokens=args.new,
                do_sample=True,
                top_k=0,
            )
        generation = time.perf_counter() - begin
        begin = time.perf_counter()
        for part in full.clone().split(args.group_size):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = loaded.model(part, logits_to_keep=args.new + 1, use_cache=False).logits[:, :-1]
            loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), part[:, args.prompt :].flatten())
            loss.backward()
        update, cpu = time.perf_counter() - begin, time.process_time() - cpu
        loaded.model.zero_grad()
    return {
        "seconds": generation + update,
        "cpu": cpu,
        "generation": generation,
        "update": update,
        "tokens": len(rows) * args.new,
    }


# ---- the comparison --------------------------------------------------------------------------------------


def measured(side, argv, prefix):
    """One side in a process of its own."""
    command = [*prefix, sys.executable, "-m", "benchmarks.trainer_vs_trl", *argv, "--side", side]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{side} failed:\n{ended.stderr[-4000:]}")
    return json.loads(ended.stdout.splitlines()[-1])


def report(found, args):
    """Print the medians and the ratios."""
    names = ("seconds", "cpu", "generation", "update", "tokens", "gigabytes")
    middle = {
        side: {name: statistics.median(row[name] for row in rows) for name in names} for side, rows in found.items()
    }
    print(
        f"\n{args.groups} prompts x group of {args.group_size}, prompt {args.prompt}, {args.new} new tokens, "
        f"{args.threads or torch.get_num_threads()} threads, torch {torch.__version__}, median of {args.rounds}"
    )
    print(
        f"{'':6} {'s a step':>9} {'CPU s':>7} {'generation':>11} {'update':>8} {'tokens/s':>9} {'peak GB':>8}   "
        "rounds, s a step"
    )
    for side, row in middle.items():
        rounds = " ".join(f"{one['seconds']:.1f}" for one in found[side])
        print(
            f"{side:6} {row['seconds']:9.2f} {row['cpu']:7.1f} {row['generation']:11.2f} {row['update']:8.2f} "
            f"{row['tokens'] / row['seconds']:9.1f} {row['gigabytes']:8.2f}   {rounds}"
        )
    if "ours" in found:
        parts = {
            name: statistics.median(row["parts"][name] for row in found["ours"]) for name in found["ours"][0]["parts"]
        }
        print("ours, s: " + ", ".join(f"{name} {value:.2f}" for name, value in parts.items()))
    if {"ours", "trl"} <= set(middle):
        mine, theirs = middle["ours"], middle["trl"]
        speed, work = (mine["tokens"] / mine[name] / (theirs["tokens"] / theirs[name]) for name in ("seconds", "cpu"))
        print(
            f"ours over TRL: {speed:.2f} times the tokens per second, {work:.2f} per CPU second, "
            f"{mine['gigabytes'] / theirs['gigabytes']:.2f} "
            "of the peak memory"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("prompt", 120), ("new", 40), ("groups", 4), ("group-size", 8), ("rounds", 3), ("steps", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model", default="default")
    parser.add_argument("--threads", type=int, help="on both sides; default: torch's own choice")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--trl-args", default="{}", help="JSON of GRPOConfig's fields")
    parser.add_argument("--our-args", default="{}", help="JSON of this trainer's settings")
    parser.add_argument("--prefix", default="", help='put before each process\'s command, e.g. "taskset -c 0,1"')
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        if args.threads:
            torch.set_num_threads(args.threads)
        with tempfile.TemporaryDirectory() as folder:
            row = {"ours": ours, "trl": trl, "raw": raw}[args.side](args, Path(folder))
        print(json.dumps({**row, "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9}))
        return
    found = {side: [] for side in args.sides}
    for number in range(args.rounds):
        for side in args.sides:
            row = measured(side, sys.argv[1:], shlex.split(args.prefix))
            found[side].append(row)
            print(f"round {number + 1} {side}: {json.dumps(row)}", flush=True)
    report(found, args)


if __name__ == "__main__":
    main()

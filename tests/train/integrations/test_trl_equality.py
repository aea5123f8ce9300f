"""Advantages, losses and gradients against TRL's own code on the same tokens, for the modes that both have."""

import pytest
import torch

pytest.importorskip("trl")

from datasets import Dataset
from trl import GRPOTrainer
from trl_models import grpo_config, tiny_policy

from corrgrpo_train.advantages import estimate
from corrgrpo_train.config import Config
from corrgrpo_train.objectives import AGGREGATIONS, OBJECTIVES
from corrgrpo_train.packing import micro_batches
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout.episode import TokenSequence
from corrgrpo_train.update import Sample, update

pytestmark = pytest.mark.trl

WEIGHTS = [1.0, 0.3, -0.5]
GROUP, GROUPS = 4, 3

# Our named options for each of TRL's modes, beside TRL's own.
ADVANTAGES = {
    "grpo": ({}, "grpo", {"epsilon": 1e-4}),
    "dr_grpo": ({"scale_rewards": "none"}, "dr_grpo", {}),
    "gdpo": ({"multi_objective_aggregation": "normalize_then_sum"}, "gdpo", {}),
}
LOSSES = {
    "grpo": ({"loss_type": "grpo"}, {"objective": "grpo", "aggregation": "sequence"}),
    "dapo": ({"loss_type": "dapo", "epsilon_high": 0.28}, {"objective": "dapo", "aggregation": "token"}),
    "cispo": ({"loss_type": "cispo", "epsilon_high": 5.0}, {"objective": "cispo", "aggregation": "token"}),
    "dr_grpo": (
        {"loss_type": "dr_grpo"},
        {"objective": "grpo", "aggregation": "constant", "aggregation_length": 16},
    ),
}


def rewards(prompts, completions, **_):
    return [sum(map(ord, text)) % 7 / 7 for text in completions]


def shape(completions, **_):
    return [len(set(text)) / 16 for text in completions]


def third(completions, **_):
    return [float(text[:1] < "m") for text in completions]


def trl_trainer(tmp_path, **settings):
    model, tokenizer = tiny_policy()
    trainer = GRPOTrainer(
        model,
        [rewards, shape, third],
        grpo_config(
            tmp_path,
            per_device_train_batch_size=GROUP,
            gradient_accumulation_steps=GROUPS,
            num_generations=GROUP,
            reward_weights=WEIGHTS,
            max_grad_norm=1e9,
            gradient_checkpointing=False,
            temperature=0.8,
            top_k=0,
            **settings,
        ),
        Dataset.from_dict({"prompt": [f"task {n}: " + "ab" * n for n in range(GROUPS)]}),
        processing_class=tokenizer,
    )
    kept = {}
    calculate = trainer._calculate_rewards

    def keep(*args):
        kept["components"] = calculate(*args)
        return kept["components"]

    trainer._calculate_rewards = keep
    trainer.model.train()
    inputs = [row for row in trainer.train_dataset for _ in range(GROUP)]
    output = trainer._generate_and_score_completions(inputs)
    # Completions of unequal lengths, as an end token makes them: what follows it is masked.
    lengths = torch.randint(1, output["completion_mask"].shape[1] + 1, (GROUP * GROUPS,))
    output["completion_mask"] = (torch.arange(output["completion_mask"].shape[1]) < lengths[:, None]).int()
    output["num_items_in_batch"] = output["completion_mask"].sum()
    return trainer, output, kept["components"]


def sequences(output):
    found = []
    for row in range(GROUP * GROUPS):
        tokens = TokenSequence()
        tokens.add_given(output["prompt_ids"][row][output["prompt_mask"][row].bool()].tolist())
        sampled = output["completion_ids"][row][output["completion_mask"][row].bool()].tolist()
        tokens.add_sampled(tuple(sampled), (0.0,) * len(sampled))
        found.append(tokens)
    return found


def losses_of(trainer, output, **extra):
    """TRL's loss over its micro-batches; gradients are left in the model."""
    trainer.model.train()  # TRL divides by the number of micro-batches in training only
    trainer.current_gradient_accumulation_steps = GROUPS
    total = 0.0
    for part in range(GROUPS):
        rows = slice(part * GROUP, (part + 1) * GROUP)
        piece = {key: value if value.ndim == 0 else value[rows] for key, value in {**output, **extra}.items()}
        loss = trainer._compute_loss(trainer.model, piece)
        loss.backward()
        total += loss.item()
    return total


@pytest.mark.parametrize("mode", ADVANTAGES)
def test_advantages_are_trls(tmp_path, mode):
    settings, name, options = ADVANTAGES[mode]
    _, output, components = trl_trainer(tmp_path, **settings)
    groups = torch.arange(GROUP * GROUPS) // GROUP
    mine = estimate(name, components, groups, WEIGHTS, **options).advantages
    assert output["advantages"].abs().max() > 0.1
    torch.testing.assert_close(mine, output["advantages"], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("mode", LOSSES)
def test_losses_and_gradients_are_trls(tmp_path, mode):
    settings, options = LOSSES[mode]
    trainer, output, _ = trl_trainer(tmp_path, **settings)
    theirs = losses_of(trainer, output)
    gradients = {name: weight.grad.clone() for name, weight in trainer.model.named_parameters()}
    trainer.model.zero_grad()

    model = trainer.model
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    config = Config(
        env="none", temperature=0.8, learning_rate=1.0, max_grad_norm=1e9, token_budget=90, autocast="off", **options
    )
    samples = [
        Sample(tokens, row // GROUP, float(output["advantages"][row])) for row, tokens in enumerate(sequences(output))
    ]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    mine = update(Policy(model), optimizer, samples, config, done=0)["loss/policy"]
    assert mine == pytest.approx(theirs, abs=1e-5)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(before[name] - weight.detach(), gradients[name], atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("mode", LOSSES)
def test_losses_are_trls_away_from_the_old_policy(tmp_path, mode):
    settings, options = LOSSES[mode]
    trainer, output, _ = trl_trainer(tmp_path, **settings)
    noise = 0.5 * torch.randn(output["completion_ids"].shape, generator=torch.Generator().manual_seed(1))
    batches = micro_batches(tokens := sequences(output), range(len(tokens)), 4096)
    with torch.no_grad():
        scores = [Policy(trainer.model).score(batch, 0.8).logprobs for batch in batches]
    owners, places = (torch.cat([getattr(batch, name) for batch in batches]) for name in ("owners", "places"))
    logprobs = torch.cat(scores)
    offsets = noise[owners, places - torch.tensor([one.prompt_length for one in tokens])[owners]]
    current = torch.zeros(noise.shape)
    current[owners, places - torch.tensor([one.prompt_length for one in tokens])[owners]] = logprobs
    theirs = losses_of(trainer, output, old_per_token_logps=current + noise)

    clipping = {"clip_low": 0.2, "clip_high": settings.get("epsilon_high", 0.2)}
    named = {"cispo_max_ratio": settings["epsilon_high"]} if mode == "cispo" else clipping
    surrogate = OBJECTIVES[options["objective"]](logprobs, logprobs + offsets, output["advantages"][owners], **named)
    lengths = output["completion_mask"].sum(1)
    weights = AGGREGATIONS[options["aggregation"]](lengths, options.get("aggregation_length"))
    assert surrogate.clipped.any() or mode == "cispo"
    assert float((surrogate.losses * weights[owners]).sum()) == pytest.approx(theirs, abs=1e-4)

import math

import pytest
import torch

from corrgrpo_train.engines import SamplingRequest
from corrgrpo_train.engines.transformers import TransformersEngine
from corrgrpo_train.errors import UsageError
from corrgrpo_train.models import build_tiny, load_policy_model
from corrgrpo_train.models.lora import add_adapter, load_adapter
from corrgrpo_train.packing import micro_batches
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout.episode import TokenSequence


def adapted(model, *, spread=0.1, **changes):
    """Give the model an adapter whose matrices are all random numbers, so that it does something."""
    adapter = add_adapter(
        model, **{"base": "tiny", "rank": 4, "alpha": 6.0, "targets": "all-linear", "seed": 0, **changes}
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for parameter in model.parameters():
            if parameter.requires_grad and spread:
                parameter.data = spread * torch.randn_like(parameter)
    return adapter


def sequences(model, turns=2):
    """Sampled by the engine: groups of one prompt, later turns with text between."""
    engine, found, groups = TransformersEngine(model, [2, *range(60, 90)]), [], []
    for group in range(2):
        for member in range(4):
            sequence = TokenSequence()
            sequence.add_given([3 + group, 2, 11, *range(20, 30)])
            for turn in range(turns):
                request = SamplingRequest(tuple(sequence.token_ids), 8, (group, member, turn))
                (completion,) = engine.generate([request], temperature=1.0)
                sequence.add_sampled(completion.token_ids, completion.logprobs)
                if turn < turns - 1:
                    sequence.add_given([2, 40, 41])
            found.append(sequence)
            groups.append(group)
    return found, groups


def scored(policy, found, groups, *, shared):
    scores = {}
    for batch in micro_batches(found, groups, 10_000, shared=shared):
        values = policy.score(batch, 1.0).logprobs
        scores.update(zip(zip(batch.owners.tolist(), batch.places.tolist(), strict=True), values, strict=True))
    return torch.stack([scores[key] for key in sorted(scores)])


def test_a_fresh_adapter_changes_nothing_and_is_all_that_is_trained(tiny):
    model, _ = tiny
    ids = torch.tensor([[5, 6, 7]])
    before = model(ids).logits
    adapter = adapted(model, spread=0, rank=3, targets="q_proj, down_proj")
    assert torch.equal(model(ids).logits, before)
    policy = Policy(model, adapter=adapter)
    # Two layers of width 64: q_proj 64 to 64, down_proj 256 to 64; each has (in + out) * rank weights.
    assert sum(weight.numel() for weight in policy.parameters()) == 2 * 3 * (64 + 64 + 256 + 64)
    (batch,) = micro_batches(sequences(model)[0][:1], [0], 1000)
    policy.score(batch, 1.0).logprobs.sum().backward()
    for name, weight in model.named_parameters():
        assert (weight.grad is not None) == ("lora_" in name), name


def test_equal_seeds_give_equal_adapters_and_leave_the_global_generator_alone(tiny):
    state = torch.get_rng_state()
    first, second, other = (build_tiny(0, hidden_size=64, layers=2)[0] for _ in range(3))
    for model, seed in ((first, 1), (second, 1), (other, 2)):
        adapted(model, spread=0, seed=seed)
    name = "model.layers.0.self_attn.q_proj.lora_A.default.weight"
    assert torch.equal(first.state_dict()[name], second.state_dict()[name])
    assert not torch.equal(first.state_dict()[name], other.state_dict()[name])
    assert torch.equal(torch.get_rng_state(), state)


def test_the_weights_are_those_of_the_formula(tiny):
    plain = build_tiny(0, hidden_size=64, layers=2)[0].state_dict()
    model, _ = tiny
    policy = Policy(model, adapter=adapted(model))
    state, found = model.state_dict(), dict(policy.plain_weights())
    assert found.keys() == plain.keys()
    for name, weight in plain.items():
        owner = name.removesuffix(".weight")
        if f"{owner}.lora_A.default.weight" in state:
            # W + alpha / rank * B A
            low, high = (state[f"{owner}.lora_{letter}.default.weight"].double() for letter in "AB")
            assert torch.allclose(found[name].double(), weight.double() + 6.0 / 4 * high @ low, atol=1e-6)
        else:
            assert torch.equal(found[name], weight)


def test_shared_prompts_equal_plain_batches_and_the_engine(tiny):
    model, _ = tiny
    policy = Policy(model, adapter=adapted(model))
    assert policy.shares_prompts
    found, groups = sequences(model)
    shared, plain = (scored(policy, found, groups, shared=shared) for shared in (True, False))
    assert torch.allclose(shared, plain, atol=1e-5)
    engine = torch.tensor([s.behaviour_logprobs[p] for s in found for p, yes in enumerate(s.sampled) if yes])
    assert torch.allclose(shared, engine, atol=1e-4)
    gradients = []
    for scores in (shared, plain):
        (gradient,) = [torch.autograd.grad(scores.square().sum(), policy.parameters())]
        gradients.append(torch.cat([part.flatten() for part in gradient]))
    assert torch.allclose(*gradients, rtol=1e-3, atol=1e-4 * gradients[0].abs().max())
    # A plain model of the same weights says the same.
    merged = build_tiny(0, hidden_size=64, layers=2)[0]
    merged.load_state_dict(dict(policy.plain_weights()))
    assert torch.allclose(scored(Policy(merged), found, groups, shared=True), shared, atol=1e-4)


def test_the_reference_is_the_model_without_the_adapter(tiny):
    model, _ = tiny
    found, groups = sequences(model)
    before = scored(Policy(model), found, groups, shared=True)
    policy = Policy(model, adapter=adapted(model))
    policy.freeze_reference()  # nothing to keep
    current = scored(policy, found, groups, shared=True)
    with policy.reference():
        reference = scored(policy, found, groups, shared=True)
    assert torch.allclose(reference, before, atol=1e-6)
    assert not reference.requires_grad
    assert (current - reference).abs().max() > 1e-2
    current.sum().backward()  # what was scored before the switch can still be differentiated
    assert all(weight.requires_grad and weight.grad is not None for weight in policy.parameters())


def test_it_comes_back_ready_to_train(tiny, tmp_path):
    model, tokenizer = tiny
    policy = Policy(model, adapter=adapted(model))
    policy.save_pretrained(str(tmp_path))
    tokenizer.save_pretrained(tmp_path)
    again = build_tiny(0, hidden_size=64, layers=2)[0]
    loaded = Policy(again, adapter=load_adapter(again, tmp_path, base="tiny", seed=0))
    assert len(loaded.parameters()) == len(policy.parameters())
    assert all(torch.equal(one, two) for one, two in zip(loaded.parameters(), policy.parameters(), strict=True))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(UsageError, match=r"the adapter in .* cannot be used on model 'tiny'"):
        load_adapter(build_tiny(0, hidden_size=64, layers=2)[0], tmp_path, base="tiny", seed=0)


def test_a_folder_of_an_adapter_is_a_model(tmp_path):
    model, tokenizer = build_tiny(7)
    policy = Policy(model, adapter=adapted(model, seed=7))
    policy.save_pretrained(str(tmp_path))
    tokenizer.save_pretrained(tmp_path)
    loaded = load_policy_model(str(tmp_path), seed=1)
    for name, weight in policy.plain_weights():
        assert torch.allclose(loaded.model.state_dict()[name], weight, atol=1e-6)
    (tmp_path / "base.json").write_text("{}")
    with pytest.raises(UsageError, match="does not say which model"):
        load_policy_model(str(tmp_path))


@pytest.mark.parametrize("targets", ["nope", "q_proj,", ""])
def test_layers_that_are_not_there(tiny, targets):
    if targets == "q_proj,":
        adapted(tiny[0], targets=targets)
        return
    with pytest.raises(UsageError, match="allowed are all-linear and, with commas between, down_proj"):
        adapted(tiny[0], targets=targets)


def test_alpha_defaults_to_twice_the_rank(tiny):
    adapter = adapted(tiny[0], alpha=None, rank=5)
    (settings,) = adapter.peft.peft_config.values()
    assert math.isclose(settings.lora_alpha, 10)

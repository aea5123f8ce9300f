import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM, MambaConfig, MambaForCausalLM

from corrgrpo_train.packing import micro_batches
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout.episode import TokenSequence

SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2}
HEADS = {"intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}


def two_completions():
    prompt = [5, 6, 7, 8]
    return [
        TokenSequence([*prompt, 9, 10, 11], [False] * 4 + [True] * 3, [0.0] * 7),
        TokenSequence([*prompt, 12, 13], [False] * 4 + [True] * 2, [0.0] * 6),
    ]


@torch.no_grad()
def expected(model, sequence, temperature):
    logits = model(torch.tensor([sequence.token_ids])).logits[0].double() / temperature
    logprobs, entropies = [], []
    for place, sampled in enumerate(sequence.sampled):
        if sampled:
            distribution = torch.distributions.Categorical(logits=logits[place - 1])
            logprobs.append(distribution.log_prob(torch.tensor(sequence.token_ids[place])))
            entropies.append(distribution.entropy())
    return torch.stack(logprobs), torch.stack(entropies)


MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, **HEADS)),
    # Caps its logits after the head: the head alone would give other log-probabilities.
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**SIZES, **HEADS, final_logit_softcapping=0.5)),
    # A state space model sees everything before it in the row, whatever the mask says.
    "mamba": lambda: MambaForCausalLM(MambaConfig(**SIZES, state_size=8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_scores_of_any_architecture(name):
    torch.manual_seed(0)
    model = MODELS[name]()
    policy = Policy(model)
    assert policy.shares_prompts == (name != "mamba")
    sequences = two_completions()
    (batch,) = micro_batches(sequences, [0, 0], 100, shared=policy.shares_prompts)
    scores = policy.score(batch, 0.7)
    for number, sequence in enumerate(sequences):
        logprobs, entropies = expected(model, sequence, 0.7)
        assert torch.allclose(scores.logprobs[batch.owners == number].double(), logprobs, atol=1e-4)
        assert torch.allclose(scores.entropies[batch.owners == number].double(), entropies, atol=1e-4)


def test_a_refusal_falls_back_with_a_warning(caplog):
    Policy(MODELS["mamba"]())
    assert "can't share prompts" in caplog.text


def test_sharing_can_be_switched_off(tiny):
    assert not Policy(tiny[0], share_prompts=False).shares_prompts


def test_autocast_keeps_float32_weights_and_gradients(tiny):
    model, _ = tiny
    policy = Policy(model, autocast=torch.bfloat16)
    (batch,) = micro_batches(two_completions(), [0, 0], 100)
    scores = policy.score(batch, 1.0)
    assert scores.logprobs.dtype == torch.float32
    scores.logprobs.sum().backward()
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in model.parameters())
    policy.autocast = None
    assert torch.allclose(scores.logprobs, policy.score(batch, 1.0).logprobs, atol=0.1)


def test_the_gradient_of_the_entropies_is_that_of_the_formula(tiny):
    model, _ = tiny
    policy = Policy(model, chunk=2)
    (batch,) = micro_batches(two_completions(), [0, 0], 100)
    assert not policy.score(batch, 0.7).entropies.requires_grad
    weights = torch.tensor([1.0, -2.0, 0.5, 3.0, 1.5])
    entropies = policy.score(batch, 0.7, entropy_gradient=True).entropies
    (entropies * weights).sum().backward()
    found = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    total = 0.0
    for number, sequence in enumerate(two_completions()):
        logits = model(torch.tensor([sequence.token_ids])).logits[0] / 0.7
        places = [place - 1 for place, sampled in enumerate(sequence.sampled) if sampled]
        entropy = torch.distributions.Categorical(logits=logits[places]).entropy()
        total = total + (entropy * weights[batch.owners == number]).sum()
    total.backward()
    for mine, parameter in zip(found, model.parameters(), strict=True):
        assert torch.allclose(mine, parameter.grad, rtol=1e-3, atol=1e-5)


def test_the_reference_stays_while_the_policy_moves(tiny):
    model, _ = tiny
    policy = Policy(model)
    (batch,) = micro_batches(two_completions(), [0, 0], 100)
    with pytest.raises(RuntimeError, match="freeze_reference"), policy.reference():
        pass
    before = policy.score(batch, 1.0).logprobs.detach()
    policy.freeze_reference()
    current = policy.score(batch, 1.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data = parameter + 0.01
    moved = policy.score(batch, 1.0)
    with policy.reference():
        reference = policy.score(batch, 1.0)
    assert torch.equal(reference.logprobs, before)
    assert not reference.logprobs.requires_grad
    assert not torch.allclose(moved.logprobs, before, atol=1e-3)
    # Afterwards the policy is itself again, and what was scored before can still be differentiated.
    assert torch.equal(policy.score(batch, 1.0).logprobs, moved.logprobs)
    assert len(policy.parameters()) == len(list(model.parameters()))
    assert current.logprobs.requires_grad

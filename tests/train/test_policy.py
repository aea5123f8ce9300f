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

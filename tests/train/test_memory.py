"""What the log-probability pass holds in memory at one time."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from corrgrpo_train.errors import UsageError
from corrgrpo_train.models.layers import recompute_layers
from corrgrpo_train.packing import micro_batches
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout.episode import TokenSequence

VOCABULARY = 1009  # no other size in the model: tensors of this width hold logits or what comes of them
HIDDEN = 36  # so many rows has the output layer's weight turned round, which is none of them
CHUNK = 8


def _holds_logits(tensor):
    return tensor.dim() > 1 and tensor.shape[-1] == VOCABULARY and tensor.shape[0] != HIDDEN


class Live(TorchDispatchMode):
    """Counts the elements of the living tensors with `VOCABULARY` columns, and their largest count of rows.

    Attributes:
        peak: most elements that lived at one time.
        rows: rows of the largest.
    """

    def __init__(self):
        super().__init__()
        self.now = self.peak = self.rows = 0
        self.known = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor) and _holds_logits(tensor):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in self.known:
                    self._count(storage.data_ptr(), tensor.numel(), storage)
                self.rows = max(self.rows, tensor.numel() // VOCABULARY)
        return result

    def _count(self, key, size, storage):
        self.known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key, size):
        self.known.discard(key)
        self.now -= size


def model():
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=HIDDEN,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=1,
            tie_word_embeddings=True,
        )
    )


def one_batch(tokens, members=4):
    sequences = [
        TokenSequence([5, 6, 7] + [(number + i) % 900 for i in range(tokens)], [False] * 3 + [True] * tokens)
        for number in range(members)
    ]
    (batch,) = micro_batches(sequences, [0] * members, 10_000)
    return batch


def held(tokens, *, entropy_gradient=False, chunk=CHUNK):
    """Elements and rows of logits that lived at one time in a forward and backward pass."""
    policy, batch = Policy(model(), chunk=chunk), one_batch(tokens)
    with Live() as live:
        scores = policy.score(batch, 0.7, entropy_gradient)
        (scores.logprobs.sum() + scores.entropies.sum()).backward()
    return live.peak, live.rows


@pytest.mark.parametrize("entropy_gradient", [False, True])
def test_logits_in_memory_grow_with_the_chunk_and_not_with_the_batch(entropy_gradient):
    short, long = (held(tokens, entropy_gradient=entropy_gradient) for tokens in (20, 80))
    assert short == long
    peak, rows = long
    assert rows == CHUNK
    # Some copies of one chunk: logits, scaled, softmax, their gradients. The batch has 320 rows, 40 chunks.
    assert CHUNK * VOCABULARY <= peak <= 12 * CHUNK * VOCABULARY
    assert held(80, chunk=2 * CHUNK)[1] == 2 * CHUNK


def test_the_measure_sees_a_whole_batch():
    with Live() as live:
        torch.zeros(50, 4) @ torch.zeros(4, VOCABULARY)
    assert (live.peak, live.rows, live.now) == ((50 + 4) * VOCABULARY, 50, 0)


def saved(policy, batch):
    """Bytes that the forward pass keeps for the backward pass, weights left out."""
    weights = {weight.data_ptr() for weight in policy.model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        scores = policy.score(batch, 1.0)
    return sum(kept.values()), scores


def test_gradient_checkpointing_keeps_less_and_changes_nothing():
    batch, found = one_batch(60), []
    for gradient_checkpointing in (False, True):
        policy = Policy(model(), gradient_checkpointing=gradient_checkpointing)
        size, scores = saved(policy, batch)
        scores.logprobs.sum().backward()
        found.append((size, scores.logprobs, [weight.grad for weight in policy.parameters()]))
    (plain, logprobs, gradients), (less, again, others) = found
    assert less < plain / 3
    assert torch.equal(logprobs, again)
    assert all(torch.equal(one, other) for one, other in zip(gradients, others, strict=True))


def test_gradient_checkpointing_needs_marked_layers():
    with pytest.raises(UsageError, match="Linear does not mark its layers"):
        recompute_layers(torch.nn.Linear(2, 2))

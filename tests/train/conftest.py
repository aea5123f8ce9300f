import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def tiny():
    """A fresh tiny model and its byte-level tokenizer, whose padding token is the end token."""
    from corrgrpo_train.models.tiny import build_tiny

    model, tokenizer = build_tiny(seed=0, hidden_size=64, layers=2)
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    return model, tokenizer

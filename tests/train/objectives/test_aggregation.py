import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from corrgrpo_train.objectives import AGGREGATIONS


@given(st.lists(st.lists(st.floats(-10, 10), min_size=1, max_size=5), min_size=1, max_size=6), st.integers(1, 50))
def test_weights_give_the_means_of_the_papers(losses, constant):
    n = len(losses)
    expected = {
        "sequence": sum(sum(row) / len(row) for row in losses) / n,
        "token": sum(map(sum, losses)) / sum(map(len, losses)),
        "constant": sum(sum(row) / constant for row in losses) / n,
    }
    lengths = torch.tensor([len(row) for row in losses])
    for name, weights in AGGREGATIONS.items():
        found = sum(w * sum(row) for w, row in zip(weights(lengths, constant).tolist(), losses, strict=True))
        assert found == pytest.approx(expected[name], abs=1e-9)


@pytest.mark.parametrize("length", [None, 0, -3])
def test_constant_needs_its_length(length):
    with pytest.raises(ValueError, match="positive length"):
        AGGREGATIONS["constant"](torch.tensor([3]), length)

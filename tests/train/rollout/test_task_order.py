from collections import Counter

from corrgrpo_train.rollout.task_order import TaskOrder

IDS = [f"t{i}" for i in range(30)]
KINDS = ["a"] * 20 + ["b"] * 8 + ["c"] * 2


def test_an_epoch_meets_every_task_once():
    order = TaskOrder(IDS, KINDS, seed=3)
    for epoch in range(4):
        assert Counter(order[epoch * 30 + i] for i in range(30)) == Counter(IDS)
    assert [order[i] for i in range(30)] != [order[30 + i] for i in range(30)]


def test_a_position_is_a_function_of_the_seed():
    one, other = TaskOrder(IDS, KINDS, seed=3), TaskOrder(IDS, KINDS, seed=3)
    backwards = [other[i] for i in reversed(range(75))]
    assert [one[i] for i in range(75)] == backwards[::-1]
    assert [TaskOrder(IDS, KINDS, seed=4)[i] for i in range(30)] != [one[i] for i in range(30)]


def test_kinds_are_spread_evenly():
    kind = dict(zip(IDS, KINDS, strict=True))
    for seed in range(20):
        order = TaskOrder(IDS, KINDS, seed=seed)
        first_half = Counter(kind[order[i]] for i in range(15))
        # Member j of n lies in [j/n, (j+1)/n) of the epoch, so a half holds a half of each kind, up to one.
        assert abs(first_half["a"] - 10) <= 1
        assert abs(first_half["b"] - 4) <= 1
        assert first_half["c"] == 1


def test_the_order_within_a_kind_is_shuffled():
    firsts = {
        next(t for t in (TaskOrder(IDS, KINDS, seed=s)[i] for i in range(30)) if t in IDS[:20]) for s in range(40)
    }
    assert len(firsts) > 5

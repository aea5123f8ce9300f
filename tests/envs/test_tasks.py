import hashlib
import pickle
from collections import Counter

import numpy as np
import pytest

from corrgrpo_envs import SPLITS, Task, TaskSet, drawn_split, with_validation
from corrgrpo_envs.tasks import fraction


def test_drawn_splits_by_the_hash():
    ids = [f"task {i} é\ud800" for i in range(3000)]
    for task_id in ids[:200]:
        digest = hashlib.sha256(task_id.encode("utf-8", "surrogatepass")).hexdigest()
        tenths = int(digest, 16) * 10 >> 256
        assert drawn_split(task_id) == {0: "validation", 1: "test"}.get(tenths, "train")
        assert fraction(task_id) == pytest.approx(int(digest[:12], 16) / 16**12, abs=1e-12)
    counts = Counter(map(drawn_split, ids))
    for split, share in (("train", 0.8), ("validation", 0.1), ("test", 0.1)):
        assert abs(counts[split] - share * 3000) < 5 * np.sqrt(3000 * share * (1 - share))


def test_validation_is_taken_from_train_only_where_there_is_none():
    tasks = [Task(str(i), "test" if i % 5 == 0 else "train", i) for i in range(1000)]
    moved = with_validation(tasks)
    for before, after in zip(tasks, moved, strict=True):
        below = int(hashlib.sha256(before.id.encode()).hexdigest(), 16) * 10 < 2**256
        assert after.split == ("validation" if before.split == "train" and below else before.split)
        assert after.data == before.data
    assert any(task.split == "validation" for task in moved)
    assert with_validation(moved) == moved


TASKS = [Task("a", "train", 1), Task("b", "train", 2), Task("c", "validation", 3), Task("d", "test", 4)]


@pytest.mark.parametrize(("split", "ids"), [*zip(SPLITS, ["ab", "c", "d", "abcd"], strict=True)])
def test_a_task_set_holds_one_split(split, ids):
    tasks = TaskSet(TASKS, split, "letters")
    assert [task.id for task in tasks] == list(ids)
    assert len(tasks) == len(ids)
    assert tasks[0] is tasks.get(ids[0])
    assert tasks[-1].id == ids[-1]
    assert tasks[np.int64(0)].id == ids[0]
    assert [task.id for task in tasks[0:2]] == list(ids[:2])
    assert ids[0] in tasks
    assert tasks[0] in tasks
    assert "z" not in tasks
    assert list(pickle.loads(pickle.dumps(tasks))) == list(tasks)
    assert repr(tasks) == f"TaskSet('letters', split={split!r}, {len(ids)} tasks)"
    with pytest.raises(IndexError):
        tasks[len(ids)]


def test_a_task_elsewhere_is_pointed_to():
    with pytest.raises(ValueError, match=r"task_id 'd' is in split 'test' of data set 'letters', not in 'train'"):
        TaskSet(TASKS, "train", "letters").get("d")
    with pytest.raises(ValueError, match=r"task_id 'two_sum' is not in .*Did you mean 'two-sum'\?"):
        TaskSet([Task("two-sum", "train", 0)]).get("two_sum")


@pytest.mark.parametrize(
    ("tasks", "split", "words"),
    [
        (TASKS, "dev", "split 'dev' is unknown"),
        (TASKS[:2], "test", r"split 'test' of data set 'letters' is empty; .*\{'train': 2\}"),
        ([], "all", "empty"),
        ([*TASKS, Task("a", "test", 9)], "all", r"task ids twice: \['a'\]"),
        ([Task("x", "dev", 9)], "all", "the split of task 'x' 'dev' is unknown"),
    ],
)
def test_wrong_task_sets(tasks, split, words):
    with pytest.raises(ValueError, match=words):
        TaskSet(tasks, split, "letters")

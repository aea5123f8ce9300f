import time

import numpy as np
import pytest

from corrgrpo_envs import DatasetError
from corrgrpo_envs.errors import shown, suggestion, unknown


def test_unknown_names_what_was_given_allowed_and_meant():
    error = unknown("--method", "corgrpo", ["grpo", "corrgrpo", "gdpo"])
    expected = "--method 'corgrpo' is unknown; allowed: 'grpo', 'corrgrpo', 'gdpo'. Did you mean 'corrgrpo'?"
    assert str(error) == expected
    assert isinstance(error, ValueError)
    assert len(error.args) == 1


def test_allowed_names_of_any_length_leave_a_message_readable():
    message = str(unknown("tool", "x", ["y" * 100_000, "[" * 3000, "a\nb"]))
    assert len(message) < 600
    assert "a\\nb" in message


def test_long_lists_are_cut():
    message = str(unknown("task", "zzz", range(100), listed=3))
    assert message == "task 'zzz' is unknown; allowed: '0', '1', '2', … (100 in all)."
    assert "allowed: none" in str(unknown("task", "x", []))


def test_suggestions_look_past_case():
    assert suggestion("TRAIN", ["train", "test"]) == " Did you mean 'train'?"
    assert suggestion("qqq", ["train", "test"]) == ""


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10**7,
        "\ud800" * 10**6,
        "line\nline",
        b"x" * 10**6,
        10**6000,
        list(range(10**5)),
        {i: i for i in range(10**5)},
        np.zeros((50, 50)),
        None,
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_value_is_shown_on_one_short_line_at_once(value):
    start = time.process_time()
    message = str(unknown("option", value, [f"name {i}" for i in range(5000)]))
    assert time.process_time() - start < 2
    assert len(message) < 800
    assert "\n" not in message
    message.encode()


def test_shown_of_ordinary_values():
    assert shown("two-sum") == "'two-sum'"
    assert shown(1.5) == "1.5"
    assert shown([1, "a"]) == "[1, 'a']"


def test_a_dataset_error_is_a_value_error_with_one_argument():
    error = DatasetError("train.jsonl, row 3: field 'x' is missing")
    assert isinstance(error, ValueError)
    assert type(error)(*error.args).args == error.args

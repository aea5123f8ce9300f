import json
from pathlib import Path

import pytest

from corrgrpo_train.outcome import outcome, sign_test


def write(path: Path, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def step(number, reward, style, silent=0.5):
    return {
        "step": number,
        "reward/mean": reward,
        "components/style/mean": style,
        "estimator/share_without_signal": silent,
    }


def validation(values):
    return [{"task_id": f"t{n}", "reward": v, "components": {"style": v, "tone": 1.0}} for n, v in enumerate(values)]


def test_the_sign_test_is_the_binomial_s():
    # Two-sided, by hand: 2 * (1 + 7 + 21) / 2^7 for 5 to 2; 2 / 2^6 for 6 to none.
    assert sign_test(5, 2) == pytest.approx(58 / 128)
    assert sign_test(0, 6) == sign_test(6, 0) == pytest.approx(2 / 64)
    assert sign_test(0, 0) == sign_test(3, 3) == 1.0


def test_what_was_learnt_and_what_was_not(tmp_path):
    first = {"step": 0, "phase": "base", "validation/reward": 0.0}
    rows = [first, step(1, 0.0, 0.25), step(2, 0.5, 0.5, silent=1.0), step(3, 0.75, 0.75, silent=0.0)]
    write(tmp_path / "metrics.jsonl", rows)
    # Six of seven tasks are better since the warm start, none worse; since before training two and two.
    write(tmp_path / "transcripts/validation_base_000000.jsonl", validation([0, 0, 1, 1, 0.5, 0.5, 0.5]))
    write(tmp_path / "transcripts/validation_warm_start_000000.jsonl", validation([0, 0, 0, 0, 0, 0, 0.5]))
    write(tmp_path / "transcripts/validation_train_000002.jsonl", validation([0] * 7))
    write(tmp_path / "transcripts/validation_train_000003.jsonl", validation([0.5] * 7))
    assert outcome(tmp_path) == [
        "Groups with a signal: 50%. Sampled in training, first step to last: reward 0.00 to 0.75, style 0.25 to 0.75.",
        "Held-out tasks since the warm start: reward rose (better on 6, worse on 0 of 7; p = 0.031); style rose "
        "(better on 6, worse on 0 of 7; p = 0.031); tone unchanged on all 7.",
        "Held-out tasks since before training: reward no change beyond chance (better on 2, worse on 2 of 7; p = 1); "
        "style no change beyond chance (better on 2, worse on 2 of 7; p = 1); tone unchanged on all 7.",
    ]


def test_tasks_of_the_training_split_are_not_called_held_out(tmp_path):
    write(tmp_path / "metrics.jsonl", [step(1, 0.0, 0.0)])
    for phase in ("base", "train"):
        write(tmp_path / f"transcripts/validation_{phase}_000000.jsonl", validation([0, 0]))
    for split, words in (("validation", "Held-out tasks since"), ("train", "Tasks that were trained on, since")):
        (tmp_path / "config.yaml").write_text(f"validation_split: {split}\n")
        assert outcome(tmp_path)[1].startswith(f"{words} before training: ")


def test_tasks_that_were_not_scored_are_not_compared(tmp_path):
    write(tmp_path / "metrics.jsonl", [step(1, 0.0, 0.0, silent=None)])
    failed = [{"task_id": "t0", "reward": None, "components": {}}]
    write(tmp_path / "transcripts/validation_base_000000.jsonl", failed + validation([0, 0])[1:])
    write(tmp_path / "transcripts/validation_train_000001.jsonl", validation([1, 1]))
    signal, since = outcome(tmp_path)
    assert signal.startswith("Groups with a signal: none.")
    assert "reward no change beyond chance (better on 1, worse on 0 of 1" in since


def test_a_run_without_steps_or_validation(tmp_path):
    assert outcome(tmp_path) == []
    write(tmp_path / "metrics.jsonl", [step(1, 0.0, 0.0)])
    assert len(outcome(tmp_path)) == 1

"""The command line on the policy of a few parameters: results, cache, own estimators, wrong input."""

import dataclasses
import json
import math
import sys

import pytest
import torch

from corrgrpo_train.advantages import ESTIMATORS
from corrgrpo_train.bandit_policy import train_bandit
from corrgrpo_train.benchmark import bandit_runs, cli

pytest.importorskip("scipy")
pytest.importorskip("plotly")
torch.set_num_threads(1)

BANDIT = ["--env", "CorrelatedBandit-v0", "--seeds", "3", "--steps", "12", "--quiet"]


def read(folder):
    return json.loads((folder / "comparison.json").read_text())


def row(comparison, method, place=0):
    return next(one for one in comparison["conditions"][place]["rows"] if one["method"] == method)


def test_numbers_are_those_of_the_policy_itself(tmp_path, capsys):
    arguments = [*BANDIT, "--methods", "corrgrpo,grpo", "--sweep", "scale=1,5", "--learning-rate", "4"]
    assert cli.main([*arguments, "--env-args.noise", "0.5", "--output", str(tmp_path)]) == 0
    comparison = read(tmp_path)
    assert [one["sweep"] for one in comparison["conditions"]] == [{"scale": 1}, {"scale": 5}]
    env = {"noise": 0.5, "scales": [1.0, 1.0, 5]}
    runs = {
        method: train_bandit(method, seeds=range(3), steps=12, learning_rate=4.0, env_args=env)
        for method in ("corrgrpo", "grpo")
    }
    for method, run in runs.items():
        values = row(comparison, method, 1)["values"]
        assert values["reward/final"]["mean"] == pytest.approx(run.reward[:, -1].mean().item())
        assert values["components/reward_3/final"]["mean"] == pytest.approx(run.components[:, -1, 2].mean().item())
        probabilities = run.logits.double().softmax(-1)
        entropy = -(probabilities * probabilities.log()).sum(-1).mean()
        assert values["entropy/final"]["mean"] == pytest.approx(entropy.item(), abs=1e-6)
    apart = (runs["grpo"].reward - runs["corrgrpo"].reward)[:, -1].mean().item()
    assert row(comparison, "grpo", 1)["differences"]["reward/final"]["mean"] == pytest.approx(apart)
    text = capsys.readouterr().out
    assert "scale 5: difference from corrgrpo" in text
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "comparison.html").read_text()
    assert "Reward area less that of corrgrpo" in page


def test_what_is_done_is_not_done_again(tmp_path, monkeypatch):
    assert cli.main([*BANDIT, "--methods", "corrgrpo,grpo", "--output", str(tmp_path)]) == 0
    trained = []
    original = bandit_runs.train_cell
    monkeypatch.setattr(bandit_runs, "train_cell", lambda one: trained.append(one.cell.method) or original(one))
    assert cli.main([*BANDIT, "--methods", "corrgrpo,grpo,gdpo", "--output", str(tmp_path)]) == 0
    assert trained == ["gdpo"]
    # Other settings are other results.
    assert cli.main([*BANDIT, "--methods", "corrgrpo,grpo", "--group-size", "4", "--output", str(tmp_path)]) == 0
    assert trained == ["gdpo", "corrgrpo", "grpo"]


def test_an_interrupted_comparison_goes_on(tmp_path, monkeypatch, capsys):
    original = bandit_runs.train_cell

    def interrupted(one):
        if one.cell.method == "gdpo":
            raise KeyboardInterrupt
        return original(one)

    arguments = [*BANDIT, "--methods", "corrgrpo,grpo,gdpo", "--output", str(tmp_path)]
    monkeypatch.setattr(bandit_runs, "train_cell", interrupted)
    assert cli.main(arguments) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert len(list((tmp_path / "cells").glob("*.json"))) == 2
    monkeypatch.setattr(bandit_runs, "train_cell", original)
    assert cli.main(arguments) == 0
    assert len(read(tmp_path)["conditions"][0]["rows"]) == 3


@pytest.mark.slow
def test_several_processes_give_the_same(tmp_path):
    for jobs in ("1", "2"):
        assert cli.main([*BANDIT, "--methods", "corrgrpo,gdpo", "--jobs", jobs, "--output", str(tmp_path / jobs)]) == 0
    one, two = (read(tmp_path / jobs)["conditions"] for jobs in ("1", "2"))
    assert one == two


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_estimators.py").write_text(
        "from corrgrpo_train.advantages import register\n\n\n"
        "@register('doubled', per_group=True)\n"
        "def doubled(batch, *, factor: float = 2.0):\n"
        "    return factor * batch.centred_total\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    ESTIMATORS.pop("doubled", None)
    sys.modules.pop("own_estimators", None)


def test_a_users_estimator_takes_part_by_name(tmp_path, own_module):
    arguments = [*BANDIT, "--methods", "dr_grpo,own_estimators:doubled", "--learning-rate", "2"]
    assert cli.main([*arguments, "--output", str(tmp_path / "out")]) == 0
    expected = train_bandit("dr_grpo", seeds=range(3), steps=12, learning_rate=4.0)  # twice the step
    found = row(read(tmp_path / "out"), "doubled")
    assert found["values"]["reward/final"]["mean"] == pytest.approx(expected.reward[:, -1].mean().item(), rel=1e-4)
    assert found["differences"]["reward/final"]["count"] == 3


def test_objectives_are_compared_each_with_its_own_baseline(tmp_path):
    arguments = [*BANDIT, "--methods", "corrgrpo,grpo", "--objectives", "grpo,cispo", "--updates-per-rollout", "4"]
    assert cli.main([*arguments, "--output", str(tmp_path)]) == 0
    rows = read(tmp_path)["conditions"][0]["rows"]
    assert [(one["method"], one["objective"], bool(one["differences"])) for one in rows] == [
        ("corrgrpo", "grpo", False),
        ("corrgrpo", "cispo", False),
        ("grpo", "grpo", True),
        ("grpo", "cispo", True),
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name an environment"),
        (["--env", "CorrelatedBandit-v0", "--methods", "corrgrpo,gpro"], "error: method 'gpro' is unknown"),
        (["--env", "CorrelatedBandit-v0", "--objectives", "ppo"], "objective 'ppo' is unknown"),
        (["--env", "CorrelatedBandit-v0", "--seed", "3"], "here it is --seeds"),
        (["--env", "CorrelatedBandit-v0", "--method", "grpo"], "here it is --methods"),
        (["--env", "CorrelatedBandit-v0", "--temperature", "2"], "temperature has no effect"),
        (["--env", "CorrelatedBandit-v0", "--group-size", "0"], "group_size must be"),
        (["--env", "CorrelatedBandit-v0", "--sweep", "scal=1,2"], "Did you mean 'scale"),
        (["--env", "CorrelatedBandit-v0", "--sweep", "scale=-1"], "a scale must be"),
        (["--env", "CorrelatedBandit-v0", "--sweep", "noise=2020-01-01"], "of JSON values"),
        (["--env", "CorrelatedBandit-v0", "--sweep", "noise=1e-1,0.1"], "name 0.1 twice"),
        (["--env", "CorrelatedBandit-v0", "--sweep", "scale=1,2", "--env-args.components", "x"], "components must be"),
        (["--env", "CorrelatedBandit-v0", "--seeds", f"1,{2**63}"], "seeds must be"),
        (["--env", "CorrelatedBandit-v0", "--jobs", "0"], "jobs must be at least 1"),
        (["--env", "CorrelatedBandit-v0", "--methods", "corrgrpo", "--baseline", "grpo"], "baseline 'grpo' is unknown"),
        (["--env", "CorrelatedBandit-v0", "--stepz", "3"], "there is no flag --stepz"),
        (["--env", "CorrelatedBandit-v0", "--policy", "tabel"], "invalid choice"),
        (["--env", "RLLA-v0", "--policy", "bandit"], "is for CorrelatedBandit-v0, not RLLA-v0"),
        (["--env", "RLLA-v0", "--optimizer", "adamw"], "--optimizer is for policy 'bandit'"),
        (["--env", "CorrelatedBandit-v0", "--methods", "nowhere_to_be:found"], "nowhere_to_be"),
    ],
)
def test_wrong_input_is_one_line(tmp_path, capsys, arguments, words):
    assert cli.main([*arguments, "--output", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_one_process_at_a_time_writes_a_folder(tmp_path, capsys):
    import subprocess

    holder = (
        "import sys, fcntl\nfile = open(sys.argv[1], 'a')\nfcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"locked\n"
        assert cli.main([*BANDIT, "--output", str(tmp_path)]) == 2
        other.stdin.close()
    assert "another process is writing" in capsys.readouterr().err


EDITED = """
from corrgrpo_train.advantages import register

LEVEL = 2.0


def level():
    return LEVEL


@register("leveled", per_group=True)
def leveled(batch):
    return level() * batch.centred_total
"""


@pytest.fixture
def edited_module(tmp_path, monkeypatch):
    path = tmp_path / "edited_estimators.py"
    path.write_text(EDITED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget():
        ESTIMATORS.pop("leveled", None)
        sys.modules.pop("edited_estimators", None)

    yield path, forget
    forget()


def test_a_method_that_fails_later_keeps_what_is_done(tmp_path, monkeypatch, capsys):
    original = bandit_runs.train_bandit

    def late(method, **arguments):
        if method == "gdpo" and arguments["steps"] > 1:
            raise KeyError("late")
        return original(method, **arguments)

    monkeypatch.setattr(bandit_runs, "train_bandit", late)
    assert cli.main([*BANDIT, "--methods", "grpo,gdpo", "--output", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "gdpo grpo: KeyError: 'late'" in said
    assert said.count("\n") == 1
    assert len(list(tmp_path.glob("cells/*.json"))) == 1


def test_a_policy_that_diverged_is_not_compared(tmp_path, monkeypatch, capsys):
    original = bandit_runs.train_bandit

    def diverging(method, **arguments):
        run = original(method, **arguments)
        if method == "dr_grpo":
            curves = {name: getattr(run, name).clone() for name in ("components", "reward", "best_arm", "kl")}
            for values in curves.values():
                values[-1, 2:] = math.nan  # the last seed, at the last of the measurements after 0, 10 and 12 steps
            run = dataclasses.replace(run, **curves)
        return run

    monkeypatch.setattr(bandit_runs, "train_bandit", diverging)
    assert cli.main([*BANDIT, "--methods", "grpo,dr_grpo,gdpo", "--output", str(tmp_path)]) == 0
    lost, other = (row(read(tmp_path), method) for method in ("dr_grpo", "gdpo"))
    assert lost["values"] == lost["differences"] == {}
    assert other["differences"]["reward/final"]["count"] == 3
    assert "training diverged or nothing could be scored: dr_grpo." in capsys.readouterr().out


def test_an_edit_beside_the_estimator_trains_again(tmp_path, edited_module, monkeypatch):
    path, forget = edited_module
    arguments = [*BANDIT, "--methods", "grpo,edited_estimators:leveled", "--output", str(tmp_path / "out")]
    assert cli.main(arguments) == 0
    first = row(read(tmp_path / "out"), "leveled")["values"]["reward/final"]["mean"]
    path.write_text(EDITED.replace("LEVEL = 2.0", "LEVEL = 0.5  # less"))
    forget()
    trained = []
    original = bandit_runs.train_cell
    monkeypatch.setattr(bandit_runs, "train_cell", lambda one: trained.append(one.cell.method_name) or original(one))
    assert cli.main(arguments) == 0
    assert trained == ["leveled"]
    assert row(read(tmp_path / "out"), "leveled")["values"]["reward/final"]["mean"] < first


def test_damaged_results_are_made_again(tmp_path):
    arguments = [*BANDIT, "--methods", "grpo,dr_grpo", "--output", str(tmp_path)]
    assert cli.main(arguments) == 0
    before = read(tmp_path)
    for path, content in zip(sorted(tmp_path.glob("cells/*.json")), (b"", b'{"method": 1}'), strict=True):
        path.write_bytes(content)
    assert cli.main(arguments) == 0
    assert read(tmp_path) == before


def test_what_cannot_be_written_is_told_in_one_line(tmp_path, capsys):
    (tmp_path / "comparison.json").mkdir()
    arguments = [*BANDIT, "--methods", "grpo", "--output", str(tmp_path)]
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err
    assert "comparison.json cannot be written" in said
    assert said.count("\n") == 1
    cells = list(tmp_path.glob("cells/*.json"))
    cells[0].unlink()
    cells[0].mkdir()
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err
    assert "what is done is kept" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return None", "estimator 'faulty' must return a tensor of shape ("),
        ("return batch.components", "estimator 'faulty' must return a tensor of shape ("),
        ("return batch.centred_total * float('nan')", "estimator 'faulty' gave advantages that are nan"),
        ("return batch.nothing", "AttributeError: 'Batch' object has no attribute 'nothing' (--traceback shows where)"),
    ],
)
def test_a_faulty_estimator_is_one_line(tmp_path, monkeypatch, capsys, body, words):
    (tmp_path / "faulty_estimators.py").write_text(
        f"from corrgrpo_train.advantages import register\n\n\n@register('faulty')\ndef faulty(batch):\n    {body}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = [*BANDIT, "--methods", "faulty_estimators:faulty,grpo", "--output", str(tmp_path / "out")]
    try:
        assert cli.main(arguments) == 2
    finally:
        ESTIMATORS.pop("faulty", None)
        sys.modules.pop("faulty_estimators", None)
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_an_estimator_that_breaks_later_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "late_estimators.py").write_text(
        "from corrgrpo_train.advantages import register\n\nCALLS = []\n\n\n@register('late')\ndef late(batch):\n"
        "    CALLS.append(1)\n    return batch.centred_total * (float('nan') if len(CALLS) > 8 else 1.0)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = [*BANDIT, "--methods", "late_estimators:late,grpo", "--output", str(tmp_path / "out")]
    try:
        assert cli.main(arguments) == 2
    finally:
        ESTIMATORS.pop("late", None)
        sys.modules.pop("late_estimators", None)
    said = capsys.readouterr().err
    assert "late grpo: estimator 'late' gave advantages that are nan" in said
    assert said.count("\n") == 1

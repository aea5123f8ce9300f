"""Whole evaluations of a tiny model in this process: what is written, resumed, shared out and refused."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import rollout_envs
import torch

from corrgrpo_train.evaluate.cli import main
from corrgrpo_train.evaluate.results import read_result
from corrgrpo_train.models.tiny import build_tiny

ROOT = Path(__file__).parents[3]
TOY = "rollout_envs:rollout/Toy-v0"
BASE = ["--model", "tiny", "--threads", "1", "--max-new-tokens", "6", "--no-published", "--quiet", "--split", "train"]
SAMPLED = [*BASE, "--env", TOY, "--env-args", '{"turns": 2}', "--samples", "3", "--temperature", "1", "--batch", "4"]


def run(*arguments):
    return main(list(arguments))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("whole") / "r.json"
    assert run(*SAMPLED, "--output", str(path)) == 0
    return path


def test_every_sample_is_written_and_measured(whole):
    found = json.loads(whole.read_text())
    (toy,) = found["environments"]
    assert toy["tasks"] == [f"toy-{number}" for number in range(6)]
    assert [(row["task"], row["sample"]) for row in toy["samples"]] == [
        (task, sample) for task in toy["tasks"] for sample in range(3)
    ]
    rows = toy["samples"]
    assert {row["status"] for row in rows} == {"ok"}
    assert all(len(row["texts"]) == 2 for row in rows)
    assert all(row["metrics"] == {"turns": 2.0} for row in rows)
    assert all(1 <= row["tokens"] <= 12 for row in rows)
    for row in rows:
        text = row["texts"][-1]
        assert row["components"]["letters"] == text.count("e") / max(1, len(text))
        assert row["reward"] == pytest.approx(row["components"]["letters"] + 0.5 * row["components"]["short"])
    assert toy["summary"]["reward"] == pytest.approx(sum(row["reward"] for row in rows) / 18)
    assert toy["summary"]["reward_count"] == 18
    assert len({tuple(row["texts"]) for row in rows}) > 12, "samples of a task differ"
    journal = whole.with_name("r.jsonl").read_text().splitlines()
    assert len(journal) == 19


def test_greedy_texts_are_those_of_plain_generation(tmp_path):
    path = tmp_path / "r.json"
    assert run(*BASE, "--env", TOY, "--env-args", '{"with_tools": false}', "--output", str(path)) == 0
    model, tokenizer = build_tiny(seed=0)
    for sample in read_result(path).environments[TOY].samples:
        letters = "a" + "b" * int(sample.task.removeprefix("toy-"))
        messages = [{"role": "system", "content": "spell"}, {"role": "user", "content": letters}]
        prompt = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        ids = model.generate(**prompt, max_new_tokens=6, do_sample=False)[0, prompt["input_ids"].shape[1] :].tolist()
        if ids[-1] == tokenizer.eos_token_id:
            ids.pop()
        assert sample.texts == (tokenizer.decode(ids),)


def test_a_finished_evaluation_is_shown_again_without_a_model(whole, monkeypatch, capsys):
    before = whole.read_bytes()
    monkeypatch.setattr("corrgrpo_train.evaluate.local.LocalSampler.__init__", None)
    assert run(*SAMPLED, "--output", str(whole)) == 0
    assert whole.read_bytes() == before
    shown = capsys.readouterr().out
    assert run("show", str(whole)) == 0
    assert capsys.readouterr().out.strip() in shown


@pytest.mark.parametrize("share", [0.02, 0.3, 0.55, 0.8, 0.999])
def test_a_journal_cut_anywhere_gives_the_same_file(whole, tmp_path, share):
    journal = whole.with_name("r.jsonl").read_bytes()
    path = tmp_path / "r.json"
    path.with_name("r.jsonl").write_bytes(journal[: int(share * len(journal))])
    assert run(*SAMPLED, "--output", str(path)) == 0
    assert path.read_bytes() == whole.read_bytes()


def test_a_killed_evaluation_goes_on_and_gives_the_same_file(tmp_path):
    arguments = [argument.replace("Toy", "Mortal") for argument in SAMPLED]
    unharmed, killed = tmp_path / "a.json", tmp_path / "b.json"
    assert run(*arguments, "--output", str(unharmed)) == 0
    # Units of 4 episodes of 2 turns: the 21st step is in the third unit.
    code = (
        "import sys, torch; torch.set_num_threads(1); import rollout_envs; rollout_envs.MortalEnv.left = 21; "
        "from corrgrpo_train.evaluate.cli import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, *arguments, "--output", str(killed), "--env-workers", "1"]
    paths = os.pathsep.join([str(ROOT), str(Path(rollout_envs.__file__).parent)])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not killed.exists()
    rows = killed.with_name("b.jsonl").read_text().splitlines()
    assert len(rows) == 1 + 8, "the units that were finished"
    assert run(*arguments, "--output", str(killed)) == 0
    assert killed.read_bytes() == unharmed.read_bytes()


def test_shards_together_are_the_whole(whole, tmp_path, monkeypatch, capsys):
    parts = [tmp_path / f"{number}.json" for number in (1, 2, 3)]
    for number, part in enumerate(parts, start=1):
        assert run(*SAMPLED, "--shard", f"{number}/3", "--output", str(part)) == 0
    assert "this is a part" in capsys.readouterr().out
    assert [len(read_result(part).environments[TOY].samples) for part in parts] == [8, 6, 4]
    together = tmp_path / "all.json"
    # In any order.
    assert run("merge", *map(str, reversed(parts)), "--output", str(together)) == 0
    assert together.read_bytes() == whole.read_bytes()
    # It can be gone on with as any other: nothing is played again.
    monkeypatch.setattr("corrgrpo_train.evaluate.local.LocalSampler.__init__", None)
    assert run(*SAMPLED, "--output", str(together)) == 0
    assert together.read_bytes() == whole.read_bytes()
    assert run("merge", str(parts[0]), str(parts[2]), "--output", str(tmp_path / "x.json")) == 2
    assert "shard 2/3 is missing" in capsys.readouterr().err
    assert run("merge", *map(str, [*parts, parts[1]]), "--output", str(tmp_path / "x.json")) == 2
    assert "are both shard 2/3" in capsys.readouterr().err


def test_other_settings_do_not_touch_what_is_there(whole, tmp_path, capsys):
    before = whole.read_bytes()
    assert run(*SAMPLED, "--seed", "1", "--output", str(whole)) == 2
    assert "holds an evaluation with seed 0, not 1: choose another --output" in capsys.readouterr().err
    assert whole.read_bytes() == before
    # The journal alone, of an evaluation that was interrupted.
    path = tmp_path / "r.json"
    path.with_name("r.jsonl").write_bytes(whole.with_name("r.jsonl").read_bytes()[:2000])
    assert run(*SAMPLED, "--seed", "1", "--output", str(path)) == 2
    assert "r.jsonl holds an evaluation with seed 0, not 1" in capsys.readouterr().err
    # Settings under which nothing was finished hold nobody up.
    first = path.with_name("r.jsonl").read_bytes().split(b"\n")[0]
    path.with_name("r.jsonl").write_bytes(first + b"\n")
    assert run(*SAMPLED, "--seed", "1", "--output", str(path)) == 0
    assert read_result(path).settings["seed"] == 1


def test_another_model_under_the_same_name_is_not_mixed_in(tmp_path, capsys):
    folder, path = tmp_path / "policy", tmp_path / "r.json"
    model, tokenizer = build_tiny(seed=0)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    arguments = [*BASE[2:], "--env", TOY, "--model", str(folder), "--output", str(path)]
    assert run(*arguments) == 0
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.add_(1e-3)
        model.lm_head.weight.add_(1e-3)
    model.save_pretrained(folder)
    assert run(*arguments) == 2
    assert re.search(r"holds an evaluation with weights '\w{16}', not '\w{16}'", capsys.readouterr().err)


def test_another_seed_gives_other_samples(whole, tmp_path, capsys):
    path = tmp_path / "r.json"
    assert run(*SAMPLED, "--seed", "1", "--output", str(path)) == 0
    assert run("compare", str(whole), str(path)) == 0
    shown = capsys.readouterr().out
    assert "settings that differ: seed 0, not 1" in shown
    assert re.search(r"│ reward +│ [-.\d]+ │ +[-.\d]+ │ +[-+.\d]+ │ .* │ +6 │ +[.\de-]+ │ sign flip │", shown)
    texts = [[s.texts for s in read_result(one).environments[TOY].samples] for one in (whole, path)]
    assert sum(one == other for one, other in zip(*texts, strict=True)) < 6


def test_a_task_s_samples_do_not_depend_on_what_else_is_played(whole, tmp_path):
    path = tmp_path / "r.json"
    assert run(*SAMPLED, "--tasks", "2", "--output", str(path)) == 0
    few = read_result(path).environments[TOY]
    everything = {sample.key: sample for sample in read_result(whole).environments[TOY].samples}
    assert len(few.samples) == 6
    # One task of each kind: kinds are spread evenly.
    assert {int(task.removeprefix("toy-")) % 2 for task in few.tasks} == {0, 1}
    for sample in few.samples:
        assert sample.texts == everything[sample.key].texts


def test_episodes_that_fail_are_told_and_played_again_when_asked(tmp_path, capsys):
    path = tmp_path / "r.json"
    arguments = [*BASE, "--env", "rollout_envs:rollout/Failing-v0", "--env-args", '{"fail": "reset"}']
    assert run(*arguments, "--output", str(path)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 of 6 episodes could not be scored and count nowhere (1 × ConnectionError: no simulator)" in shown
    (one,) = read_result(path).environments.values()
    (failed,) = [sample for sample in one.samples if not sample.scored]
    assert (failed.task, failed.status, failed.components) == ("toy-1", "environment_error", {})
    assert one.summary["reward_count"] == 5
    lines = len(path.with_name("r.jsonl").read_text().splitlines())
    assert run(*arguments, "--retry", "--output", str(path)) == 0
    # The batch of the failed episode is played again, as a whole.
    assert len(path.with_name("r.jsonl").read_text().splitlines()) == lines + 6


def test_scores_that_infrastructure_failed_count_nowhere(tmp_path):
    path = tmp_path / "r.json"
    assert run(*BASE, "--env", "rollout_envs:rollout/Nan-v0", "--output", str(path)) == 0
    (one,) = read_result(path).environments.values()
    assert all(not sample.scored for sample in one.samples)
    assert "reward" not in one.summary
    assert "NaN" not in path.read_text()
    assert json.loads(path.read_text())["environments"][0]["samples"][0]["components"]["short"] is None


def test_prompts_without_room_are_told(tmp_path):
    # One token of the byte-level tokenizer for each special token and each byte.
    length = 1 + len("system\nspell") + 2 + 1 + len("user\nabbb") + 2 + 1 + len("assistant\n")
    path = tmp_path / "r.json"
    arguments = [*BASE, "--env", TOY, "--env-args", '{"with_tools": false}', "--max-episode-tokens", str(length)]
    assert run(*arguments, "--output", str(path)) == 0
    (one,) = read_result(path).environments.values()
    lost = [sample for sample in one.samples if not sample.scored]
    assert [sample.task for sample in lost] == ["toy-3", "toy-4", "toy-5"]
    assert all("longer than an episode may be" in sample.error for sample in lost)


def test_environments_without_tasks_are_seeded(tmp_path):
    path = tmp_path / "r.json"
    assert run(*BASE, "--env", "rollout_envs:rollout/Bare-v0", "--tasks", "5", "--output", str(path)) == 0
    (one,) = read_result(path).environments.values()
    # Training's seeds begin at 0, those of its validation at 2**30.
    assert one.tasks == tuple(f"seed:{2**30 + 2**29 + number}" for number in range(5))
    assert set(one.summary) >= {"reward", "components/hit"}


def test_several_environments_in_one_call(tmp_path, capsys):
    path = tmp_path / "r.json"
    arguments = ["--env", "RLLA-v0", "--env", "APIBank-v0", "--env-args", 'APIBank-v0={"levels": [1, 2, 3]}']
    small = [*BASE[:6], "--quiet", "--tasks", "3", "--batch", "3", "--max-new-tokens", "2"]
    assert run(*arguments, *small, "--output", str(path)) == 0
    result = read_result(path)
    assert list(result.environments) == ["RLLA-v0", "APIBank-v0"]
    # A model that knows nothing: 0 of everything, and so is the mean of both.
    assert result.aggregates == {"overall": 0.0}
    shown = capsys.readouterr().out
    assert "Published table 2" in shown
    assert "Qwen3-8B CorrGRPO" in shown
    assert "protocol: RLLA-4K's 80 test rows" in shown
    assert "Published table 1" not in shown
    assert run("compare", str(path), str(path)) == 0
    assert "all exact" in capsys.readouterr().out


WRONG = {
    "no environment": (["--model", "tiny"], "the following arguments are required: --env"),
    "unknown environment": (["--env", "RLA-v0"], "Did you mean 'RLLA-v0'?"),
    "unknown flag": (["--env", "RLLA-v0", "--sample", "3"], "there is no flag --sample. Did you mean '--samples'?"),
    "unknown command": (["comparee", "a", "b"], "Did you mean 'compare'?"),
    "model": (["--env", "RLLA-v0", "--model", "./nowhere"], "model folder './nowhere' does not exist"),
    "split": (["--env", "RLLA-v0", "--split", "tests"], "Did you mean 'test'?"),
    "env args": (["--env", "RLLA-v0", "--env-args", "{"], "env_args must be a JSON object"),
    "env args of none": (
        ["--env", "RLLA-v0", "--env-args", "APIBank-v0={}"],
        "env_args for environment 'APIBank-v0' is unknown",
    ),
    "unknown env arg": (["--env", "RLLA-v0", "--env-args", '{"kind": 1}'], "env_args 'kind' is unknown"),
    "greedy samples": (["--env", "RLLA-v0", "--samples", "4"], "at temperature 0 would be the same answer 4 times"),
    "temperature": (["--env", "RLLA-v0", "--temperature", "-1"], "temperature must be 0 (greedy) or at least 0.01"),
    "no number": (["--env", "RLLA-v0", "--samples", "many"], "invalid int value: 'many'"),
    "shard": (["--env", "RLLA-v0", "--shard", "3/2"], "shard must be written I/N"),
    "twice": (["--env", "RLLA-v0", "--env", "corrgrpo/RLLA-v0"], "environment RLLA-v0 is named twice"),
    "server flags": (["--env", "RLLA-v0", "--tool-mode", "text"], "tool_mode has no effect without --server URL"),
    "vllm flags": (["--env", "RLLA-v0", "--schedule", "async"], "schedule has no effect without --engine vllm"),
    "efficiency": (["--env", "RLLA-v0", "--efficiency"], "efficiency needs LeetCode-v0"),
    "server URL": (["--env", "RLLA-v0", "--server", "localhost:8000"], "server must be a URL like http"),
    "key": (
        ["--env", "RLLA-v0", "--server", "http://x/v1", "--server-key-env", "NO_SUCH_VARIABLE_1"],
        "the environment variable NO_SUCH_VARIABLE_1 holds no key",
    ),
    "stray word": (["--env", "RLLA-v0", "tiny"], "there is no argument 'tiny'"),
    "output": (["--env", "RLLA-v0", "--output", "x"], "output must be a file whose name ends with .json"),
    "result": (["show", "nowhere.json"], "nowhere.json cannot be read: No such file"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_told_in_one_line(name, tmp_path, monkeypatch, capsys):
    arguments, expected = WRONG[name]
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    said = capsys.readouterr()
    assert said.err.startswith("corrgrpo_train.evaluate: error: ")
    assert expected in said.err
    assert said.err.count("\n") == 1
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2}', '{"schema": 1}', "[" * 100_000, "\x00"])
def test_files_that_are_no_results_are_told(text, tmp_path, capsys):
    path = tmp_path / "r.json"
    path.write_text(text)
    for command in ("show", "compare"):
        assert run(command, *[str(path)] * (2 if command == "compare" else 1)) == 2
        said = capsys.readouterr().err
        assert str(path) in said
        assert said.count("\n") == 1


def test_a_damaged_line_of_the_journal_is_told_and_left_alone(whole, tmp_path, capsys):
    lines = whole.with_name("r.jsonl").read_bytes().split(b"\n")
    lines[3] = b"{damaged"
    path = tmp_path / "r.json"
    path.with_name("r.jsonl").write_bytes(b"\n".join(lines))
    assert run(*SAMPLED, "--output", str(path)) == 2
    assert "line 4, is damaged" in capsys.readouterr().err
    assert path.with_name("r.jsonl").read_bytes() == b"\n".join(lines)


def test_two_evaluations_do_not_write_one_file(whole, tmp_path):
    path = tmp_path / "r.json"
    code = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'a+b'); fcntl.lockf(f, fcntl.LOCK_EX); "
        "print('locked', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(path) + "l"], stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"locked\n"
        assert run(*SAMPLED, "--output", str(path)) == 2
    finally:
        other.kill()
        other.wait()
    assert run(*SAMPLED, "--output", str(path)) == 0
    assert path.read_bytes() == whole.read_bytes()


SOMEBODYS_DATA = (b'{"a": 1}\n{"a": 2}', b'{"precious": 1}\n', b"notes", b"a,b\n1,2", b"\x00\xff", b"\n")


@pytest.mark.parametrize("data", SOMEBODYS_DATA)
def test_data_under_the_journals_name_is_left_alone(tmp_path, capsys, data):
    (tmp_path / "r.jsonl").write_bytes(data)
    assert run(*SAMPLED, "--output", str(tmp_path / "r.json")) == 2
    assert "is no journal of an evaluation" in capsys.readouterr().err
    assert (tmp_path / "r.jsonl").read_bytes() == data


def _with(*path_and_value):
    *path, last, value = path_and_value

    def change(found):
        for part in path:
            found = found[part]
        found[last] = value

    return change


_TOY = ("environments", 0)
_ROW = (*_TOY, "samples", 0)
DAMAGES = {
    "shard beyond all": _with("shard", [float("inf"), 1]),
    "no such shard": _with("shard", [5, 3]),
    "a measure in words": _with(*_TOY, "summary", "reward", "high"),
    "an infinite measure": _with(*_TOY, "summary", "reward", float("inf")),
    "an aggregate in words": _with("aggregates", {"overall": "high"}),
    "notes that are no list": _with(*_TOY, "notes", "abc"),
    "tasks that are no names": _with(*_TOY, "tasks", [{}]),
    "a model that is no name": _with("settings", "model", [1]),
    "a reward beyond all floats": _with(*_ROW, "reward", 10**400),
    "an infinite component": _with(*_ROW, "components", {"letters": float("inf")}),
    "a number of a sample that is none": _with(*_ROW, "sample", True),
    "an episode of no task": _with(*_ROW, "task", "toy-99"),
    "an episode twice": lambda found: found["environments"][0]["samples"].append(
        found["environments"][0]["samples"][0]
    ),
    "an environment twice": lambda found: found["environments"].append(found["environments"][0]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
@pytest.mark.parametrize("command", ["show", "compare", "merge", "resume"])
def test_a_damaged_result_is_told_and_left_alone(whole, tmp_path, capsys, command, damage):
    path, other = tmp_path / "r.json", tmp_path / "other.json"
    found = json.loads(whole.read_text())
    damage(found)
    path.write_text(json.dumps(found))
    before = path.read_bytes()
    commands = {
        "show": ["show", str(path)],
        "compare": ["compare", str(whole), str(path)],
        "merge": ["merge", str(path), "--output", str(other)],
        "resume": [*SAMPLED, "--output", str(path)],
    }
    assert run(*commands[command]) == 2
    assert f"{path} is damaged" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert not other.exists()


def test_rewards_near_the_largest_number_have_no_mean(whole, tmp_path):
    path = tmp_path / "r.json"
    lines = whole.with_name("r.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines[1:]]
    rows = [{**row, "reward": 1.7e308, "components": {**row["components"], "letters": 1.7e308}} for row in rows]
    path.with_name("r.jsonl").write_text("".join(f"{line}\n" for line in [lines[0], *map(json.dumps, rows)]))
    assert run(*SAMPLED, "--output", str(path)) == 0
    summary = read_result(path).environments[TOY].summary
    assert summary["reward"] is None
    assert summary["components/short"] is not None


def test_merging_replaces_no_other_episodes(whole, tmp_path, capsys):
    part, output = tmp_path / "part.json", tmp_path / "whole.json"
    part.write_bytes(whole.read_bytes())
    found = json.loads(whole.read_text())
    found["environments"][0]["samples"][0]["texts"] = ["another", "answer"]
    output.write_text(json.dumps(found))
    before = output.read_bytes()
    assert run("merge", str(part), "--output", str(output)) == 2
    assert "holds other episodes" in capsys.readouterr().err
    assert output.read_bytes() == before
    found["shard"] = [1, 2]
    part.write_text(json.dumps(found))
    assert run("merge", str(part), "--output", str(part)) == 2


@pytest.mark.parametrize("output", ["n" * 300 + ".json", "file/x.json"])
def test_files_that_cant_be_are_told(whole, tmp_path, capsys, output):
    (tmp_path / "file").write_text("")
    assert run("merge", str(whole), "--output", str(tmp_path / output)) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("size", [200, 1_500])
def test_a_full_disk_is_told_and_gone_on_with(whole, tmp_path, capsys, size):
    path = tmp_path / "r.json"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        assert run(*SAMPLED, "--output", str(path)) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "r.jsonl cannot be written: File too large" in capsys.readouterr().err
    assert run(*SAMPLED, "--output", str(path)) == 0
    assert path.read_bytes() == whole.read_bytes()


def test_a_package_that_cannot_be_named_is_told(capsys):
    assert run("--env", "..:x", "--model", "tiny") == 2
    assert "error: env '..:x'" in capsys.readouterr().err

import json
import multiprocessing
import os
import resource
import shutil

import pytest
import torch

from corrgrpo_train import checkpoint
from corrgrpo_train.checkpoint import (
    best_checkpoint,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from corrgrpo_train.errors import UsageError
from corrgrpo_train.models import build_tiny, load_policy_model

torch.set_num_threads(1)
MODEL, TOKENIZER = build_tiny(hidden_size=64, layers=1)
KILLED = 9
# Every call after which the disk looks different, or after which a power cut would.
STAGES = ("fsync", "rename", "unlink", "rmdir", "mkdir")


def save(run, step, *, best=False, keep=2, **changes):
    content = {
        "optimizer_state": {
            "step": torch.tensor(float(step)),
            "groups": [{"lr": 1e-3, "betas": (0.9, 0.95)}],
        },
        "state": {"step": step},
    }
    return save_checkpoint(run, step, model=MODEL, tokenizer=TOKENIZER, best=best, keep=keep, **{**content, **changes})


def steps(run):
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def names(*numbers):
    return [f"step_{number:06d}" for number in numbers]


def error_of(path):
    with pytest.raises(UsageError) as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_layout_and_round_trip(tmp_path):
    state = {
        "epoch": 3,
        "order": [2, 0, 1],
        "mean": 0.1 + 0.2,
        "none": None,
        "nested": {"é": True},
        "big": 2**63,
    }
    optimizer = {
        "state": {0: {"exp_avg": torch.arange(6.0).reshape(2, 3), "step": torch.tensor(7)}},
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "generator": torch.Generator().manual_seed(3).get_state(),
        "betas": (0.9, 0.999),
        "empty": {},
    }
    path = save(tmp_path, 100, best=True, state=state, optimizer_state=optimizer)
    assert path == tmp_path / "checkpoints" / "step_000100"
    assert sorted(entry.name for entry in path.iterdir()) == [
        "COMPLETE",
        "optimizer.pt",
        "policy",
        "state.json",
    ]
    found = load_checkpoint(path)
    assert (found.step, found.best, found.state) == (100, True, state)
    assert found.optimizer_state["betas"] == (0.9, 0.999)
    torch.testing.assert_close(found.optimizer_state, optimizer, rtol=0, atol=0)
    policy = load_policy_model(str(found.policy_dir))
    weights = MODEL.state_dict()
    assert all(torch.equal(weights[key], value) for key, value in policy.model.state_dict().items())
    assert policy.tokenizer.chat_template == TOKENIZER.chat_template


def test_floats_come_back_exactly(tmp_path):
    values = [0.1, 1e-310, 1.7976931348623157e308, -0.0, float("inf"), float("nan")]
    found = load_checkpoint(save(tmp_path, 1, state={"values": values})).state["values"]
    assert [value.hex() for value in found] == [value.hex() for value in values]


def test_resumed_adam_takes_the_same_step(tmp_path):
    """The optimiser after a reload does bit for bit what the one that was never stopped does."""

    def train(parameter, optimizer, count):
        for _ in range(count):
            optimizer.zero_grad()
            (parameter - torch.arange(5.0)).square().sum().backward()
            optimizer.step()

    parameter = torch.nn.Parameter(torch.zeros(5))
    optimizer = torch.optim.AdamW([parameter], lr=0.1)
    train(parameter, optimizer, 3)
    path = save(tmp_path, 3, optimizer_state=optimizer.state_dict())
    again = torch.nn.Parameter(parameter.detach().clone())
    train(parameter, optimizer, 3)
    resumed = torch.optim.AdamW([again], lr=0.5)
    resumed.load_state_dict(load_checkpoint(path).optimizer_state)
    train(again, resumed, 3)
    assert torch.equal(again, parameter)


def test_rotation_keeps_the_newest_and_the_best(tmp_path):
    save(tmp_path, 1, best=True)
    save(tmp_path, 2, best=True)
    for step in (3, 4, 5):
        save(tmp_path, step)
    assert steps(tmp_path) == names(2, 4, 5)
    assert best_checkpoint(tmp_path).name == names(2)[0]
    assert latest_checkpoint(tmp_path).name == names(5)[0]
    save(tmp_path, 6, best=True)
    assert steps(tmp_path) == names(5, 6), "the old best is no longer the best"
    save(tmp_path, 7, keep=1)
    assert steps(tmp_path) == names(6, 7)


def test_steps_are_ordered_as_numbers(tmp_path):
    save(tmp_path, 999_999)
    save(tmp_path, 1_000_000)
    assert latest_checkpoint(tmp_path).name == "step_1000000"


def test_no_checkpoints(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    assert best_checkpoint(tmp_path) is None


def test_incomplete_and_foreign_folders_are_ignored(tmp_path):
    path = save(tmp_path, 1)
    shutil.copytree(path, path.with_name("step_000002"))
    (path.with_name("step_000002") / "COMPLETE").unlink()
    shutil.copytree(path, path.with_name("step_best"))
    (path.with_name("step_000007")).write_text("a file")
    assert latest_checkpoint(tmp_path) == path


def test_a_step_can_be_saved_again(tmp_path):
    save(tmp_path, 1, state={"try": 1})
    path = save(tmp_path, 1, state={"try": 2})
    assert load_checkpoint(path).state == {"try": 2}
    assert steps(tmp_path) == names(1)


def test_looking_at_a_running_run_leaves_its_files_alone(tmp_path):
    path = save(tmp_path, 1)
    aside = path.with_name(".tmp-step_000002")
    aside.mkdir()
    assert latest_checkpoint(tmp_path, clean=False) == path
    assert aside.exists()
    assert latest_checkpoint(tmp_path) == path
    assert not aside.exists()


# --- wrong input ---


@pytest.mark.parametrize("bad", [{"a": [object()]}, {"a": {1, 2}}, {("a", object()): 1}, {"rng": os.environ}])
def test_what_could_not_be_read_back_is_refused_before_anything_is_written(tmp_path, bad):
    with pytest.raises(TypeError, match="only tensors, numbers, text"):
        save(tmp_path, 1, optimizer_state=bad)
    with pytest.raises(TypeError, match="JSON"):
        save(tmp_path, 1, state={"a": object()})
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(("step", "keep"), [(-1, 1), (1, 0)])
def test_impossible_numbers(tmp_path, step, keep):
    with pytest.raises(ValueError, match="at least"):
        save(tmp_path, step, keep=keep)


@pytest.mark.parametrize("name", ["optimizer.pt", "state.json", "policy/model.safetensors", "policy/tokenizer.json"])
def test_truncated_files_are_named_and_the_one_before_is_suggested(tmp_path, name):
    before, path = save(tmp_path, 1), save(tmp_path, 2)
    content = (path / name).read_bytes()
    (path / name).write_bytes(content[:-5])
    message = error_of(path)
    assert f"{name} has {len(content) - 5} of {len(content)} bytes" in message
    assert f"delete it, and --resume takes the one before: {before}" in message
    (path / name).unlink()
    assert f"{name} has 0 of" in error_of(path)


def test_suggestion_skips_damaged_ones(tmp_path):
    good, bad, path = (save(tmp_path, step, keep=9) for step in (1, 2, 3))
    for folder in (bad, path):
        (folder / "optimizer.pt").write_bytes(b"")
    assert str(good) in error_of(path)
    shutil.rmtree(good)
    assert "there is no earlier one" in error_of(path)


@pytest.mark.parametrize("name", ["optimizer.pt", "state.json", "COMPLETE"])
def test_overwritten_files(tmp_path, name):
    path = save(tmp_path, 1)
    content = bytearray((path / name).read_bytes())
    content[: len(content) // 2] = b"\xff" * (len(content) // 2)
    (path / name).write_bytes(content)
    assert "is damaged" in error_of(path)


def test_pickled_code_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    path = save(tmp_path, 1)
    torch.save({"x": Evil()}, path / "optimizer.pt")
    (path / "COMPLETE").write_text(json.dumps({"optimizer.pt": (path / "optimizer.pt").stat().st_size}))
    assert "is damaged" in error_of(path)
    assert not (tmp_path / "ran").exists()


def test_other_schema_version(tmp_path):
    path = save(tmp_path, 1)
    text = (path / "state.json").read_text()
    (path / "state.json").write_text(text.replace('"schema": 1', '"schema": 7'))
    assert "schema version 7, this program reads 1" in error_of(path)


def test_missing_and_unmarked_checkpoints(tmp_path):
    assert "does not exist" in error_of(tmp_path / "checkpoints" / "step_000001")
    path = save(tmp_path, 1)
    (path / "COMPLETE").unlink()
    assert "incomplete" in error_of(path)


# --- crashes ---


def child(action):
    """Run `action` in a forked process; return its exit status."""
    process = multiprocessing.get_context("fork").Process(target=action)
    process.start()
    process.join(60)
    return process.exitcode


def killed_at(count, action):
    """Run `action` in a process that dies, as if killed, at its `count`-th call that changes the disk."""

    def run():
        calls = iter(range(count))

        def dying(real):
            def step(*arguments, **options):
                if next(calls, None) is None:
                    os._exit(KILLED)
                return real(*arguments, **options)

            return step

        for stage in STAGES:
            setattr(os, stage, dying(getattr(os, stage)))
        action()
        os._exit(0)

    return child(run)


@pytest.mark.parametrize("case", ["next step", "same step"])
def test_killed_at_any_stage(tmp_path, case):
    """At every stage: a good checkpoint is there, the best survives, and the next save leaves no trace."""
    saved = 3 if case == "next step" else 2
    survivors = set()
    for count in range(1000):
        run = tmp_path / str(count)
        save(run, 0, best=True, keep=1)
        save(run, 1, keep=2)
        save(run, 2, keep=2, state={"new": False})
        status = killed_at(count, lambda run=run: save(run, saved, keep=1, state={"new": True}))
        for clean in (False, True):
            latest = latest_checkpoint(run, clean=clean)
            found = load_checkpoint(latest)
            if clean:
                assert (found.step, found.state["new"]) in {(2, False), (saved, True)}
            assert found.optimizer_state["step"].item() == found.step
            load_policy_model(str(found.policy_dir))
            assert best_checkpoint(run).name == names(0)[0]
            load_checkpoint(best_checkpoint(run))
        assert not [name for name in steps(run) if name.startswith(".")]
        survivors.add((found.step, found.state["new"]))
        save(run, 4, keep=1)
        assert steps(run) == names(0, 4)
        if status == 0:
            break
        assert status == KILLED
        shutil.rmtree(run)
    else:
        pytest.fail("the save never came to its end")
    assert survivors == {(2, False), (saved, True)}, "the crash was tried before and after the change"
    assert count > 20


def test_killed_while_resuming(tmp_path):
    """Clearing leftovers can itself be interrupted, any number of times."""
    run = tmp_path / "run"
    save(run, 1)
    save(run, 2)
    folder = run / "checkpoints"
    shutil.copytree(folder / "step_000001", folder / ".old-step_000001")
    (folder / "step_000002").rename(folder / ".old-step_000002")
    shutil.copytree(folder / "step_000001", folder / ".tmp-step_000003")
    for _ in range(100):
        status = killed_at(2, lambda: latest_checkpoint(run))
        # The first is there at every moment, the second as soon as it has its name back.
        assert load_checkpoint(folder / "step_000001").step == 1
        latest = latest_checkpoint(run, clean=False)
        assert load_checkpoint(latest).step == int(latest.name[-6:])
        if status == 0:
            break
    else:
        pytest.fail("the clearing never came to its end")
    assert steps(run) == names(1, 2), "the replaced one whose successor never arrived is back"


@pytest.mark.parametrize("stage", ["fsync", "rename"])
def test_an_error_at_any_stage_is_one_line_and_harms_nothing(tmp_path, monkeypatch, stage):
    for count in range(1000):
        run = tmp_path / str(count)
        save(run, 1)
        calls = iter(range(count))
        real = getattr(os, stage)

        def step(*arguments, calls=calls, real=real):
            if next(calls, None) is None:
                raise OSError(28, "No space left on device")
            return real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(os, stage, step)
            try:
                save(run, 2)
                break
            except UsageError as error:
                message = str(error)
        assert "step 2 could not be saved" in message
        assert "no space left" in message
        assert load_checkpoint(latest_checkpoint(run)).step in (1, 2)
        assert load_checkpoint(run / "checkpoints" / "step_000001").step == 1
    assert count >= (1 if stage == "rename" else 10)


@pytest.mark.parametrize("limit", [100_000, 1_000_000], ids=["weights", "optimizer"])
def test_writing_fails_for_real(tmp_path, limit):
    """The kernel refuses files over `limit` bytes: the weights, or only the optimiser's state."""
    save(tmp_path, 1)

    def run():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            save(tmp_path, 2, optimizer_state={"step": torch.zeros(1_000_000)})
        except UsageError as error:
            plain = limit == 100_000 or "the disk may be full" in str(error)
            os._exit(3 if plain and "step 2 could not be saved" in str(error) else 4)
        os._exit(0)

    assert child(run) == 3
    assert steps(tmp_path) == names(1)
    assert load_checkpoint(latest_checkpoint(tmp_path)).step == 1


def test_everything_is_on_the_disk_before_it_is_announced(tmp_path, monkeypatch):
    """Each file and folder is flushed before the rename, and the rename itself after it."""
    events = []
    real_flush, real_rename = checkpoint.flush, os.rename

    def flush(path):
        events.append(path.name)
        real_flush(path)

    def rename(source, target):
        events.append("rename")
        real_rename(source, target)

    monkeypatch.setattr(checkpoint, "flush", flush)
    monkeypatch.setattr(os, "rename", rename)
    path = save(tmp_path, 1)
    before = set(events[: events.index("rename")])
    assert before >= {entry.name for entry in path.rglob("*")} | {".tmp-step_000001"}
    assert events[events.index("rename") + 1 :] == ["checkpoints"]

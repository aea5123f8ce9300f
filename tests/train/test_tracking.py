"""The run folder: rows, exactness, cutting back, and never writing over a run."""

import contextlib
import json
import math
import os
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

from corrgrpo_train.config import Config, from_yaml
from corrgrpo_train.config_checks import check_values
from corrgrpo_train.errors import UsageError
from corrgrpo_train.rollout import Episode
from corrgrpo_train.trackers import TRACKERS, Guarded, Sink
from corrgrpo_train.tracking import ROWS, Tracker, holds_run, rewind

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parents[2]


def config(folder: Path, **changes: object) -> Config:
    return Config(**{"env": "RLLA-v0", "output": str(folder), "tensorboard": False, **changes})


def rows(folder: Path, name: str = "metrics.jsonl") -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def write(tracker: Tracker, steps: range) -> None:
    for step in steps:
        tracker.log(step, {"reward/mean": step / 3})
        tracker.log_timings(step, {"seconds/rollout": step / 7})
        tracker.log_episodes(step, ["a", "b"], [Episode(0, 0, "task", components={"a": step / 3})])
        tracker.log_transcripts(step, [{"text": f"answer {step}"}])


# ---- rows ------------------------------------------------------------------------------------------------


def test_a_run_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    tracker = Tracker.start(config(folder, steps=3))
    write(tracker, range(1, 3))
    tracker.close()
    assert from_yaml(folder / "config.yaml") == config(folder, steps=3)
    assert (folder / "metrics.jsonl").read_text() == (
        '{"step": 1, "reward/mean": 0.3333333333333333}\n{"step": 2, "reward/mean": 0.6666666666666666}\n'
    )
    assert rows(folder, "timings.jsonl") == [{"step": s, "seconds/rollout": s / 7} for s in (1, 2)]
    assert rows(folder, "episodes.jsonl") == [
        {"step": s, "names": ["a", "b"], "groups": [0], "tasks": ["task"], "values": [[s / 3, None]]} for s in (1, 2)
    ]
    (entry,) = json.loads((folder / "versions.json").read_text())
    assert entry["after_step"] == 0
    assert entry["packages"]["torch"] == version("torch")
    assert (folder / "transcripts" / "step_000002.jsonl").read_text() == '{"text": "answer 2"}\n'
    assert not (folder / "tensorboard").exists()


def test_rows_are_there_at_once(tmp_path: Path) -> None:
    tracker = Tracker.start(config(tmp_path / "run"))
    tracker.log(1, {"reward/mean": 0.5})
    assert rows(tmp_path / "run") == [{"step": 1, "reward/mean": 0.5}]
    tracker.close()


def test_phases_are_named_outside_training(tmp_path: Path) -> None:
    tracker = Tracker.start(config(tmp_path / "run"))
    tracker.log(0, {"validation/reward": 1}, "base")
    tracker.log(0, {"validation/reward": 2}, "warm_start")
    tracker.log(1, {"reward/mean": 3})
    tracker.close()
    assert [row.get("phase") for row in rows(tmp_path / "run")] == ["base", "warm_start", None]


def test_numbers_of_any_library_are_exact_and_nan_is_null(tmp_path: Path) -> None:
    tracker = Tracker.start(config(tmp_path / "run"))
    values = {
        "float": 0.1,
        "torch": torch.tensor(0.1, dtype=torch.float64),
        "numpy": np.float64(0.1),
        "float32": np.float32(0.1),
        "int": np.int64(3),
        "nan": math.nan,
        "inf": -math.inf,
        "torch_nan": torch.tensor(math.nan),
    }
    tracker.log(1, values)
    tracker.close()
    (row,) = rows(tmp_path / "run")
    assert row == {
        "step": 1,
        "float": 0.1,
        "torch": 0.1,
        "numpy": 0.1,
        "float32": 0.10000000149011612,
        "int": 3,
        "nan": None,
        "inf": None,
        "torch_nan": None,
    }


def test_hostile_text_stays_one_line_of_json(tmp_path: Path) -> None:
    text = 'a\nb\r\u2028\u2029\x00\x1b[31m"}\n{"step": 9}\ud800 é 你'
    tracker = Tracker.start(config(tmp_path / "run"))
    tracker.log_transcripts(3, [{"text": text, "logprobs": [-0.5, math.nan], "error": None}, {"text": "b"}])
    tracker.close()
    lines = (tmp_path / "run" / "transcripts" / "step_000003.jsonl").read_bytes().splitlines()
    assert len(lines) == 2
    assert json.loads(lines[0]) == {"text": text, "logprobs": [-0.5, None], "error": None}


def test_transcripts_may_have_a_name(tmp_path: Path) -> None:
    tracker = Tracker.start(config(tmp_path / "run"))
    tracker.log_transcripts(10, [{"text": "x"}], name="validation_train")
    tracker.close()
    assert (tmp_path / "run" / "transcripts" / "validation_train_000010.jsonl").exists()


# ---- nothing is lost -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ROWS, "config.yaml", "checkpoints", "transcripts"])
def test_a_folder_with_a_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("kept")
    assert holds_run(tmp_path)
    with pytest.raises(UsageError, match="already holds a run: continue it with --resume, or choose another"):
        Tracker.start(config(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "kept"


def test_a_folder_with_other_things_is_taken(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    Tracker.start(config(tmp_path)).close()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot be written: .*choose another --output"):
        Tracker.start(config(tmp_path / "file" / "run"))


# ---- resuming --------------------------------------------------------------------------------------------


def test_a_resumed_run_has_the_same_bytes(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder, last in ((whole, 9), (cut, 7)):
        tracker = Tracker.start(config(folder, steps=8))
        tracker.log(0, {"validation/reward": 0.25}, "base")
        tracker.log(0, {"warm_start/step": 1, "warm_start/loss": 2.5}, "warm_start")
        write(tracker, range(1, last))
        tracker.close()
    with (cut / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "rew')
    tracker = Tracker.resume(config(cut, steps=8, resume=True), 4)
    assert [row["step"] for row in rows(cut)] == [0, 0, 1, 2, 3, 4]
    assert sorted(path.name for path in (cut / "transcripts").iterdir()) == [
        f"step_{step:06d}.jsonl" for step in range(1, 5)
    ]
    write(tracker, range(5, 9))
    tracker.close()
    for name in (*ROWS, "versions.json", "transcripts/step_000008.jsonl"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes()


def test_other_versions_are_noted_where_a_run_goes_on(tmp_path: Path) -> None:
    Tracker.start(config(tmp_path / "run")).close()
    path = tmp_path / "run" / "versions.json"
    (entry,) = json.loads(path.read_text())
    older = entry | {"python": "3.0"}
    path.write_text(json.dumps([older, {**entry, "after_step": 9}]))
    Tracker.resume(config(tmp_path / "run", resume=True), 4).close()
    assert json.loads(path.read_text()) == [older, {**entry, "after_step": 4}]
    Tracker.resume(config(tmp_path / "run", resume=True), 6).close()
    assert json.loads(path.read_text()) == [older, {**entry, "after_step": 4}]
    path.write_text("damaged")
    Tracker.resume(config(tmp_path / "run", resume=True), 6).close()
    assert json.loads(path.read_text()) == [{**entry, "after_step": 6}]


def test_a_run_that_saved_nothing_starts_over(tmp_path: Path) -> None:
    tracker = Tracker.start(config(tmp_path / "run"))
    tracker.log(0, {"validation/reward": 1}, "base")
    write(tracker, range(1, 3))
    tracker.close()
    Tracker.resume(config(tmp_path / "run", resume=True), None).close()
    assert rows(tmp_path / "run") == []
    assert list((tmp_path / "run" / "transcripts").iterdir()) == []


def test_resuming_saves_the_new_settings(tmp_path: Path) -> None:
    Tracker.start(config(tmp_path / "run", steps=3)).close()
    Tracker.resume(config(tmp_path / "run", steps=30, resume=True), None).close()
    assert from_yaml(tmp_path / "run" / "config.yaml").steps == 30


@pytest.mark.parametrize(
    "torn",
    [
        b'{"step": 2',
        b'{"step": 2, "a": 1}',
        b"\x00\x00\x00",
        b"\n",
        b"[1]\n",
        b"\xff\n",
        b"[" * 10**5 + b"\n",
        b'{"step": "2"}\n',
        b'{"step": null}\n',
    ],
)
def test_torn_lines_are_dropped(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n' + torn)
    rewind(tmp_path, 5)
    assert (tmp_path / "metrics.jsonl").read_bytes() == b'{"step": 1}\n'
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_files_of_other_names_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "transcripts").mkdir()
    for name in ("mine.jsonl", "step_000009.txt", "validation_train_000009.jsonl"):
        (tmp_path / "transcripts" / name).touch()
    rewind(tmp_path, 5)
    assert sorted(path.name for path in (tmp_path / "transcripts").iterdir()) == [
        "mine.jsonl",
        "step_000009.txt",
    ]


# ---- TensorBoard -----------------------------------------------------------------------------------------


def test_tensorboard_shows_what_the_rows_hold(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "run"
    tracker = Tracker.start(config(folder, tensorboard=True))
    tracker.log(0, {"validation/reward": 0.25}, "base")
    for number in (1, 2):
        tracker.log(0, {"warm_start/step": number, "warm_start/loss": number / 2}, "warm_start")
    for step in range(1, 5):
        tracker.log(step, {"reward/mean": step / 2, "x": math.nan})
    tracker.log_timings(4, {"tokens_per_second/rollout": 8.0})
    tracker.close()
    tracker = Tracker.resume(config(folder, tensorboard=True, resume=True), 2)
    tracker.log(3, {"reward/mean": -1.0})
    tracker.close()

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("reward/mean")] == [(1, 0.5), (2, 1.0), (3, -1.0)]
    assert [(e.step, e.value) for e in events.Scalars("base/validation/reward")] == [(0, 0.25)]
    assert [(e.step, e.value) for e in events.Scalars("warm_start/warm_start/loss")] == [(1, 0.5), (2, 1.0)]
    assert "x" not in events.Tags()["scalars"]


def test_without_tensorboard_there_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    notes: list[str] = []
    tracker = Tracker.start(config(tmp_path / "run", tensorboard=True), notes.append)
    tracker.log(1, {"reward/mean": 1.0})
    tracker.close()
    assert len(notes) == 1
    assert "pip install tensorboard" in notes[0]
    assert rows(tmp_path / "run") == [{"step": 1, "reward/mean": 1.0}]


# ---- trackers on request ---------------------------------------------------------------------------------


def test_a_tracker_that_is_not_installed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"^track 'wandb': wandb is not installed: pip install 'corrgrpo\[wandb\]'$"):
        check_values(config(tmp_path / "run", track="wandb"))
    with pytest.raises(UsageError, match="Did you mean 'trackio'"):
        check_values(config(tmp_path / "run", track="trackoi"))


def test_a_tracker_that_cannot_start_leaves_the_folder_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(config: Config) -> Sink:
        raise RuntimeError("no login\nand more")

    monkeypatch.setitem(TRACKERS, "json", refuse)  # a module that is always there
    with pytest.raises(UsageError, match=r"^track 'json' could not be started: no login; see track_args$"):
        Tracker.start(config(tmp_path / "run", track="json"))
    assert not holds_run(tmp_path / "run")


def test_a_tracker_that_fails_later_costs_its_own_rows_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def log(step: int, values: dict[str, float]) -> None:
        calls.append(step)
        if step == 2:
            raise ConnectionError("gone")

    tracker = Tracker(tmp_path, tensorboard=False, tracker=Guarded("far", log, lambda: calls.append(-1)))
    for step in (1, 2, 3):
        tracker.log(step, {"reward/mean": step / 4, "x": math.nan})
    tracker.close()
    assert calls == [1, 2]
    assert [row["step"] for row in rows(tmp_path)] == [1, 2, 3]
    assert "far gets no more metrics" in caplog.text


def write_and_resume(folder: Path, pause: float = 0.0, **settings: object) -> None:
    tracker = Tracker.start(config(folder, steps=3, **settings))
    tracker.log(0, {"validation/reward": 0.25}, "base")
    tracker.log(1, {"reward/mean": 0.5, "x": math.nan})
    tracker.log(2, {"reward/mean": 1.0})
    tracker.log_timings(2, {"seconds/rollout": 2.0})
    tracker.close()
    time.sleep(pause)
    tracker = Tracker.resume(config(folder, steps=3, resume=True, **settings), 1)
    tracker.log(2, {"reward/mean": 1.5})
    tracker.close()


def records_of(content: bytes) -> Iterator[bytes]:
    """The records of a log in LevelDB's format: blocks of 32 KiB; checksum, length and kind before each piece."""
    place, whole = 7, b""  # a header comes first
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or its last piece
            yield whole
            whole = b""


def test_wandb_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    from wandb.proto import wandb_internal_pb2

    folder = tmp_path / "run"
    # It names the files of an offline run by the second.
    write_and_resume(folder, pause=1.1, track="wandb", track_args={"mode": "offline"})
    histories: list[dict[str, float]] = []
    identities = set()
    for path in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        identities.add(path.stem)
        for data in records_of(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.history.item:
                items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                histories.append({key: value for key, value in items.items() if not key.startswith("_")})
    assert histories == [
        {"step": 0, "base/validation/reward": 0.25},
        {"step": 1, "reward/mean": 0.5},
        {"step": 2, "reward/mean": 1.0},
        {"step": 2, "timings/seconds/rollout": 2.0},
        {"step": 2, "reward/mean": 1.5},
    ]
    assert identities == {f"run-{(folder / 'wandb_id').read_text().strip()}"}


def test_trackio(tmp_path: Path) -> None:
    pytest.importorskip("trackio", reason="trackio is not installed")
    folder = tmp_path / "run"
    code = (
        f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'tests' / 'train')]!r}\n"
        "from pathlib import Path; from test_tracking import write_and_resume\n"
        f"write_and_resume(Path({str(folder)!r}), track='trackio', track_args={{'project': 'p'}})\n"
    )
    # It keeps its data under the user's cache; only its environment can say elsewhere.
    surroundings = {**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=surroundings, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    (database,) = (tmp_path / "trackio").glob("p*.db")
    with contextlib.closing(sqlite3.connect(database)) as connection:
        logged = connection.execute("select step, run_name, metrics from metrics order by rowid").fetchall()
    assert [(step, run, json.loads(metrics)) for step, run, metrics in logged] == [
        (0, "run", {"base/validation/reward": 0.25}),
        (1, "run", {"reward/mean": 0.5}),
        (2, "run", {"reward/mean": 1.0}),
        (2, "run", {"timings/seconds/rollout": 2.0}),
        (2, "run", {"reward/mean": 1.5}),
    ]

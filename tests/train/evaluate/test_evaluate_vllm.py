"""Evaluation with vLLM, as a server and in this process; `make test-vllm` runs these with vLLM's CPU build."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import pytest
import rollout_envs  # noqa: F401  (registers the environments)

from corrgrpo_train.evaluate.cli import main
from corrgrpo_train.evaluate.results import read_result
from corrgrpo_train.models.default import default_model_folder, fetch_default_model

pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

TOY = "rollout_envs:rollout/Toy-v0"
CONTEXT = 1024
START_SECONDS = 600
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    import httpx

    fetch_default_model()
    port, log = free_port(), tmp_path_factory.mktemp("server") / "log"
    # Not the program `vllm`, which asks for the version of a package that the CPU build is not called after.
    arguments = ["--model", str(default_model_folder()), "--served-model-name", "smol", "--dtype", "float32"]
    arguments += ["--max-model-len", str(CONTEXT), "--enforce-eager", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("w") as file:
        server = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *arguments],
            env={**os.environ, **ENVIRONMENT},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        for _ in range(START_SECONDS):
            if server.poll() is not None:
                pytest.fail(f"the server ended:\n{log.read_text()[-3000:]}")
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(1)
        else:
            pytest.fail(f"the server did not start:\n{log.read_text()[-3000:]}")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(30)


def played(path, *arguments, name="RLLA-v0", tokens=12):
    limits = ["--max-new-tokens", str(tokens), "--quiet", "--no-published", "--output", str(path)]
    assert main(["--env", name, *arguments, *limits]) == 0
    return read_result(path).environments[name].samples


def test_greedy_answers_are_those_of_the_model_in_this_process(url, tmp_path):
    served = played(
        tmp_path / "a.json", "--tasks", "3", "--server", url, "--request-args", '{"skip_special_tokens": false}'
    )
    local = played(tmp_path / "b.json", "--tasks", "3", "--threads", "1")
    assert [sample.texts for sample in served] == [sample.texts for sample in local]
    assert [sample.tokens for sample in served] == [sample.tokens for sample in local]
    assert [sample.components for sample in served] == [sample.components for sample in local]
    assert all(sample.scored and sample.texts[0] for sample in served)
    assert read_result(tmp_path / "a.json").model == "smol"
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0


def test_conversations_with_tools_in_every_mode_that_the_server_takes(url, tmp_path, capsys):
    arguments = ["--split", "train", "--tasks", "2", "--env-args", '{"turns": 3}', "--server", url]
    for mode in ("template", "text"):
        samples = played(tmp_path / f"{mode}.json", *arguments, "--tool-mode", mode, name=TOY, tokens=5)
        assert [len(sample.texts) for sample in samples] == [3, 3]
        assert all(sample.status == "ok" and sample.tokens > 0 for sample in samples)
    # This server was started without a parser of calls.
    refused = ["--env", TOY, *arguments, "--tool-mode", "calls", "--output", str(tmp_path / "x.json")]
    assert main(refused) == 2
    said = capsys.readouterr().err
    assert "the server refuses tools" in said
    assert "--enable-auto-tool-choice" in said


def test_samples_belong_to_their_seeds(url, tmp_path):
    arguments = ["--tasks", "1", "--samples", "3", "--temperature", "1", "--server", url, "--concurrency", "1"]
    first, second = (played(tmp_path / f"{number}.json", *arguments) for number in range(2))
    assert [sample.texts for sample in first] == [sample.texts for sample in second]
    assert len({sample.texts for sample in first}) == 3
    other = played(tmp_path / "2.json", *arguments, "--seed", "1")
    assert {sample.texts for sample in first}.isdisjoint({sample.texts for sample in other})


def test_the_server_s_limits_are_met(url, tmp_path):
    # More tokens than the context has: the server's own limit is taken, and nothing fails.
    (sample,) = played(
        tmp_path / "a.json",
        *("--split", "train", "--tasks", "1", "--tool-mode", "text", "--server", url),
        *("--request-args", '{"stop": ["e"]}'),
        name=TOY,
        tokens=4 * CONTEXT,
    )
    assert sample.scored
    assert sample.status in ("ok", "length")
    # A prompt of thousands of tokens.
    template = tmp_path / "long.txt"
    template.write_text("word " * 3 * CONTEXT + "$tools $history")
    long = json.dumps({"prompt_template": str(template)})
    samples = played(tmp_path / "b.json", "--tasks", "1", "--server", url, "--env-args", long)
    assert "the first messages are too long for the server" in samples[0].error


def test_a_model_that_is_not_there_is_told(url, tmp_path, capsys):
    assert main(["--env", "RLLA-v0", "--server", url, "--model", "smoll", "--output", str(tmp_path / "r.json")]) == 2
    assert "the server has no model 'smoll'; it lists 'smol'. Did you mean 'smol'?" in capsys.readouterr().err
    assert (
        main(["--env", "RLLA-v0", "--server", url[:-3], "--model", "smol", "--output", str(tmp_path / "r.json")]) == 2
    )
    assert "usually ends with /v1" in capsys.readouterr().err


@pytest.mark.parametrize("schedule", ["lockstep", "async"])
def test_in_this_process_greedy_answers_are_those_of_the_transformers_engine(tmp_path, schedule):
    arguments = ["--model", "tiny", "--split", "train", "--env-args", '{"turns": 2}', "--max-episode-tokens", "900"]
    vllm = ["--engine", "vllm", "--vllm-memory", "0.1", "--schedule", schedule, "--batch", "4"]
    expected = played(tmp_path / "a.json", *arguments, "--threads", "1", "--batch", "4", name=TOY, tokens=6)
    found = played(tmp_path / "b.json", *arguments, *vllm, name=TOY, tokens=6)
    assert [sample.texts for sample in found] == [sample.texts for sample in expected]
    assert all(sample.scored for sample in found)
    assert len(found) == 6

"""Every example runs, and shows what its first lines promise."""

import http.server
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*words):
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=290, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_has_a_test():
    tests = "\n".join(file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    for example in (ROOT / "examples").iterdir():
        if example.suffix in (".py", ".ipynb"):
            assert re.search(rf"\b{example.stem}\b", tests), example.name


def test_new_environment_is_short_and_can_be_trained_on(tmp_path):
    text = (ROOT / "examples" / "new_environment.py").read_text("utf-8")
    assert len(text.splitlines()) < 75  # with the head; the environment itself:
    assert len(text[text.index("ANIMALS") :].splitlines()) < 60
    command = re.search(r"python -m corrgrpo_train (.*?)--output", text, re.DOTALL)[1].replace("\\\n", " ").split()
    output = run("-m", "corrgrpo_train", *command, "--steps", "4", "--output", str(tmp_path / "run"))
    assert "components/named" in output
    assert list((tmp_path / "run").glob("checkpoints/*/COMPLETE"))


def test_new_environment_keeps_the_contract():
    import gymnasium as gym
    from gymnasium.utils.env_checker import check_env

    env = gym.make("examples.new_environment:zoo/Animal-v0", split="all")
    check_env(env.unwrapped)
    for index in range(len(env.unwrapped.tasks)):
        env.reset(options={"task_index": index})
        _, reward, terminated, _, _ = env.step(env.unwrapped.reference()[0])
        assert terminated
        assert reward == pytest.approx(1.7)


def test_new_estimator():
    lines = dict(line.split(maxsplit=1) for line in run("-m", "examples.new_estimator").splitlines())
    values = {name: [float(word) for word in text.split()] for name, text in lines.items()}
    assert values["grpo"][0] > 2 == values["clipped_grpo"][0]
    assert values["clipped_grpo"][1:] == values["grpo"][1:]


def test_new_estimator_on_the_command_line():
    text = (ROOT / "examples" / "new_estimator.py").read_text("utf-8")
    command = re.search(r"python (-m corrgrpo_train .*)", text)[1].split()
    assert "clipped_grpo" in run(*command, "--print-config")


@pytest.mark.slow
def test_lagrangian_holds_its_threshold(tmp_path):
    output = run("-m", "examples.lagrangian", "--output", str(tmp_path))
    fixed, held = output.split("lagrangian:")
    last = [float(re.findall(r"brief ([+-][\d.]+)", part)[-1]) for part in (fixed, held)]
    assert last[0] < 0.2
    assert abs(last[1] - 0.5) < 0.15


@pytest.mark.parametrize("method", ["corrgrpo", "gdpo"])
def test_advantages_elsewhere(method):
    totals = [
        float(value)
        for value in re.findall(r"total ([+-][\d.]+)", run("examples/advantages_elsewhere.py", "--method", method))
    ]
    assert len(totals) == 5
    assert totals[-1] > totals[0] + 1


class Server(http.server.BaseHTTPRequestHandler):
    """Speaks the protocol: answers a prompt that offers tools with a call of the first one, others with text."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert {message["role"] for message in asked["messages"]} <= {"system", "user", "assistant"}
        message = {"role": "assistant", "content": "<think> I do not know. </think>\n<response> Sorry. </response>"}
        if tools := asked.get("tools"):
            call = {"name": tools[0]["function"]["name"], "arguments": "{}"}
            message |= {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": call}]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = json.dumps(
            {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.mark.parametrize("env", ["corrgrpo/RLLA-v0", "corrgrpo/AgentDojo-v0"])
def test_openai_agent(env):
    pytest.importorskip("openai")
    if "AgentDojo" in env:
        pytest.importorskip("agentdojo")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        output = run("examples/openai_agent.py", "--server", url, "--model", "m", "--env", env, "--tasks", "2")
    finally:
        server.shutdown()
        server.server_close()
    assert len(output.splitlines()) == 2
    assert all(re.search(r": \w+ [+-]\d\.\d\d, .* \(\w+\)$", line) for line in output.splitlines())


def test_openai_agent_without_a_server_says_so_in_one_line():
    pytest.importorskip("openai")
    done = subprocess.run(
        [sys.executable, "examples/openai_agent.py", "--server", "http://127.0.0.1:9/v1", "--model", "m"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.splitlines()) == (1, ["http://127.0.0.1:9/v1: Connection error."])


def test_first_hour_notebook(tmp_path):
    """Every cell runs; what it says is looked at. Cells are run as plain Python, in one process."""
    notebook = json.loads((ROOT / "examples" / "first_hour.ipynb").read_text("utf-8"))
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    (tmp_path / "notebook.py").write_text("import matplotlib; matplotlib.use('Agg')\n" + code)
    output = run("-c", f"import runpy, sys; sys.path.insert(0, '.'); runpy.run_path({str(tmp_path / 'notebook.py')!r})")
    assert re.search(r"^passed ", output, re.MULTILINE)
    assert re.search(r"^independent  corrgrpo  Q 2\.00", output, re.MULTILINE)
    first, last = map(float, re.search(r"first and last step: (\S+) (\S+)", output).groups())
    assert last > first

"""The command line: layers, messages, exit codes, and what it does not import."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest
import yaml

from corrgrpo_train import cli, presets
from corrgrpo_train.config import Config, to_yaml
from corrgrpo_train.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., tuple[int, str, str]]


class Pair(gym.Env[str, str]):
    """An environment with two components and one option."""

    observation_space = gym.spaces.Text(10)
    action_space = gym.spaces.Text(10)

    def __init__(self, *, split: str = "train", size: int = 1, reward_weights: dict[str, float] | None = None) -> None:
        for name in reward_weights or {}:
            if name not in ("first", "second"):
                raise ValueError(f"reward component {name!r} is unknown; allowed: 'first', 'second'.")
        if size < 1:
            raise ValueError(f"size must be at least 1,\nnot {size}")


class Plain(gym.Env[str, str]):
    """An environment without reward weights."""

    observation_space = gym.spaces.Text(10)
    action_space = gym.spaces.Text(10)


@pytest.fixture(autouse=True)
def environments() -> Iterator[None]:
    gym.register("corrgrpo/CliPair-v0", Pair)
    gym.register("other/CliPlain-v0", Plain)
    yield
    for name in ("corrgrpo/CliPair-v0", "other/CliPlain-v0"):
        del gym.registry[name]


@pytest.fixture
def profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Profiles of their own, so that the tests do not depend on the tuned ones."""
    texts = {
        "cpu/CliPair-v0": "env: CliPair-v0\nenv_args: {size: 2}\nsteps: 20\ngroup_size: 6\nlearning_rate: 2e-5\n",
        "gpu/CliPair-v0": "env: CliPair-v0\nsteps: 30\n",
        "paper": "steps: 50\nreward_weights: {first: 2}\n",
    }
    monkeypatch.setattr(presets, "names", lambda: sorted(texts))
    monkeypatch.setattr(presets, "read", texts.__getitem__)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], profiles: None) -> Run:
    """Run the command line in an empty folder with a trainer that does what it is told."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, train: Callable[[Config], Any] = lambda config: None) -> tuple[int, str, str]:
        monkeypatch.setitem(sys.modules, "corrgrpo_train.trainer", SimpleNamespace(train=train))
        code = cli.main(arguments)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


@pytest.fixture
def configured(run: Run) -> Callable[..., Config]:
    """The configuration that the trainer gets."""

    def call(*arguments: str) -> Config:
        got: list[Config] = []
        code, _, err = run(*arguments, train=got.append)
        assert code == 0, err
        return got[0]

    return call


CPU = ("--env", "CliPair-v0", "--device", "cpu")

# ---- layers ----------------------------------------------------------------------------------------------


def test_the_cpu_profile_is_used_and_announced(run: Run) -> None:
    got: list[Config] = []
    code, _, err = run(*CPU, "--group-size", "4", train=got.append)
    assert code == 0
    assert (got[0].steps, got[0].group_size, got[0].learning_rate) == (20, 4, 2e-5)
    assert err.count("\n") == 1
    assert "profile cpu/CliPair-v0 sets env_args={'size': 2}, steps=20, learning_rate=2e-05 (" in err


@pytest.mark.parametrize("name", ["CliPair", "corrgrpo/CliPair", "corrgrpo/CliPair-v0"])
def test_a_profile_is_found_however_its_environment_is_named(run: Run, name: str) -> None:
    gym.register("corrgrpo/CliPair-v1", Pair)  # has no profile
    try:
        got: list[Config] = []
        code, _, err = run("--env", name, "--device", "cpu", train=got.append)
        assert code == 0
        newest = not name.endswith("-v0")
        assert got[0].env_id == ("corrgrpo/CliPair-v1" if newest else "corrgrpo/CliPair-v0")
        assert ("profile cpu/CliPair-v0 sets" in err) == (not newest)
        assert got[0].env_args == ({} if newest else {"size": 2})
    finally:
        del gym.registry["corrgrpo/CliPair-v1"]
    code, _, err = run("--env", name, "--device", "cpu", train=got.append)
    assert code == 0
    assert "profile cpu/CliPair-v0 sets" in err
    assert (got[1].env_id, got[1].steps, got[1].env_args) == ("corrgrpo/CliPair-v0", 20, {"size": 2})
    assert got[1].run_dir == Path("runs/CliPair-v0-corrgrpo-s0")


def test_the_gpu_profile_is_used_with_a_gpu(configured: Callable[..., Config], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corrgrpo_train.config_checks.check_device", lambda config: None)  # as if there were one
    config = configured("--env", "CliPair-v0", "--device", "cuda")
    assert (config.steps, config.group_size) == (30, 8)


def test_without_a_profile_there_are_the_defaults(configured: Callable[..., Config]) -> None:
    assert configured("--env", "other/CliPlain-v0") == Config(env="other/CliPlain-v0")


def test_a_preset_replaces_the_profile(configured: Callable[..., Config]) -> None:
    config = configured(*CPU, "--preset", "paper")
    assert (config.steps, config.group_size, config.reward_weights) == (50, 8, {"first": 2.0})


def test_precedence(configured: Callable[..., Config], tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("steps: 60\ngroup_size: 3\nreward_weights: {second: 3}\nseed: 9\n")
    config = configured(*CPU, "--preset", "paper", "--config", "my.yaml", "--seed", "1", "--reward-weights.first", "7")
    assert (config.steps, config.group_size, config.seed) == (60, 3, 1)
    assert config.reward_weights == {"first": 7.0, "second": 3.0}


def test_the_environment_may_come_from_the_file(configured: Callable[..., Config], tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("env: CliPair-v0\ndevice: cpu\nsteps: 60\n")
    config = configured("--config", "my.yaml")
    assert (config.steps, config.group_size) == (60, 6)


def test_options_belong_to_their_owner() -> None:
    low = {
        "env": "A-v0",
        "env_args": {"a": 1},
        "reward_weights": {"x": 1.0},
        "method": "gdpo",
        "method_args": {"b": 2},
    }
    assert cli.merge([low, {"env": "B-v0", "env_args": {"c": 3}}]) == {
        "env": "B-v0",
        "env_args": {"c": 3},
        "method": "gdpo",
        "method_args": {"b": 2},
    }
    assert "method_args" not in cli.merge([low, {"method": "grpo"}])
    assert cli.merge([low, {"env": "A-v0", "method": "gdpo"}]) == low


def test_layers_are_left_as_they_are() -> None:
    low: dict[str, Any] = {"env_args": {"a": 1}}
    cli.merge([low, {"env_args": {"b": 2}}])
    assert low == {"env_args": {"a": 1}}


def test_print_config_is_read_again(run: Run, tmp_path: Path) -> None:
    code, out, _ = run(*CPU, "--reward-weights", '{"first": 0.5}', "--no-tensorboard", "--print-config")
    assert code == 0
    (tmp_path / "again.yaml").write_text(out)
    assert run("--config", "again.yaml", "--print-config")[1] == out
    assert yaml.safe_load(out)["reward_weights"] == {"first": 0.5}
    assert yaml.safe_load(out)["tensorboard"] is False


# ---- flags -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (["--max-new-tokens", "7"], {"max_new_tokens": 7}),
        (["--max_new_tokens=7"], {"max_new_tokens": 7}),
        (["--learning-rate", "1e-6"], {"learning_rate": 1e-6}),
        (["--threads", "null"], {"threads": None}),
        (["--quiet", "--no-shared-prompts"], {"quiet": True, "shared_prompts": False}),
        (
            ["--env-args.my_option", "optimal", "--env-args.n", "3"],
            {"env_args": {"my_option": "optimal", "n": 3}},
        ),
        (["--env-args", '{"deep": {"a": [1, null]}}'], {"env_args": {"deep": {"a": [1, None]}}}),
        (["--reward-weights.ast_similarity", "1"], {"reward_weights": {"ast_similarity": 1.0}}),
        (["--output", "runs/a_b"], {"output": "runs/a_b"}),
        (["--model", "123"], {"model": "123"}),
    ],
)
def test_flags(arguments: list[str], settings: dict[str, Any]) -> None:
    assert cli.parse(arguments).settings == settings


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--group-sise", "3"], "there is no flag --group-sise. Did you mean '--group-size'?"),
        (["--group_sise=3"], "there is no flag --group-sise. Did you mean '--group-size'?"),
        (["--reward-weigths.format", "3"], "Did you mean '--reward-weights'?"),
        (["--qqq"], "there is no flag --qqq. --help lists the flags."),
        (["--group", "3"], "there is no flag --group."),
        (["RLLA-v0"], "there is no argument 'RLLA-v0': settings are given as --name value"),
        (["--steps", "many"], "--steps must be a whole number, not 'many'"),
        (["--threads", "two"], "--threads must be a whole number or null, not 'two'"),
        (["--reward-weights", "half"], "--reward-weights must be a mapping of names to numbers, not 'half'"),
        (
            ["--reward-weights.a", "half"],
            "--reward-weights must be a mapping of names to numbers, not 'half'",
        ),
        (["--env-args", "[1]"], "--env-args must be a mapping of names to values"),
        (["--env"], "--env needs a value"),
        (["--quiet=no"], "--quiet takes no value: write --quiet or --no-quiet"),
        ([], "the command line names no environment: give one, for example --env RLLA-v0"),
        (["--env", "CliPear-v0"], "Did you mean 'CliPair-v0'?"),
        (["--env", "corrgrpo/CliPear-v0"], "Did you mean 'CliPair-v0'?"),
        (["--env", "no_such_package_x:a/B-v0"], "no_such_package_x"),
        (
            [*CPU, "--env-args.sise", "3"],
            "env_args 'sise' is unknown; allowed: 'split', 'size', 'reward_weights'.",
        ),
        ([*CPU, "--env-args.size", "0"], "env 'CliPair-v0': size must be at least 1, not 0"),
        (
            [*CPU, "--reward-weights.third", "1"],
            "reward component 'third' is unknown; allowed: 'first', 'second'.",
        ),
        (["--env", "other/CliPlain-v0", "--reward-weights.a", "1"], "for an environment without"),
        (["--env", "..:x/Y-v0"], "env '..:x/Y-v0': "),
        (["--env-args", '{"a":' + "[" * 3000 + "]" * 3000 + "}"], "--env-args must be a mapping"),
        ([*CPU, "--output", "x" * 5000], "cannot be a run folder: File name too long"),
        ([*CPU, "--output", "a\0b"], "cannot be a run folder"),
        ([*CPU, "--output", "\ud800"], "cannot be a run folder"),
        ([*CPU, "--output", "/dev/null"], "cannot be a run folder: /dev/null is a file"),
        ([*CPU, "--output", "/dev/null/runs/x"], "cannot be a run folder: "),
        ([*CPU, "--seed", str(2**70)], f"seed must be at most {2**63 - 1}"),
        ([*CPU, "--threads", "100000"], "threads must be at most 1024"),
        ([*CPU, "--group-size", "0"], "group_size must be at least 1"),
        ([*CPU, "--method", "corgrpo"], "method 'corgrpo' is unknown"),
        ([*CPU, "--config", "missing.yaml"], "missing.yaml cannot be read"),
        (["--resume"], "--resume needs --output FOLDER"),
        (["--resume", "--output", "nothing"], "nothing holds no run to resume"),
    ],
)
def test_wrong_input_is_one_line(run: Run, arguments: list[str], words: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("corrgrpo_train: error: ")
    assert err.count("\n") == 1
    assert len(err) < 1000
    assert words in err


def test_an_unknown_preset_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--env", "RLLA-v0", "--preset", "cpu/RLA-v0"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("corrgrpo_train: error: preset 'cpu/RLA-v0' is unknown; allowed: ")
    assert err.endswith("Did you mean 'cpu/RLLA-v0'?\n")


def test_wrong_keys_name_the_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("env: CliPair-v0\nstps: 3\n")
    code, _, err = run("--config", "my.yaml")
    assert code == 2
    assert err == "corrgrpo_train: error: my.yaml: there is no setting 'stps'. Did you mean 'steps'?\n"


# ---- errors while training -------------------------------------------------------------------------------


def test_errors_of_the_trainer_are_one_line(run: Run) -> None:
    def fail(config: Config) -> None:
        raise UsageError("the data set\n  cannot be read")

    code, _, err = run("--env", "other/CliPlain-v0", train=fail)
    assert (code, err) == (2, "corrgrpo_train: error: the data set cannot be read\n")
    with pytest.raises(UsageError):
        run("--env", "other/CliPlain-v0", "--traceback", train=fail)


@pytest.mark.parametrize("kind", [RuntimeError, ValueError])
def test_faults_of_the_program_are_not_hidden(run: Run, kind: type[Exception]) -> None:
    def fail(config: Config) -> None:
        raise kind("a fault")

    with pytest.raises(kind):
        run("--env", "other/CliPlain-v0", train=fail)


@pytest.mark.parametrize("saved", [True, False])
def test_interruption_says_how_to_go_on(run: Run, saved: bool) -> None:
    def interrupt(config: Config) -> None:
        if saved:
            (config.run_dir / "checkpoints" / "step_000010").mkdir(parents=True)
            (config.run_dir / "checkpoints" / "step_000010" / "COMPLETE").touch()
        raise KeyboardInterrupt

    code, _, err = run("--env", "other/CliPlain-v0", "--output", "runs/my run", train=interrupt)
    assert code == 130
    assert err.count("\n") == 1
    assert ("python -m corrgrpo_train --resume --output 'runs/my run'" in err) == saved


# ---- resuming --------------------------------------------------------------------------------------------


@pytest.fixture
def old_run(tmp_path: Path) -> Config:
    config = Config(env="CliPair-v0", learning_rate=3e-5, output="old", env_args={"size": 2}, seed=4)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.yaml").write_text(to_yaml(config))
    return config


def test_a_folder_with_a_run_is_refused(run: Run, old_run: Config) -> None:
    code, _, err = run(*CPU, "--output", "old")
    assert code == 2
    assert "old already holds a run: continue it with --resume, or choose another --output" in err


def test_resume_takes_the_settings_of_the_run(configured: Callable[..., Config], old_run: Config) -> None:
    config = configured("--resume", "--output", "old", "--steps", "300")
    assert config == Config(**{**vars(old_run), "resume": True, "steps": 300})


def test_resume_finds_the_default_folder(configured: Callable[..., Config], old_run: Config, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "old").rename(tmp_path / "runs" / "CliPair-v0-corrgrpo-s4")
    config = configured("--resume", "--env", "CliPair-v0", "--seed", "4")
    assert (config.learning_rate, config.run_dir) == (3e-5, Path("runs/CliPair-v0-corrgrpo-s4"))


def test_resume_refuses_other_settings(run: Run, old_run: Config) -> None:
    code, _, err = run("--resume", "--output", "old", "--learning-rate", "1e-4", "--env-args.size", "3")
    assert code == 2
    assert err.count("\n") == 1
    assert "env_args {'size': 2}, not {'size': 3}; learning_rate 3e-05, not 0.0001" in err


# ---- speed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["--stepz"], ["--env", "RLLA-v0", "--group-size", "0"]])
def test_help_and_errors_do_not_wait_for_torch(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from corrgrpo_train.cli import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "except SystemExit:\n"
        "    pass\n"
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0


def test_help_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--help"])
    shown = capsys.readouterr().out
    assert exit_.value.code == 0
    for name in (*vars(Config(env="x")), "config", "preset", "print_config", "traceback"):
        assert f"--{name.replace('_', '-')}" in shown
    assert "Episodes per group." in shown


def test_the_module_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "corrgrpo_train", "--stepz"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "corrgrpo_train: error: there is no flag --stepz. Did you mean '--steps'?\n"


def test_a_device_that_is_not_there_is_told_before_anything_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main(["--env", "RLLA-v0", "--device", "cuda:7", "--output", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "device 'cuda:7' cannot be used here" in error
    assert "--device cpu" in error
    assert error.count("\n") == 1
    assert "profile" not in error


@pytest.mark.parametrize(("method", "idle"), [("grpo", True), ("gdpo", True), ("corrgrpo", False), ("rloo", False)])
def test_hypervolume_weighting_without_effect_is_told(run: Run, method: str, idle: bool) -> None:
    code, _, err = run(*CPU, "--method", method, "--weighting", "hypervolume")
    assert code == 0
    assert (f"method '{method}' divides out again" in " ".join(err.split())) == idle


@pytest.mark.parametrize("size", [1, 2])
def test_groups_of_one_are_remarked_upon(run: Run, size: int) -> None:
    code, _, err = run(*CPU, "--group-size", str(size))
    assert code == 0
    assert ("nothing will be learned" in " ".join(err.split())) == (size == 1)

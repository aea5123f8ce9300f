"""Everything that the README shows is run, or at least parsed by the program that it names."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def commands():
    """Each command line of the shell blocks, as words."""
    lines = "\n".join(blocks("bash")).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [line for line in words if line]


def run(*words, cwd):
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(*words, cwd):
    """Run this interpreter on the working tree's packages from another folder."""
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
    module, arguments = words[1], list(words[2:])
    code = f"{start}; sys.argv[1:] = {arguments!r}; import runpy; runpy.run_module({module!r}, run_name='__main__')"
    return run(sys.executable, "-c", code, cwd=cwd)


def test_there_are_blocks_to_test():
    languages = re.findall(r"^```(\w+)$", README, re.MULTILINE)
    assert set(languages) == {"bash", "python"}
    assert README.count("```") == 2 * len(languages), "every block names its language"


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.split("\n")[0])
def test_python(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_command(words, tmp_path):
    match words:
        case ["make", *arguments]:
            # -n says what would be done; an unknown target is an error
            assert run("make", "-n", *arguments, cwd=ROOT).strip()
        case ["source", path]:
            (folder,) = re.findall(r"^VENV \?= (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert path == f"{folder}/bin/activate"
        case ["pip", "install", "-e", what]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            extras = re.fullmatch(r"\.(?:\[(.+)\])?", what)[1]
            assert set((extras or "").split(",")) - {""} <= set(project["optional-dependencies"])
        case ["python", "-m", "corrgrpo_train", *arguments] if "--resume" in arguments:
            assert resumable(arguments), "a command above makes this run"
        case ["python", "-m", "corrgrpo_train", *arguments] if "tiny" in arguments:
            python("-m", "corrgrpo_train", *arguments, cwd=tmp_path)
            assert list(tmp_path.glob("runs/*/checkpoints/*/COMPLETE"))
        case ["python", "-m", "corrgrpo_train", *arguments]:
            settings = python("-m", "corrgrpo_train", *arguments, "--print-config", cwd=tmp_path)
            assert re.search(r"^env: ", settings, re.MULTILINE)
        case ["python", "-m", "corrgrpo_train.benchmark", *arguments] if "CorrelatedBandit-v0" in arguments:
            pytest.importorskip("plotly")
            python("-m", "corrgrpo_train.benchmark", *arguments, cwd=tmp_path)
            assert list(tmp_path.glob("runs/*/comparison.json"))
        case ["python", "-m", "corrgrpo_train.benchmark", *arguments]:
            from corrgrpo_train import cli
            from corrgrpo_train.benchmark.cli import parser

            own, settings = parser().parse_known_args(arguments)
            assert own.methods
            assert cli.gather(cli.parse(settings))
        case ["python", "-m", "corrgrpo_train.evaluate", *arguments] if "tiny" in arguments:
            assert "│ reward" in python("-m", "corrgrpo_train.evaluate", *arguments, cwd=tmp_path)
            assert list(tmp_path.glob("evaluations/*.json"))
        case ["python", "-m", "corrgrpo_train.evaluate", *arguments]:
            from corrgrpo_train.evaluate.cli import COMMANDS, parser

            assert arguments[0] in COMMANDS or parser().parse_args(arguments)
        case _:
            pytest.fail(f"no check for this command: {' '.join(words)}")


def resumable(arguments):
    """Whether an earlier command writes to the folder that this one continues."""
    folder = arguments[arguments.index("--output") + 1]
    return any(folder in words and "--resume" not in words for words in commands())


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\((?!https?:)([^)#]+)", README))))
def test_links_lead_somewhere(target):
    assert (ROOT / target).is_file()


def test_environment_table_lists_what_is_registered():
    import gymnasium

    import corrgrpo_envs  # noqa: F401

    registered = {name for name in gymnasium.registry if name.startswith("corrgrpo/")}
    table = set(re.findall(r"^\| `(corrgrpo/[\w-]+)`", README, re.MULTILINE))
    assert table | {name.replace("-v", "Vector-v") for name in table} == registered


def test_extras_and_python_version_match_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=" + re.search(r"Python (3\.\d+) or later", README)[1]

"""Commands and Python of the pages in docs/ run, or are at least parsed by the program that they name."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from test_readme import ROOT, python, run

PAGES = sorted((ROOT / "docs").glob("*.md"))
# Pages whose Python is run, and whose claims are looked at, by a test of their own.
TESTED_ELSEWHERE = {
    *("environments", "leetcode", "agentdojo", "apibank", "asb", "injecagent"),
    *("humaneval", "mbpp", "livecodebench"),
    "trl",  # with TRL: tests/train/integrations/test_trl_documentation.py
}
PROGRAMS = ("python", "pip", "make", "torchrun", "accelerate", "source", "bash", "VLLM_LOGGING_LEVEL=INFO")


def blocks(page, languages):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [code for language, code in found if language in languages]


def commands():
    """Page and words of every command line in a shell block, or a block without a language."""
    for page in PAGES:
        for code in blocks(page, ("bash", "")):
            for line in code.replace("\\\n", " ").split("\n"):
                if line.startswith(PROGRAMS):
                    for command in line.split(" && "):
                        yield pytest.param(shlex.split(command, comments=True), id=f"{page.stem}: {command}"[:90])


# Settings that another command made, or that ask for what is not installed here: only the flags' names are checked.
ONLY_NAMES = {"--resume", "--config", "vllm", "wandb", "trackio"}


@pytest.mark.parametrize("words", list(commands()))
def test_command(words, tmp_path):
    words = [word for word in words if word != "VLLM_LOGGING_LEVEL=INFO"]
    if words[0] in ("torchrun", "accelerate"):
        words = ["python", "-m", *words[words.index("-m") + 1 :]]
    match words:
        case ["make", *arguments]:
            assert run("make", "-n", *arguments, cwd=ROOT).strip()
        case ["source" | "bash", *_]:
            pass
        case ["pip", "install", *what]:
            named = re.findall(r"'?(?:\.|corrgrpo)\[([\w,]+)\]", " ".join(what))
            declared = (ROOT / "pyproject.toml").read_text()
            assert all(
                re.search(rf"^{extra} = \[", declared, re.MULTILINE) for extra in ",".join(named).split(",") if extra
            )
        case ["python", "-m", "venv", _]:
            pass
        case ["python", "-m", "corrgrpo_train", *arguments] if ONLY_NAMES & set(arguments):
            known = python("-m", "corrgrpo_train", "--help", cwd=tmp_path)
            assert all(word in known for word in arguments if word.startswith("--"))
        case ["python", "-m", "corrgrpo_train", *arguments]:
            arguments = [word for word in arguments if word not in ("...", "…")]
            arguments += [] if "--env" in arguments else ["--env", "RLLA-v0"]
            settings = python("-m", "corrgrpo_train", *arguments, "--print-config", cwd=tmp_path)
            assert re.search(r"^env: ", settings, re.MULTILINE)
        case ["python", "-m", "corrgrpo_train.benchmark", *arguments]:
            from corrgrpo_train import cli
            from corrgrpo_train.benchmark.cli import parser

            assert cli.parse(parser().parse_known_args(arguments)[1]).settings["env"]
        case ["python", "-m", module, *arguments]:
            assert importlib.util.find_spec(module), module
            accepts(["-m", module], arguments)
        case ["python", file, *arguments]:
            assert (ROOT / file).is_file()
            accepts([file], arguments)
        case _:
            pytest.fail(f"no check for this command: {' '.join(words)}")


def accepts(program, arguments):
    """The program knows the flags that the page gives it."""
    flags = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    if flags:
        done = subprocess.run(
            [sys.executable, *program, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        assert all(flag in done.stdout for flag in flags), done.stdout


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page, ("python",)) and page.stem not in TESTED_ELSEWHERE],
    ids=lambda p: p.stem,
)
def test_python(page, tmp_path):
    """The page's blocks, one after the other, in a process of their own."""
    (tmp_path / "page.py").write_text("\n".join(blocks(page, ("python",))), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", text):
        file = (page.parent / target).resolve() if target else page
        assert file.is_file(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^([\w/]+\.md)$", index, re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in Path(ROOT / "docs").rglob("*.md")}
    assert listed == pages - {"index.md"}

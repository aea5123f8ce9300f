"""The command line: evaluate a model, and show, merge and compare results."""

import argparse
import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from corrgrpo_envs.errors import suggestion, unknown
from corrgrpo_envs.registration import full_id
from corrgrpo_train.engines import vllm_arguments
from corrgrpo_train.errors import UsageError
from corrgrpo_train.evaluate.chat_client import ChatClient
from corrgrpo_train.evaluate.comparison import compared
from corrgrpo_train.evaluate.conversation import REASONING, TOOL_MODES
from corrgrpo_train.evaluate.display import Display
from corrgrpo_train.evaluate.evaluation import evaluate, merged
from corrgrpo_train.evaluate.results import read_result
from corrgrpo_train.evaluate.sampler import Sampler
from corrgrpo_train.evaluate.served import ServedSampler
from corrgrpo_train.evaluate.settings import (
    ENGINES,
    EnvironmentChoice,
    Settings,
    default_output,
    differences,
    environment_choices,
    json_object,
    parse_shard,
)
from corrgrpo_train.evaluate.tables import show, show_differences
from corrgrpo_train.rollout.environment import parameters_of

PROGRAM = "python -m corrgrpo_train.evaluate"
EPILOG = (
    f"Results: {PROGRAM} show RESULT.json; {PROGRAM} compare A.json B.json; "
    f"{PROGRAM} merge SHARD.json ... --output RESULT.json"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for wrong input, 130 when interrupted.

    Args:
        argv: arguments after the program's name; None takes them from `sys.argv`.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that cannot show a character shows another one.
            stream.reconfigure(errors="replace")
    try:
        if arguments and not arguments[0].startswith("-"):
            _command(arguments[0])(arguments[1:])
        else:
            _evaluate(arguments)
        return 0
    except KeyboardInterrupt:
        _say("interrupted; run the same command again to go on")
        return 130
    except (UsageError, MemoryError) as error:
        if "--traceback" in arguments:
            raise
        _say("error: " + (" ".join(str(error).split()) or "not enough memory: lower --batch"))
        return 2


def _say(text: str) -> None:
    sys.stderr.write(f"corrgrpo_train.evaluate: {text}\n")


def _command(name: str) -> Callable[[Sequence[str]], None]:
    if name not in COMMANDS:
        raise UsageError(f"{unknown('command', name, COMMANDS)} To evaluate, begin with --env ID")
    return COMMANDS[name]


class _Parser(argparse.ArgumentParser):
    """Tells a wrong argument in one line."""

    def error(self, message: str) -> NoReturn:
        word = message.partition("unrecognized arguments: ")[2].split(" ")[0].split("=")[0]
        if word.startswith("-"):
            known = [flag for action in self._actions for flag in action.option_strings]
            near = suggestion(word, known) or " --help lists the flags."
            raise UsageError(f"there is no flag {word}.{near}")
        if word:
            raise UsageError(f"there is no argument {word!r}: settings are given as --name value (--help lists them)")
        raise UsageError(message)


def _parser(command: str = "", **texts: str) -> _Parser:
    made = _Parser(prog=f"{PROGRAM} {command}".strip(), allow_abbrev=False, **texts)  # type: ignore[arg-type]
    made.add_argument("--traceback", action="store_true", help="show where an error came from")
    return made


# ---- evaluate --------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """The parser of an evaluation's arguments."""
    made = _parser(description="Evaluate a language model on environments.", epilog=EPILOG)
    made.add_argument("--env", action="append", required=True, metavar="ID", help="environment; may be repeated")
    made.add_argument(
        "--env-args",
        action="append",
        default=[],
        metavar="JSON",
        help="constructor arguments of all environments, or of one: RLLA-v0='{...}'; may be repeated",
    )
    made.add_argument("--split", default="test", help="split of environments that have splits (default: test)")
    made.add_argument("--tasks", type=int, help="at most so many tasks of each environment, kinds spread evenly")
    made.add_argument("--shard", default="1/1", metavar="I/N", help="play the I-th of N parts")
    made.add_argument("--output", type=Path, metavar="FILE", help="result file (default: in evaluations/)")
    made.add_argument("--retry", action="store_true", help="play episodes again that could not be scored")
    made.add_argument("--efficiency", action="store_true", help="time the programs of LeetCode-v0 (appendix J.3)")
    made.add_argument("--no-published", action="store_true", help="leave out the published tables")
    made.add_argument("--quiet", action="store_true", help="show no progress")

    model = made.add_argument_group("model")
    model.add_argument("--model", default="default", help="as for training; with --server its name there")
    model.add_argument("--engine", choices=ENGINES[:2], default=None, help="(default: transformers)")
    model.add_argument("--samples", type=int, default=1, help="episodes per task (default: 1)")
    model.add_argument("--temperature", type=float, default=0.0, help="(default: 0, greedy)")
    model.add_argument("--seed", type=int, default=0, help="of sampling (default: 0)")
    model.add_argument("--max-new-tokens", type=int, default=1024, help="longest completion of a turn (default: 1024)")

    local = made.add_argument_group("a model in this process")
    local.add_argument("--max-episode-tokens", type=int, help="longest episode (default: the model's context)")
    local.add_argument("--batch", type=int, default=32, help="episodes sampled together (default: 32)")
    local.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps")
    local.add_argument("--threads", type=int, help="CPU threads of the tensor library")
    local.add_argument("--schedule", default="lockstep", help="lockstep, or async with vLLM")
    local.add_argument("--vllm-memory", type=float, metavar="GIB", help="key-value cache of vLLM")
    local.add_argument("--vllm-args", default="{}", metavar="JSON", help="further engine arguments of vLLM")

    server = made.add_argument_group("a model behind an OpenAI-compatible server")
    server.add_argument("--server", metavar="URL", help="for example http://localhost:8000/v1")
    server.add_argument("--server-key-env", metavar="NAME", help="environment variable that holds the key")
    server.add_argument("--server-timeout", type=float, default=600.0, help="seconds for an answer (default: 600)")
    server.add_argument("--server-retries", type=int, default=4, help="further tries of a request (default: 4)")
    server.add_argument("--concurrency", type=int, default=16, help="conversations at a time (default: 16)")
    server.add_argument("--tool-mode", choices=TOOL_MODES, default="calls", help="how tools are told (default: calls)")
    server.add_argument("--reasoning", choices=REASONING, default="restore", help="thoughts sent apart")
    server.add_argument("--request-args", default="{}", metavar="JSON", help="further fields of every request")

    made.add_argument("--env-workers", type=int, default=2, help="threads that step environments (default: 2)")
    made.add_argument("--env-timeout", type=float, default=600.0, help="seconds for a call of an environment")
    return made


def _evaluate(arguments: Sequence[str]) -> None:
    options = parser().parse_args(arguments)
    _check(options)
    client = _client(options) if options.server else None
    settings = _settings(options, client)
    settings.check()
    shard = parse_shard(options.shard)
    output = options.output or default_output(settings, shard)
    console = Console(stderr=True, highlight=False)
    display = Display(console, quiet=options.quiet)
    try:
        result = evaluate(
            settings,
            output,
            _sampler_maker(options, settings, client, display.note),
            display,
            shard=shard,
            retry=options.retry,
            efficiency=options.efficiency,
            timeout=options.env_timeout,
        )
    finally:
        display.close()
    show(_output(), result, published=not options.no_published)
    sys.stdout.write(f"{output}\n")


def _check(options: argparse.Namespace) -> None:
    if options.server and options.engine:
        raise UsageError("--engine and --server exclude each other: the server samples with its own engine")
    if options.engine == "vllm":
        if not vllm_arguments.installed():
            raise UsageError(vllm_arguments.MISSING)
        vllm_arguments.check_arguments(json_object("vllm_args", options.vllm_args))
    for name in ("concurrency", "env_workers", "threads"):
        value = getattr(options, name)
        if value is not None and not 1 <= value <= 1024:
            raise UsageError(f"{name} must be from 1 to 1024, not {value}")
    for name in ("server_timeout", "env_timeout", "vllm_memory"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"{name} must be above 0 and finite, not {value}")
    if not 0 <= options.server_retries <= 100:
        raise UsageError(f"server_retries must be from 0 to 100, not {options.server_retries}")
    if not options.server and options.server_key_env:
        raise UsageError("server_key_env has no effect without --server URL: give that, or leave it out")


def _client(options: argparse.Namespace) -> ChatClient:
    key = ""
    if options.server_key_env:
        key = os.environ.get(options.server_key_env, "")
        if not key:
            raise UsageError(f"the environment variable {options.server_key_env} holds no key: set it")
    return ChatClient(
        options.server,
        key=key,
        timeout=options.server_timeout,
        retries=options.server_retries,
        connections=options.concurrency,
    )


def _settings(options: argparse.Namespace, client: ChatClient | None) -> Settings:
    # Packages of third-party environments register them when they are imported.
    for name in options.env:
        with suppress(Exception):  # it fails again, and is told, where the environment is made
            importlib.import_module(name.rpartition(":")[0] or "corrgrpo_envs")
    choices = environment_choices(options.env, options.env_args)
    if client is not None and options.model == "default":
        options.model = asyncio.run(_only_model(client))
    return Settings(
        environments=tuple(_with_split(choice, options.split) for choice in choices),
        model=options.model,
        weights="" if client is not None else _fingerprint(options.model),
        engine="server" if client is not None else options.engine or "transformers",
        samples=options.samples,
        temperature=options.temperature,
        seed=options.seed,
        tasks=options.tasks,
        max_new_tokens=options.max_new_tokens,
        max_episode_tokens=options.max_episode_tokens,
        batch=options.batch,
        schedule=options.schedule,
        vllm_args=json_object("vllm_args", options.vllm_args),
        tool_mode=options.tool_mode,
        reasoning=options.reasoning,
        request_args=json_object("request_args", options.request_args),
    )


def _with_split(choice: EnvironmentChoice, split: str) -> EnvironmentChoice:
    """The environment with the split among its arguments, where it takes one and has none yet."""
    known = parameters_of(full_id(choice.name))
    if "split" in choice.arguments or (known is not None and "split" not in known):
        return choice
    return EnvironmentChoice(choice.name, {"split": split, **choice.arguments})


async def _only_model(client: ChatClient) -> str:
    async with client:
        listed = await client.models()
    if len(listed) != 1:
        found = f"it lists {', '.join(listed[:8])}" if listed else "it does not list its models"
        raise UsageError(f"name the server's model with --model: {found}")
    return listed[0]


def _fingerprint(model: str) -> str:
    from corrgrpo_train.evaluate.local import fingerprint

    return fingerprint(model)


def _sampler_maker(
    options: argparse.Namespace, settings: Settings, client: ChatClient | None, progress: Callable[[str], None]
) -> Callable[[], Sampler]:
    def served() -> Sampler:
        assert client is not None
        return ServedSampler(
            settings,
            client,
            concurrency=options.concurrency,
            workers=options.env_workers,
            timeout=options.env_timeout,
        )

    def local() -> Sampler:
        from transformers.utils import logging

        from corrgrpo_train.evaluate.local import LocalSampler, Machine

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        machine = Machine(
            device=options.device,
            threads=options.threads,
            vllm_memory=options.vllm_memory,
            workers=options.env_workers,
            timeout=options.env_timeout,
        )
        return LocalSampler(settings, machine, progress)

    return local if client is None else served


# ---- results ---------------------------------------------------------------------------------------------


def _show(arguments: Sequence[str]) -> None:
    made = _parser("show", description="Show a result.")
    made.add_argument("result", type=Path, metavar="RESULT")
    made.add_argument("--no-published", action="store_true", help="leave out the published tables")
    options = made.parse_args(arguments)
    show(_output(), read_result(options.result), published=not options.no_published)


def _merge(arguments: Sequence[str]) -> None:
    made = _parser("merge", description="Put the shards of one evaluation together.")
    made.add_argument("shards", nargs="+", type=Path, metavar="SHARD")
    made.add_argument("--output", type=Path, required=True, metavar="FILE", help="the whole result")
    made.add_argument("--no-published", action="store_true", help="leave out the published tables")
    options = made.parse_args(arguments)
    show(_output(), merged(options.shards, options.output), published=not options.no_published)
    sys.stdout.write(f"{options.output}\n")


def _compare(arguments: Sequence[str]) -> None:
    made = _parser("compare", description="Compare two results task by task.")
    made.add_argument("first", type=Path, metavar="A")
    made.add_argument("second", type=Path, metavar="B")
    options = made.parse_args(arguments)
    names = (options.first.stem, options.second.stem)
    first, second = read_result(options.first), read_result(options.second)
    differing = differences(first.settings, second.settings)
    show_differences(_output(), names, compared(first, second), differing)


COMMANDS: Mapping[str, Callable[[Sequence[str]], None]] = {"show": _show, "merge": _merge, "compare": _compare}


def _output() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    return console

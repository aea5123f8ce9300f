"""The command line: settings from defaults, profile, preset, file and flags, in rising precedence."""

import re
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from io import TextIOWrapper
from pathlib import Path
from shlex import quote
from typing import Any

from corrgrpo_envs.errors import shown, suggestion
from corrgrpo_train import presets
from corrgrpo_train.bundles import merge
from corrgrpo_train.config import (
    SECTIONS,
    Config,
    complete,
    field_docs,
    field_types,
    read_settings,
    read_yaml,
    results_of,
    to_yaml,
)
from corrgrpo_train.config_checks import check_values, validate
from corrgrpo_train.config_remarks import remarks
from corrgrpo_train.errors import UsageError
from corrgrpo_train.setting_types import expected
from corrgrpo_train.torchrun import is_first_to_fail, torchrun_rank
from corrgrpo_train.tracking import holds_run

DESCRIPTION = "Train a language model on an environment with several rewards."
EPILOG = (
    "Mappings: --reward-weights '{\"format\": 0.5}' or --reward-weights.format 0.5. Precedence: defaults, "
    "then the environment's profile for this machine (where no preset is named), --preset, --config, flags."
)


@dataclass
class Flags:
    """What the command line said."""

    settings: dict[str, Any] = field(default_factory=dict)
    preset: str | None = None
    config: str | None = None
    print_config: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0, 2 for wrong input, 130 when interrupted, 143 when ended by SIGTERM.

    Args:
        argv: arguments after the program's name; None takes them from `sys.argv`.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    config: Config | None = None
    before = _until_terminated()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that cannot show a character shows another one; it never ends a run.
            stream.reconfigure(errors="replace")
    try:
        flags = parse(arguments)
        config, notes = gather(flags)
        if flags.print_config:
            sys.stdout.write(to_yaml(config))
            return 0
        validate(config)
        if torchrun_rank() == 0:
            for note in [*notes, *remarks(config)]:
                _say(note)
        _train(config)
        return 0
    except KeyboardInterrupt as stop:
        terminated = isinstance(stop, _TerminatedError)
        if is_first_to_fail():
            _say(_interrupted(config, "ended" if terminated else "interrupted"))
        return 143 if terminated else 130
    except (UsageError, MemoryError) as error:
        if "--traceback" in arguments:
            raise
        if is_first_to_fail():
            _say("error: " + (" ".join(str(error).split()) or "not enough memory: lower --token-budget"))
        return 2
    except RecursionError:  # a mapping on the command line, nested thousands of levels deep
        if "--traceback" in arguments:
            raise
        _say("error: a value is nested too deeply")
        return 2
    except Exception:
        # Of several processes the others end because the first did: what they say of it would hide what it said.
        if is_first_to_fail():
            raise
        return 1
    finally:
        _restore(before)


def _train(config: Config) -> None:
    from transformers.utils import logging

    from corrgrpo_train.trainer import train

    # The console shows the progress; bars for writing files would run through it.
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    train(config)


def _say(text: str) -> None:
    sys.stderr.write(f"corrgrpo_train: {text}\n")


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM has come. Like an interrupt it passes by whatever handles errors."""


def _until_terminated() -> Any:
    """Have SIGTERM end the run as an interrupt does, with files closed and one line; return the handler before."""

    def end(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends the process at once
        raise _TerminatedError

    # Only the main thread may set handlers.
    main_thread = threading.current_thread() is threading.main_thread()
    return signal.signal(signal.SIGTERM, end) if main_thread else None


def _restore(handler: Any) -> None:
    if handler is not None:
        signal.signal(signal.SIGTERM, handler)


def _interrupted(config: Config | None, how: str) -> str:
    if config is None or not any((config.run_dir / "checkpoints").glob("step_*/COMPLETE")):
        return f"{how} before the first checkpoint"
    return f"{how}; continue with: python -m corrgrpo_train --resume --output {quote(str(config.run_dir))}"


# ---- flags -----------------------------------------------------------------------------------------------


def parser() -> Any:
    """The argument parser: one flag per field of `Config`, in kebab case."""
    from jsonargparse import ActionYesNo, ArgumentParser

    flags = ArgumentParser(
        prog="python -m corrgrpo_train",
        description=DESCRIPTION,
        epilog=EPILOG,
        exit_on_error=False,
        allow_abbrev=False,
    )
    flags.add_argument("--config", type=str, default=None, metavar="FILE", help="YAML file of settings")
    flags.add_argument("--preset", type=str, default=None, metavar="NAME", help=", ".join(presets.names()))
    for name, text in (
        ("--print-config", "print the settings as YAML and stop"),
        ("--traceback", "show where an error came from"),
    ):
        flags.add_argument(name, action="store_true", help=text)
    types, docs = field_types(), field_docs()
    group: Any = flags
    for item in fields(Config):
        if item.name in SECTIONS:
            group = flags.add_argument_group(SECTIONS[item.name])
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        options: dict[str, Any] = {
            "default": None if default is MISSING else default,
            "help": docs[item.name],
        }
        if types[item.name] is bool:
            options["action"] = ActionYesNo(no_prefix="no-")
        else:
            options["type"] = types[item.name]
            options["metavar"] = "JSON" if isinstance(default, dict) else item.name.upper()
        group.add_argument(_flag(item.name), **options)
    return flags


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def parse(arguments: Sequence[str]) -> Flags:
    """Parse the arguments.

    Raises:
        UsageError: for an unknown flag or a value of the wrong type.
    """
    from argparse import ArgumentError

    flags = parser()
    try:
        given = vars(flags.parse_args(_kebab(arguments), defaults=False))
    except ArgumentError as error:
        raise UsageError(_explained(str(error), arguments)) from None
    types = field_types()
    return Flags(
        settings={name: value for name, value in given.items() if name in types},
        preset=given.get("preset"),
        config=given.get("config"),
        print_config=bool(given.get("print_config")),
    )


def _kebab(arguments: Sequence[str]) -> list[str]:
    """Flags written with underscores in kebab case; names after a dot and values stay as they are."""
    return [re.sub(r"^--[a-z0-9_]+", lambda match: match[0].replace("_", "-"), argument) for argument in arguments]


def _explained(problem: str, arguments: Sequence[str]) -> str:
    """The parser's error as one line in the terms of the command line."""
    types = field_types()
    if match := re.match(r'Parser key "([^"]+)":', problem):
        name = match[1].split(".")[0]
        value = re.search(r"(?:Got value|Given value): (.*)", problem, re.DOTALL)
        given = f", not {shown(value[1].strip())}" if value else ""
        return f"{_flag(name)} must be {expected(types[name])}{given}"
    if match := re.match(r"unrecognized arguments: (.*)", problem, re.DOTALL):
        word = match[1].split()[0].split("=")[0]
        if not word.startswith("-"):
            return f"there is no argument {word!r}: settings are given as --name value (--help lists them)"
        known = [_flag(name) for name in (*types, "config", "preset", "print_config", "traceback", "help")]
        known += [_flag(f"no_{name}") for name, hint in types.items() if hint is bool]
        near = suggestion(_kebab([word])[0].split(".")[0], known) or " --help lists the flags."
        return f"there is no flag {word}.{near}"
    if match := re.match(r"argument (--[^:/]+)\S*: expected one argument", problem):
        return f"{match[1]} needs a value"
    if match := re.match(r"argument (--[^:/]+)\S*: ignored explicit argument", problem):
        return f"{match[1]} takes no value: write {match[1]} or {match[1].replace('--', '--no-', 1)}"
    return " ".join(problem.split())


# ---- layers ----------------------------------------------------------------------------------------------


def gather(flags: Flags) -> tuple[Config, list[str]]:
    """Merge all layers into a configuration.

    Returns:
        The configuration and what the user should be told about it.

    Raises:
        UsageError: if a layer cannot be read, holds a wrong key or value, or contradicts the run to resume.
    """
    layers: list[dict[str, Any]] = []
    if flags.preset is not None:
        layers.append(read_settings(presets.read(flags.preset), f"preset {flags.preset!r}"))
    if flags.config is not None:
        layers.append(read_yaml(flags.config))
    layers.append(flags.settings)
    asked = merge(layers)
    if asked.get("resume"):
        return _resumed(layers, asked), []
    config = complete(asked, "the command line")
    check_values(config)
    if holds_run(config.run_dir):
        raise UsageError(f"{config.run_dir} already holds a run: continue it with --resume, or choose another --output")
    if flags.preset is not None:
        return config, []
    name, why = _profile(config)
    if name is None:
        return config, []
    profile = read_settings(presets.read(name), f"profile {name!r}")
    used = {key: value for key, value in profile.items() if key not in asked and key != "env"}
    listed = ", ".join(f"{key}={value}" for key, value in used.items())
    note = f"{why}: profile {name} sets {listed} (flags, --config and --preset override it)"
    return complete(merge([profile, *layers])), [note] if used else []


def _profile(config: Config) -> tuple[str | None, str]:
    """The profile for the environment on this machine, and what the machine is."""
    bare = config.env_id.removeprefix("corrgrpo/")
    if not any(f"{kind}/{bare}" in presets.names() for kind in ("cpu", "gpu")):
        return None, ""
    kind, why = ("gpu", "a GPU was found") if _has_gpu(config.device) else ("cpu", "no GPU is used")
    name = f"{kind}/{bare}"
    return (name if name in presets.names() else None), why


def _has_gpu(device: str) -> bool:
    if device != "auto":
        return device.startswith("cuda")
    import torch

    return torch.cuda.is_available()


def _resumed(layers: Sequence[Mapping[str, Any]], asked: Mapping[str, Any]) -> Config:
    """The configuration of the run to continue, with the neutral settings asked for."""
    if "output" not in asked and "env" not in asked:
        raise UsageError("--resume needs --output FOLDER, the run to continue")
    folder = Path(asked["output"]) if asked.get("output") else complete(asked).run_dir
    saved_file = folder / "config.yaml"
    if not saved_file.is_file():
        raise UsageError(f"{folder} holds no run to resume (no config.yaml); start one without --resume")
    saved = read_yaml(saved_file)
    config = complete({**saved, **merge([saved, *layers]), "output": str(folder)}, str(saved_file))
    check_values(config)
    before, now = results_of(complete(saved, str(saved_file))), results_of(config)
    differing = [f"{name} {before[name]!r}, not {now[name]!r}" for name in before if before[name] != now[name]]
    if differing:
        raise UsageError(
            f"{folder} was made with {'; '.join(differing)}: leave these settings out to resume it, "
            "or start a new run with another --output"
        )
    return config

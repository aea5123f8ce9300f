"""Fingerprints: results are taken from an earlier call only where everything they depend on is the same."""

import hashlib
import inspect
import json
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import gymnasium as gym

from corrgrpo_envs.registration import full_id
from corrgrpo_train.advantages import ESTIMATORS


def fingerprint(settings: Mapping[str, Any], method: str | None = None) -> str:
    """Twelve hexadecimal digits over settings, this package's version, and the sources of estimator and environment.

    An estimator or environment whose module was edited is thereby run again. Changes of what these import, and of
    files of data, are not noticed.

    Args:
        settings: JSON values by name; `env` is the environment's id.
        method: registered name of the estimator; None where none takes part.
    """
    parts = [settings, _version(), _estimator(method), _environment(settings.get("env"))]
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _version() -> str:
    try:
        return version("corrgrpo")
    except PackageNotFoundError:  # run from a folder that was never installed
        return ""


def _estimator(method: str | None) -> str:
    return "" if method is None else _source(getattr(ESTIMATORS[method].function, "__module__", None))


def _environment(env: str | None) -> str:
    try:
        creator = gym.envs.registration.load_env_creator(str(gym.spec(full_id(env or "")).entry_point))
    except Exception:  # unknown ids and broken packages are told of where the environment is made
        return ""
    return _source(getattr(creator, "__module__", None))


def _source(module: str | None) -> str:
    """The whole module's: what its functions call and the values that they were made with mostly stand beside them."""
    try:
        return inspect.getsource(sys.modules[module or ""])
    except (KeyError, OSError, TypeError):  # typed into a session
        return ""

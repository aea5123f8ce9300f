"""Fingerprints: results are taken from an earlier call only where everything they depend on is the same."""

import hashlib
import inspect
import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from corrgrpo_train.advantages import ESTIMATORS


def fingerprint(settings: Mapping[str, Any], method: str | None = None) -> str:
    """Twelve hexadecimal digits over settings, this package's version and the estimator's own source.

    An estimator that was edited is thereby run again. Changes elsewhere within one version are not noticed.

    Args:
        settings: JSON values by name.
        method: registered name of the estimator; None where none takes part.
    """
    text = json.dumps([settings, _version(), _source(method)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _version() -> str:
    try:
        return version("corrgrpo")
    except PackageNotFoundError:  # run from a folder that was never installed
        return ""


def _source(method: str | None) -> str:
    if method is None:
        return ""
    try:
        return inspect.getsource(ESTIMATORS[method].function)
    except (OSError, TypeError):  # typed into a session
        return ""

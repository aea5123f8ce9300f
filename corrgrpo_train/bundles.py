"""Modes: published algorithms as bundles of settings, and settings that follow from others.

A mode is data. What a user sets beside it wins over it; `docs/objectives.md` has the table.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from corrgrpo_envs.registration import full_id

MODES: dict[str, dict[str, Any]] = {
    # arXiv 2503.14476.
    "dapo": {
        "method": "grpo",
        "objective": "dapo",
        "clip_low": 0.2,
        "clip_high": 0.28,
        "aggregation": "token",
        "kl_coefficient": 0.0,
        "entropy_coefficient": 0.0,
        "dynamic_sampling": "reward",
        "dynamic_sampling_attempts": 10,
        "overlong_share": 0.2,
    },
    # MiniMax-M1, arXiv 2506.13585.
    "cispo": {
        "method": "grpo",
        "objective": "cispo",
        "cispo_max_ratio": 5.0,
        "aggregation": "token",
        "kl_coefficient": 0.0,
        "entropy_coefficient": 0.0,
    },
    # arXiv 2601.05242.
    "gdpo": {
        "method": "gdpo",
        "objective": "grpo",
        "clip_low": 0.2,
        "clip_high": 0.2,
        "aggregation": "sequence",
        "kl_coefficient": 0.0,
        "entropy_coefficient": 0.0,
    },
    # arXiv 2503.20783.
    "dr_grpo": {
        "method": "dr_grpo",
        "objective": "grpo",
        "clip_low": 0.2,
        "clip_high": 0.2,
        "aggregation": "constant",
        "kl_coefficient": 0.0,
        "entropy_coefficient": 0.0,
    },
}
"""Mode to settings. The aggregation "constant" of a mode divides by `max_new_tokens`."""

IMPLIED: dict[str, dict[str, dict[str, Any]]] = {
    "objective": {"dapo": {"clip_high": 0.28}},
    # It computes in other kernels, on a GPU in another float type than the update: what it sampled from is not
    # exactly the policy.
    "engine": {"vllm": {"importance_correction": "truncate"}},
}
"""Setting to value to other settings whose defaults it changes."""

BELONGS: dict[str, tuple[str, ...]] = {
    "env": ("env_args", "reward_weights"),
    "method": ("method_args",),
    "weighting": ("weighting_args",),
    "track": ("track_args",),
    "objective": ("clip_low", "clip_high", "cispo_max_ratio"),
    "aggregation": ("aggregation_length",),
    "engine": ("importance_correction", "importance_cap"),
    "importance_correction": ("importance_cap",),
    "dynamic_sampling": ("dynamic_sampling_attempts",),
}
"""Settings that speak of another one: a layer that changes the key drops what lower layers said of these."""


def with_mode(layer: Mapping[str, Any]) -> dict[str, Any]:
    """A layer of settings with all that its mode sets; its own settings win. An unknown mode sets nothing."""
    mode = layer.get("mode")
    return _over(MODES.get(mode, {}) if isinstance(mode, str) else {}, layer)


def merge(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge layers of settings, later ones winning; mappings are merged by key."""
    merged: dict[str, Any] = {}
    for layer in map(with_mode, layers):
        if "mode" in layer and layer["mode"] != merged.get("mode"):
            for name in MODES.get(merged.get("mode") or "", {}):
                merged.pop(name, None)
        merged = _over(merged, layer)
    return merged


def _over(lower: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """One layer laid over what lies below it."""
    merged = dict(lower)
    for owner, owned in BELONGS.items():
        if owner in layer and owner in merged and _meant(owner, layer[owner]) != _meant(owner, merged[owner]):
            for name in owned:
                merged.pop(name, None)
    for name, value in layer.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
    return merged


def _meant(name: str, value: Any) -> Any:
    """The value of a setting, an environment's id written out: "RLLA" and "corrgrpo/RLLA-v0" are one."""
    return full_id(value) if name == "env" and isinstance(value, str) else value


def following(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the given ones decide without naming them."""
    chosen = with_mode(given)
    for name, values in IMPLIED.items():
        chosen = {**values.get(chosen.get(name, ""), {}), **chosen}
    return {name: value for name, value in chosen.items() if name not in given}

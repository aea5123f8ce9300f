"""Policies: the default model, the tiny one, and loading any other by name.

- `load_policy_model(name)` returns a `PolicyModel`: model, tokenizer, name, source.
- `fetch_default_model()` makes the default model's folder in the user's cache.
- `build_tiny(seed)` makes a byte-level model of a million parameters in memory.
"""

from typing import TYPE_CHECKING

from corrgrpo_train.lazy import exports

if TYPE_CHECKING:
    from corrgrpo_train.models.default import DEFAULT_MODEL, fetch_default_model
    from corrgrpo_train.models.load import PolicyModel, load_policy_model
    from corrgrpo_train.models.tiny import build_tiny

__all__ = ["DEFAULT_MODEL", "PolicyModel", "build_tiny", "fetch_default_model", "load_policy_model"]

__getattr__ = exports(
    __name__,
    default="DEFAULT_MODEL fetch_default_model",
    load="PolicyModel load_policy_model",
    tiny="build_tiny",
)

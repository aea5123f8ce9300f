"""The versions with which a run is made, for its run folder."""

import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

PACKAGES = (
    *("corrgrpo", "torch", "transformers", "tokenizers", "accelerate", "peft", "gymnasium", "numpy"),
    *("vllm", "agentdojo", "docker"),
)
"""Those whose versions can change what a run computes; listed where they are installed."""


def versions() -> dict[str, Any]:
    """`python`, `system` and `packages`, {name: version}."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: version for name in PACKAGES if (version := _installed(name)) is not None},
    }


def with_versions(path: Path, step: int) -> bytes:
    """What the file should hold when a run starts or goes on after this step: an entry wherever versions changed."""
    try:
        earlier = json.loads(path.read_bytes())
        entries = [entry for entry in earlier if isinstance(entry, dict) and entry.get("after_step", 0) < max(step, 1)]
    except (OSError, ValueError, TypeError, RecursionError):
        entries = []
    now = versions()
    if not entries or {**entries[-1], "after_step": None} != {**now, "after_step": None}:
        entries.append({"after_step": step, **now})
    return json.dumps(entries, indent=1).encode() + b"\n"


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None

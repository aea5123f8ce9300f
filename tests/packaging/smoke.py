"""Build wheel and sdist, install each into an empty environment, and try it outside the working tree.

    python tests/packaging/smoke.py [--torch REQUIREMENT]

The wheel is installed alone: it must bring no torch, and its environments must work. The sdist is installed with the
trainer, and trains a tiny model. Needs the package `build`, and a package index.
"""

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GIVEN = {"numpy", "gymnasium", "pip", "setuptools", "corrgrpo"}

ENVIRONMENTS = """
import importlib.util, sys
import gymnasium as gym, corrgrpo_envs
assert importlib.util.find_spec("torch") is None
for name in sorted(gym.registry):
    if name.startswith("corrgrpo/") and "AgentDojo" not in name:
        env = gym.make(name)
        observation, info = env.reset(seed=0)
        reference = env.unwrapped.reference() or ("",)
        for text in reference:
            observation, reward, terminated, truncated, info = env.step(text)
        assert terminated, (name, info)
        print(f"{name:34} {info['status']}")
        env.close()
assert "torch" not in sys.modules
"""

AGENTDOJO = """
import gymnasium as gym, corrgrpo_envs
try:
    gym.make("corrgrpo/AgentDojo-v0").reset(seed=0)
except Exception as error:
    assert "pip install" in str(error), error
else:
    raise AssertionError("AgentDojo without its package")
"""

SIZES = """
import importlib.metadata as metadata
for dist in metadata.distributions():
    size = sum(f.size or 0 for f in dist.files or ())
    print(dist.name.lower(), size)
"""


def run(*words: object, cwd: Path) -> str:
    """Standard output of a command; its failure ends everything, with all that it said."""
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(folder: Path) -> Path:
    """The Python of a new empty environment."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def wheel_alone(wheel: Path, work: Path) -> None:
    """The base package: no torch, environments at work, and its size."""
    python = environment(work / "base")
    run(python, "-m", "pip", "install", "-q", wheel, cwd=work)
    print(run(python, "-c", ENVIRONMENTS, cwd=work), end="")
    run(python, "-c", AGENTDOJO, cwd=work)
    told = subprocess.run(
        [python, "-m", "corrgrpo_train", "--help"], cwd=work, capture_output=True, text=True, check=False
    )
    assert told.returncode, "the trainer started without torch"
    assert "pip install 'corrgrpo[train]'" in told.stderr, told.stderr
    assert len(told.stderr.splitlines()) == 1, told.stderr
    sizes = dict(line.split() for line in run(python, "-c", SIZES, cwd=work).splitlines())
    assert not any(name.startswith(("torch", "nvidia")) for name in sizes), sorted(sizes)
    beyond = {name: int(size) / 1e6 for name, size in sizes.items() if name not in GIVEN}
    listed = ", ".join(f"{name} {size:.1f}" for name, size in sorted(beyond.items(), key=lambda item: -item[1]))
    print(f"wheel {wheel.stat().st_size / 1e6:.1f} MB, installed {int(sizes['corrgrpo']) / 1e6:.1f} MB")
    print(f"beyond numpy and gymnasium {sum(beyond.values()):.0f} MB: {listed}")


def sdist_with_trainer(sdist: Path, work: Path, torch: list[str]) -> None:
    """The whole from the sdist: a tiny run, and its report."""
    python = environment(work / "train")
    run(python, "-m", "pip", "install", "-q", *torch, cwd=work)
    run(python, "-m", "pip", "install", "-q", f"{sdist}[train]", cwd=work)
    small = (
        "--model tiny --threads 1 --steps 2 --groups-per-step 2 --group-size 4 --max-new-tokens 4 --validation-tasks 4"
    )
    run(python, "-m", "corrgrpo_train", "--env", "CorrelatedBandit-v0", *small.split(), "--output", "run", cwd=work)
    assert (work / "run" / "curves.png").is_file()
    assert list((work / "run" / "checkpoints").glob("*/COMPLETE"))
    run(python, "-m", "corrgrpo_train.report", "run", cwd=work)
    assert (work / "run" / "report.html").stat().st_size > 1_000_000
    print("sdist: trained a tiny model")


def main() -> None:
    """Build, and try both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", default="torch", help="requirement, and pip options, of torch")
    torch = parser.parse_args().torch.split()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        run(sys.executable, "-m", "build", "--outdir", work / "dist", ROOT, cwd=work)
        (wheel,) = (work / "dist").glob("*.whl")
        (sdist,) = (work / "dist").glob("*.tar.gz")
        wheel_alone(wheel, work)
        sdist_with_trainer(sdist, work, torch)


if __name__ == "__main__":
    main()

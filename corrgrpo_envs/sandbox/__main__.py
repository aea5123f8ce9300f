"""`python -m corrgrpo_envs.sandbox`: the isolation reached on this machine, and how to get more."""

import argparse
import sys

from corrgrpo_envs.sandbox.hosts.docker import IMAGE
from corrgrpo_envs.sandbox.isolation import LEVELS, SandboxError
from corrgrpo_envs.sandbox.pool import HOSTS, Sandbox
from corrgrpo_envs.sandbox.worker import WorkerLostError


def main(arguments: list[str] | None = None) -> int:
    """Print the report; 1 if the sandbox can't be started or is below the minimum."""
    parser = argparse.ArgumentParser(prog="python -m corrgrpo_envs.sandbox", description=__doc__)
    parser.add_argument("--host", choices=HOSTS, default="auto")
    parser.add_argument("--minimum", choices=LEVELS, default="reduced", help="exit with status 1 below this level")
    parser.add_argument("--image", default=IMAGE, help="image of the docker host")
    options = parser.parse_args(arguments)
    sandbox = Sandbox(options.host, minimum=options.minimum, workers=1, image=options.image)
    try:
        sys.stdout.write("\n".join(sandbox.isolation().lines()) + "\n")
    except (SandboxError, WorkerLostError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    finally:
        sandbox.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

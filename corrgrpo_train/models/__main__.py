"""`python -m corrgrpo_train.models`: fetch the default model, or check that another one can be used."""

import argparse
import sys

from corrgrpo_train.errors import UsageError, needs_extra

with needs_extra("train"):
    from rich.console import Console

    from corrgrpo_train.models.load import NAMES, load_policy_model


def main(arguments: list[str] | None = None) -> int:
    """Load a model once and say where it lies; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m corrgrpo_train.models", description=__doc__)
    parser.add_argument("--model", default="default", help=NAMES)
    chosen = parser.parse_args(arguments)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    try:
        policy = load_policy_model(chosen.model, progress=console.print)
    except UsageError as error:
        Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(f"error: {error}")
        return 2
    millions = policy.model.num_parameters() / 1e6
    kind = type(policy.model).__name__
    console.print(
        f"{policy.name}: {kind}, {millions:.1f} M parameters, {len(policy.tokenizer)} tokens, {policy.source}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

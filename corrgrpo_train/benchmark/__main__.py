"""`python -m corrgrpo_train.benchmark`: compare methods on an environment."""

import sys

from corrgrpo_train.errors import needs_extra

with needs_extra("train"):
    from corrgrpo_train.benchmark.cli import main

if __name__ == "__main__":
    sys.exit(main())

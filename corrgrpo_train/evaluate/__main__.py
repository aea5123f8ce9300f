"""`python -m corrgrpo_train.evaluate`: measure a model on environments; show, merge and compare results."""

import sys

from corrgrpo_train.errors import needs_extra

with needs_extra("train"):
    from corrgrpo_train.evaluate.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m corrgrpo_train.benchmark.study`: do the study, and renew the tables of its page."""

import sys

from corrgrpo_train.errors import needs_extra

with needs_extra("train"):
    from corrgrpo_train.benchmark.study.cli import main

if __name__ == "__main__":
    sys.exit(main())

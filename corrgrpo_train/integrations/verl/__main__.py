"""`python -m corrgrpo_train.integrations.verl`: train with verl."""

import sys

from corrgrpo_train.errors import needs_extra

with needs_extra("verl"):
    from corrgrpo_train.integrations.verl.launch import main

if __name__ == "__main__":
    sys.exit(main())

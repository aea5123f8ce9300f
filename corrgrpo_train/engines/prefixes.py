"""Which prompts of a batch begin alike, so that what they share is computed once.

The members of a group begin with the same prompt and differ by what they have said since; prompts of one environment
often share their system message.
"""

from collections.abc import Sequence
from itertools import pairwise

Prompt = tuple[int, ...]

_WORTH = 1 / 8  # of all tokens: saving less does not pay for a second pass through the model


def common_prefixes(prompts: Sequence[Prompt]) -> tuple[list[Prompt], list[int]]:
    """Divide different prompts into families that begin alike, so that the fewest tokens are computed.

    However long episodes grow, no more tokens are computed than if each group's first prompt were a family's prefix.

    Args:
        prompts: token ids, all different, none empty.

    Returns:
        the prefix of each family, at least one token shorter than its shortest prompt, and the family of each prompt.
        Where too little would be saved there is one family with an empty prefix.
    """
    # Prompts that begin alike stand together in this order: the families are pieces of it.
    order = sorted(range(len(prompts)), key=lambda index: prompts[index])
    ends, saved = _families([prompts[index] for index in order])
    if saved < _WORTH * sum(map(len, prompts)):
        return [()], [0] * len(prompts)
    prefixes: list[Prompt] = []
    family = [0] * len(prompts)
    for start, (end, length) in zip([0, *(end for end, _ in ends)], ends, strict=False):
        for index in order[start:end]:
            family[index] = len(prefixes)
        prefixes.append(prompts[order[start]][:length])
    return prefixes, family


def _families(prompts: Sequence[Prompt]) -> tuple[list[tuple[int, int]], int]:
    """Cut sorted prompts into the pieces that save most.

    Returns:
        the end of each piece and the length of its prefix; how many tokens need not be computed again.
    """
    alike = [_common(one, other) for one, other in pairwise(prompts)]
    best: list[tuple[int, int, int]] = [(0, 0, 0)]  # for the first so many prompts: saved, start and prefix of the last
    for end in range(1, len(prompts) + 1):
        length = len(prompts[end - 1]) - 1
        choices = [(best[end - 1][0], end - 1, length)]
        for start in range(end - 2, -1, -1):
            length = min(length, alike[start], len(prompts[start]) - 1)
            choices.append((best[start][0] + (end - start - 1) * length, start, length))
        best.append(max(choices, key=lambda choice: choice[0]))
    pieces: list[tuple[int, int]] = []
    end = len(prompts)
    while end:
        _, start, length = best[end]
        pieces.append((end, length))
        end = start
    return pieces[::-1], best[-1][0]


def _common(first: Prompt, second: Prompt) -> int:
    """Length of the longest common beginning."""
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return place
    return min(len(first), len(second))

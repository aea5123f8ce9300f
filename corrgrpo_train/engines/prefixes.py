"""Which prompts of a batch begin alike, so that what they share is computed once.

The members of a group begin with the same prompt and differ by what they have said since; prompts of one environment
often share their system message.
"""

from collections.abc import Sequence

Prompt = tuple[int, ...]

_SHARED = 0.5  # of the longer prompt: sharing less is not worth a batch of unequal rests


def common_prefixes(prompts: Sequence[Prompt]) -> tuple[list[Prompt], list[int]]:
    """Divide different prompts into families that begin alike.

    Args:
        prompts: token ids, all different, none empty.

    Returns:
        the prefix of each family, at least one token shorter than its shortest prompt, and the family of each prompt.
        Where no two prompts share enough there is one family with an empty prefix.
    """
    order = sorted(range(len(prompts)), key=lambda index: prompts[index])
    families: list[tuple[list[int], int]] = []  # members, length of the prefix
    for index in order:
        prompt = prompts[index]
        if families:
            members, length = families[-1]
            last = prompts[members[-1]]
            alike = _common(last, prompt)
            if alike >= _SHARED * max(len(last), len(prompt)):
                members.append(index)
                families[-1] = members, min(length, alike, len(prompt) - 1)
                continue
        families.append(([index], len(prompt) - 1))
    if len(families) == len(prompts):
        return [()], [0] * len(prompts)
    family = [0] * len(prompts)
    for number, (members, _) in enumerate(families):
        for index in members:
            family[index] = number
    return [prompts[members[0]][:length] for members, length in families], family


def _common(first: Prompt, second: Prompt) -> int:
    """Length of the longest common beginning."""
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return place
    return min(len(first), len(second))

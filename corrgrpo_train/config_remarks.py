"""What is said of settings that work, but hardly do what was meant."""

from corrgrpo_train.config import Config


def remarks(config: Config) -> list[str]:
    """What a user should know of valid settings; call after `validate`."""
    found = []
    if config.group_size == 1:
        found.append(
            "group_size 1: an answer is compared with the others of its group, of which there are none; with the "
            "methods of this package nothing will be learned"
        )
    if config.weighting_name == "hypervolume" and _ignores_scale(config):
        found.append(
            f"weighting 'hypervolume' scales all weights by one factor, which method {config.method_name!r} divides "
            "out again: it has no effect; use corrgrpo, dr_grpo or rloo"
        )
    return found


def _ignores_scale(config: Config) -> bool:
    """Whether the method's advantages stay as they are when all weights are doubled."""
    from corrgrpo_train.advantages import estimate

    batch = [[0.0, 1.0], [1.0, 3.0], [2.0, 0.0], [5.0, 1.0]]
    single, double = (
        estimate(config.method_name, batch, [0, 0, 1, 1], [w, w], lengths=[1, 1, 1, 1], **config.method_args).advantages
        for w in (1.0, 2.0)
    )
    return bool(single.allclose(double, rtol=1e-2))

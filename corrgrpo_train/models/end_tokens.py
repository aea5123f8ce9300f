"""`end_tokens`: the tokens at which generation stops, as a model's files name them."""

from transformers import GenerationConfig


def end_tokens(model: str) -> tuple[int, ...]:
    """End tokens in the generation settings of a model's folder or hub id; none where it has no such settings."""
    if not model:
        return ()
    try:
        listed = GenerationConfig.from_pretrained(model).eos_token_id
    except (OSError, ValueError):
        return ()
    return tuple(listed if isinstance(listed, list | tuple) else () if listed is None else (listed,))

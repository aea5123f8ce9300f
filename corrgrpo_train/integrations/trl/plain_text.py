"""`PlainText`: text from outside in a form in which a tokenizer finds no special token.

TRL tokenises rendered conversations in one piece, so a special token's text in a tool's output would become the token
and could forge the end of a turn. (`corrgrpo_train.rollout.chat` tokenises such texts apart and needs no other form.)
"""

from typing import Any


class PlainText:
    """Breaks the texts of a tokenizer's special tokens with a space after their first character."""

    def __init__(self, tokenizer: Any) -> None:
        """Read the special tokens; one of a single character can't be broken."""
        texts = (token.content for token in tokenizer.added_tokens_decoder.values() if token.special)
        self._special = [text for text in texts if len(text) > 1]

    def __call__(self, text: str) -> str:
        """The text, in which lone surrogates, which no tokenizer takes, are question marks."""
        text = text.encode("utf-8", "replace").decode("utf-8")
        for special in self._special:
            text = text.replace(special, f"{special[0]} {special[1:]}")
        return text

    def value(self, value: Any) -> Any:
        """A JSON value with all its texts plain, keys among them."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self(key): self.value(item) for key, item in value.items()}
        return value

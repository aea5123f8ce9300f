"""Text from outside, made fit for a page: what cannot be seen is spelled out."""

import codecs
import unicodedata
from collections.abc import Callable

_JOINERS = "\u200c\u200d"
"""Invisible, but words of some scripts and composed pictographs need them."""


def visible(text: str) -> str:
    """The text with control characters, direction marks, other invisible characters and lone surrogates as ⟨U+202E⟩.

    A page can then hide nothing and turn nothing around; new lines and tabs stay.
    """
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character in "\n\t" or character in _JOINERS:
        return character
    hidden = unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return f"⟨U+{ord(character):04X}⟩" if hidden else character


def plot_text(text: str) -> str:
    """The text as Plotly has to get it, which reads a little markup (links among it) in names and titles."""
    return visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def pieces(tokens: list[str]) -> list[str]:
    """What each token of a sequence adds to the text, from the tokenizer's own spelling.

    Byte-level tokenizers write a space as Ġ and every other byte as a letter of its own; a character of several tokens
    appears with its last. SentencePiece writes a space as ▁ and single bytes as <0x0A>. Other spellings stay.
    """
    if any("Ġ" in token or "Ċ" in token for token in tokens):
        return _decoded(tokens, _byte_level)
    if any(token.startswith("▁") for token in tokens):
        return _decoded(tokens, _sentence_piece)
    return tokens


def _decoded(tokens: list[str], spelled: Callable[[str], bytes]) -> list[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    texts = [decoder.decode(spelled(token)) for token in tokens]
    if texts:
        texts[-1] += decoder.decode(b"", final=True)
    return texts


def _alphabet() -> dict[str, int]:
    """The byte of each letter of the byte-level alphabet: printable Latin-1 for itself, others from U+0100 on."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTES = _alphabet()


def _byte_level(token: str) -> bytes:
    if all(character in _BYTES for character in token):
        return bytes(_BYTES[character] for character in token)
    return token.encode("utf-8", errors="surrogatepass")  # an added token, spelled as it is


def _sentence_piece(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return bytes([int(token[3:5], 16)])
        except ValueError:
            pass
    return token.replace("▁", " ").encode("utf-8", errors="surrogatepass")

"""Text of tokens and of strangers: pieces add up to the text, and nothing invisible stays so."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from corrgrpo_train.report.text import pieces, plot_text, visible


@given(st.text())
def test_nothing_invisible_is_left(text: str) -> None:
    shown = visible(text)
    hidden = {c for c in shown if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert hidden <= set("\n\t\u200c\u200d")
    shown.encode()  # no lone surrogate


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\tc", "a\nb\tc"),
        ("naïve 日本語 👩\u200d🚀", "naïve 日本語 👩\u200d🚀"),
        ("\u202eabc\x00", "⟨U+202E⟩abc⟨U+0000⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("a\rb\x1b[31m", "a⟨U+000D⟩b⟨U+001B⟩[31m"),
        ("\U000e0041", "⟨U+E0041⟩"),
    ],
)
def test_what_cannot_be_seen_is_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_plotly_gets_no_markup() -> None:
    assert plot_text('<a href="x">&amp;') == '&lt;a href="x"&gt;&amp;amp;'


@given(st.text(st.characters(codec="utf-8")))
def test_byte_level_tokens_add_up_to_the_text(text: str) -> None:
    # The library's own spelling, a token per byte, is what is undone.
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: place for place, token in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokens = tokenizer.encode(f" {text}").tokens
    assert "".join(pieces(tokens)) == f" {text}"
    assert len(pieces(tokens)) == len(tokens)


def test_a_character_of_several_tokens_comes_with_its_last() -> None:
    assert pieces(["Ġ", "Ã", "©", "<|im_end|>"]) == [" ", "", "é", "<|im_end|>"]
    assert pieces(["Ġ", "Ã"]) == [" ", "�"]


def test_other_spellings() -> None:
    assert pieces(["▁Hello", "▁you", "<0x0A>", "<0xC3>", "<0xA9>", "<0xZZ>"]) == [
        *(" Hello", " you", "\n", "", "é", "<0xZZ>")
    ]
    assert pieces(["plain", " text"]) == ["plain", " text"]
    assert pieces([]) == []

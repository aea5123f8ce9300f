"""The model `tiny`: a byte-level Llama of about one million random parameters, made in memory in an instant.

It knows nothing. It is for tests, for first steps without a download, and for tasks small enough to be
learnt from nothing. Its tokenizer has one token per byte and three special tokens; there are no merges, so
the tokens of a text are those of its parts. As with SmolLM2, the padding token is the end token and the chat
format is ChatML.
"""

from typing import cast

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

UNKNOWN, START, END = SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CONTEXT = 8192

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant', 'tool'] %}"
    "{{ raise_exception('unknown role: ' + message['role']) }}"
    "{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def build_tiny(
    seed: int = 0, *, hidden_size: int = 128, layers: int = 4
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Make the tiny model and its tokenizer.

    Args:
        seed: equal seeds give equal weights; torch's global generator is left as it was.
        hidden_size: a multiple of 64, so that heads of 32 come in pairs that share a key.
        layers: number of decoder layers; the defaults make 1.0 M parameters, `hidden_size=192` makes 2.3 M.

    Returns:
        The model (fp32, CPU, evaluation mode) and the tokenizer.
    """
    if hidden_size % 64 or hidden_size < 64 or layers < 1:
        raise ValueError(f"hidden_size must be a multiple of 64 and layers at least 1, not {hidden_size} and {layers}")
    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=4 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // 32,
        num_key_value_heads=hidden_size // 64,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    return cast(LlamaForCausalLM, model.eval()), tokenizer  # type: ignore[no-untyped-call]


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer: 3 special tokens (ids 0, 1, 2) and 256 bytes. Any text survives a round trip."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((*SPECIAL_TOKENS, *alphabet))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        unk_token=UNKNOWN,
        bos_token=START,
        eos_token=END,
        pad_token=END,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )

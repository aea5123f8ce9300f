"""Conversations as tokens.

The tokens that a policy sampled are never decoded and tokenised again: an episode's sequence is the tokenised
opening, the sampled tokens, the tokenised text between two assistant turns, the next sampled tokens, and so on.
"""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from corrgrpo_train.errors import UsageError

Message = dict[str, str]

_TOOLS_TEXT = (
    "You can call these functions (JSON schemas, one a line):\n{schemas}\n"
    "To call one, answer with a block of this form:\n"
    '<tool_call>\n{{"name": "function name", "arguments": {{"argument": "value"}}}}\n</tool_call>'
)


def with_schemas(messages: Sequence[Message], schemas: Sequence[Any]) -> list[Message]:
    """The messages with tool schemas, and how a tool is called, in the system message; one is made if there is none."""
    text = _TOOLS_TEXT.format(schemas="\n".join(json.dumps(schema, ensure_ascii=False) for schema in schemas))
    if messages and messages[0]["role"] == "system":
        return [{**messages[0], "content": messages[0]["content"] + "\n\n" + text}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


class Chat:
    """A tokenizer's chat template, as functions from messages to token ids and from token ids to text.

    Templates without a system role, a tool role or tools are worked around: the system text goes in front of the
    first user message, a tool's output into a user message, the schemas into the system message.
    """

    def __init__(self, tokenizer: Any, eos_ids: Sequence[int] = ()) -> None:
        """Probe the tokenizer's template.

        Args:
            tokenizer: a transformers tokenizer with a chat template.
            eos_ids: further tokens that end a turn, beside the tokenizer's own.

        Raises:
            UsageError: if the tokenizer has no chat template, no end token, or a template that fails on an
                ordinary conversation.
        """
        if not tokenizer.chat_template:
            raise UsageError("the model's tokenizer has no chat template; use an instruction-tuned model")
        if tokenizer.eos_token_id is None and not eos_ids:
            raise UsageError("the model's tokenizer has no end-of-sequence token")
        self.tokenizer = tokenizer
        own = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
        self.eos_ids = frozenset([*own, *map(int, eos_ids)])
        self._special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
        user: list[Message] = [{"role": "user", "content": "probe-user"}]
        if not self._shows("probe-user", user):
            raise UsageError("the tokenizer's chat template fails on a plain user message")
        self.has_system = self._shows("probe-system", [{"role": "system", "content": "probe-system"}, *user])
        turn = [*user, {"role": "assistant", "content": "probe-answer"}]
        self.has_tool = self._shows("probe-tool", [*turn, {"role": "tool", "content": "probe-tool"}])
        schema = {
            "name": "probe_function",
            "description": "probe",
            "parameters": {"type": "object", "properties": {}},
        }
        self.has_tools = self._shows("probe_function", user, [{"type": "function", "function": schema}])
        tail = self._tail(user, [], user)
        self.turn_end = tail[0] if tail and tail[0] in self.eos_ids else min(own or self.eos_ids)

    # ---- messages to tokens ------------------------------------------------------------------------------

    def opening(self, messages: Sequence[Message], tools: str = "[]") -> list[int]:
        """Token ids of an episode's first messages, up to where the assistant begins to write."""
        hidden: dict[str, str] = {}
        plain, schemas = self._fitted(messages, tools)
        return self._tokens(self._render(self._guarded(plain, hidden), self._safe(schemas, hidden)), hidden)

    def continuation(
        self, opening: Sequence[Message], tools: str, added: Sequence[Message], *, after_eos: bool
    ) -> list[int]:
        """Token ids of what stands between an assistant's turn and its next one.

        Args:
            opening: the episode's first messages.
            tools: the episode's tools, JSON text.
            added: the messages that followed the assistant's.
            after_eos: the sampled turn ended with its end token, which is then not repeated.
        """
        plain, schemas = self._fitted(opening, tools)
        tail = self._tail(plain, schemas, self._roles(added))
        return tail[1:] if after_eos and tail and tail[0] in self.eos_ids else tail

    def reference(self, text: str) -> list[int]:
        """Token ids of a given assistant text with its end token; for supervised steps only."""
        ids: list[int] = self.tokenizer(self._clean(text), add_special_tokens=False).input_ids
        return [*ids, self.turn_end]

    def text(self, token_ids: Sequence[int]) -> str:
        """The assistant's text: sampled tokens with special ones kept, less the end token."""
        ids = list(token_ids)
        if ids and ids[-1] in self.eos_ids:
            ids.pop()
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    # ---- inside ------------------------------------------------------------------------------------------

    def _tail(self, opening: Sequence[Message], schemas: list[Any], added: Sequence[Message]) -> list[int]:
        mark, hidden = self._mark(), dict[str, str]()
        turn: Message = {"role": "assistant", "content": mark}
        messages = [*self._guarded(opening, hidden), turn, *self._guarded(added, hidden)]
        _, found, after = self._render(messages, self._safe(schemas, hidden)).rpartition(mark)
        if not found:
            raise UsageError("the chat template does not show the assistant's text; it can't be used for rollouts")
        return self._tokens(after, hidden)

    def _fitted(self, messages: Sequence[Message], tools: str) -> tuple[list[Message], list[Any]]:
        """Messages and schemas in the form that this template takes."""
        plain, schemas = [dict(message) for message in messages], json.loads(tools)
        if schemas and not self.has_tools:
            plain, schemas = with_schemas(plain, schemas), []
        if plain and plain[0]["role"] == "system" and not self.has_system:
            system = plain.pop(0)["content"]
            if plain and plain[0]["role"] == "user":
                plain[0]["content"] = system + "\n\n" + plain[0]["content"]
            else:
                plain.insert(0, {"role": "user", "content": system})
        return self._roles(plain), schemas

    def _roles(self, messages: Sequence[Message]) -> list[Message]:
        """Clean texts; tool outputs as user messages where the template has no tool role."""
        out: list[Message] = []
        for message in messages:
            role, content = message["role"], self._clean(message["content"])
            if role == "tool" and not self.has_tool:
                role, content = "user", f"<tool_response>\n{content}\n</tool_response>"
                if out and out[-1]["role"] == "user":
                    out[-1]["content"] += "\n" + content
                    continue
            out.append({"role": role, "content": content})
        return out

    def _guarded(self, messages: Sequence[Message], hidden: dict[str, str]) -> list[Message]:
        """Put a mark in place of each content that holds the text of a special token; keep it in `hidden`.

        Such text comes from outside (a tool's output, say) and could forge the end of a turn; it must be
        tokenised as plain characters. All other messages are rendered and tokenised in one piece.
        """
        guarded = []
        for message in messages:
            content = message["content"]
            if any(text in content for text in self._special):
                content = self._hide(content, hidden)
            guarded.append({"role": message["role"], "content": content})
        return guarded

    def _safe(self, value: Any, hidden: dict[str, str]) -> Any:
        """Tool schemas with a mark in place of each text of a special token in any of their strings.

        Only that text and not the whole string is hidden: a template may write strings as JSON, escapes and all.
        """
        if isinstance(value, str):
            value = self._clean(value)
            for text in self._special:
                if text in value:
                    value = value.replace(text, self._hide(text, hidden))
            return value
        if isinstance(value, list):
            return [self._safe(item, hidden) for item in value]
        if isinstance(value, dict):
            return {self._safe(key, hidden): self._safe(item, hidden) for key, item in value.items()}
        return value

    def _hide(self, text: str, hidden: dict[str, str]) -> str:
        mark = self._mark()
        hidden[mark] = text
        return mark

    def _tokens(self, text: str, hidden: Mapping[str, str]) -> list[int]:
        """Tokenise rendered text, replacing each mark by the tokens of the plain characters that it hides."""
        ids: list[int] = []
        for piece in re.split("(" + "|".join(hidden) + ")", text) if hidden else [text]:
            if piece in hidden:
                ids += self.tokenizer(hidden[piece], add_special_tokens=False, split_special_tokens=True).input_ids
            elif piece:
                ids += self.tokenizer(piece, add_special_tokens=False).input_ids
        return ids

    def _render(self, messages: Sequence[Message], schemas: list[Any]) -> str:
        try:
            text: str = self.tokenizer.apply_chat_template(
                list(messages), tools=schemas or None, add_generation_prompt=True, tokenize=False
            )
        except Exception as error:  # a template may refuse a conversation in any way that Jinja allows
            roles = ", ".join(message["role"] for message in messages)
            raise UsageError(
                f"the model's chat template refuses a conversation of the roles {roles}: {error}; use another model "
                "or change its chat_template"
            ) from error
        return text

    def _shows(self, text: str, messages: Sequence[Message], schemas: list[Any] | None = None) -> bool:
        try:
            return text in self._render(messages, schemas or [])
        except UsageError:
            return False

    @staticmethod
    def _mark() -> str:
        # Unguessable, so that no message can contain it. It never reaches the tokens.
        return f"mark{secrets.token_hex(16)}"

    @staticmethod
    def _clean(text: str) -> str:
        # Lone surrogates can't be encoded.
        return text.encode("utf-8", "replace").decode("utf-8")

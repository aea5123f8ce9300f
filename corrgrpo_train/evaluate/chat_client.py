"""`ChatClient`: chat completions of an OpenAI-compatible server, asked for patiently and read with suspicion."""

import asyncio
import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NoReturn, Self
from urllib.parse import urlsplit

from corrgrpo_envs.errors import shown, suggestion
from corrgrpo_train.errors import UsageError, first_line

MISSING = "--server needs httpx, which is not installed here: pip install 'corrgrpo[server]'"
MOST_BYTES = 16 * 2**20
"""A longer reply is not read to its end."""

_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_LONGEST_WAIT = 60.0
_CONNECT_SECONDS = 10.0
# As vLLM, OpenAI, SGLang, llama.cpp and TGI put it.
_TOO_LONG = re.compile(
    r"context[ _](length|size|window)|longer than the (model|maximum)|prompt is too long|`?inputs`? (tokens|must)|"
    r"max_model_len",
    re.IGNORECASE,
)


class RequestFailedError(Exception):
    """A request that the server refused, or did not answer in a readable way within all tries."""


class TooLongError(Exception):
    """The conversation leaves no room for an answer in the model's context."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An assistant's message.

    Attributes:
        content: its text.
        tool_calls: its calls as the server sent them, each with a `function` that has a `name`.
        reasoning: thoughts that the server took out of the text.
        finish: why it ended: `"stop"`, `"length"`, `"tool_calls"`, …
        tokens: number of tokens sampled; None if the server does not say.
    """

    content: str
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    reasoning: str = ""
    finish: str = ""
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came back: the status, the body, and the seconds to wait before the next try."""

    status: int
    body: bytes
    wait: float


@dataclass(slots=True)
class ChatClient:
    """Asks one server; an asynchronous context manager.

    Attributes:
        url: what comes before `/chat/completions`, for example `http://localhost:8000/v1`.
        key: sent as bearer token; empty for none.
        timeout: seconds for a whole answer.
        retries: further tries after a failure that may pass.
        pause: seconds before the second try; each further pause is twice as long.
        connections: requests at the same time.
    """

    url: str
    key: str = ""
    timeout: float = 600.0
    retries: int = 4
    pause: float = 1.0
    connections: int = 16
    _client: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check what can be checked without the server.

        Raises:
            UsageError: if httpx is missing, or the URL or the key can't be one.
        """
        if importlib.util.find_spec("httpx") is None:
            raise UsageError(MISSING)
        import httpx

        try:
            parsed = urlsplit(self.url)
            known = parsed.scheme in ("http", "https") and bool(parsed.hostname) and bool(httpx.URL(self.url).host)
        except (httpx.InvalidURL, ValueError):
            known = False
        if not known:
            raise UsageError(f"server must be a URL like http://localhost:8000/v1, not {shown(self.url)}")
        if not all(33 <= ord(char) < 127 for char in self.key):
            raise UsageError("the server's key must be one word of ASCII characters: look for spaces or line breaks")
        self.url = self.url.rstrip("/")

    async def __aenter__(self) -> Self:
        import httpx

        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(self.timeout, connect=min(_CONNECT_SECONDS, self.timeout)),
            limits=httpx.Limits(max_connections=self.connections),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def models(self) -> list[str]:
        """Names of the models that the server lists; none where it has no such list.

        Raises:
            UsageError: if it can't be reached, or refuses the key.
        """
        try:
            async with asyncio.timeout(min(30.0, self.timeout)):
                answer = await self._send("GET", "/models", None)
        except Exception as error:  # whatever keeps it from answering; what httpx raises is not all of one kind
            raise UsageError(
                f"the server {self.url} does not answer: {_told(error)}; is it running, and is this its URL?"
            ) from error
        if answer.status in (401, 403):
            raise UsageError(self._refused(answer.status))
        listed = _parsed(answer.body)
        rows = listed.get("data") if isinstance(listed, dict) else None
        if answer.status != 200 or not isinstance(rows, list):
            return []
        return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]

    async def complete(self, body: Mapping[str, Any], known: tuple[str, ...] = ()) -> Reply:
        """Ask for one completion.

        Args:
            body: the request.
            known: models that the server lists, for the message about a wrong one.

        Raises:
            TooLongError: if the conversation fills the context.
            RequestFailedError: if there is no readable answer to this request.
            UsageError: if no request will have one: wrong key, model or address, tools not supported.
        """
        problem, wait = "", self.pause
        for attempt in range(self.retries + 1):
            if attempt:
                await asyncio.sleep(min(wait, _LONGEST_WAIT))
                wait *= 2
            try:
                async with asyncio.timeout(self.timeout):
                    answer = await self._send("POST", "/chat/completions", body)
                if answer.status == 200:
                    return reply_of(answer.body)
            except (ValueError, TimeoutError, OSError) as error:
                problem = f"no answer within {self.timeout:g} s" if isinstance(error, TimeoutError) else _told(error)
                continue
            except Exception as error:
                if not _of_transport(error):
                    raise
                problem = _told(error)
                continue
            said = self._without_key(_message(answer.body))
            problem = f"status {answer.status}: {said}"
            if answer.status not in _AGAIN:
                self._give_up(answer.status, said, body, known)
            wait = max(wait, answer.wait)
        raise RequestFailedError(self._without_key(f"no answer in {self.retries + 1} tries: {problem}"))

    def _without_key(self, text: str) -> str:
        """A server may say what it was sent; messages go to files."""
        return text.replace(self.key, "[key]") if self.key else text

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> _Answer:
        # Lone surrogates, which a model's text may hold, stay escaped: the bytes are ASCII.
        content = None if body is None else json.dumps(body).encode()
        async with self._client.stream(method, self.url + path, content=content) as response:
            read = bytearray()
            async for piece in response.aiter_bytes():
                read += piece
                if len(read) > MOST_BYTES:
                    raise ValueError(f"a reply of more than {MOST_BYTES >> 20} MiB")
            wait = _seconds(response.headers.get("retry-after", ""))
            return _Answer(int(response.status_code), bytes(read), wait)

    def _give_up(self, status: int, said: str, body: Mapping[str, Any], known: tuple[str, ...]) -> NoReturn:
        if status in (401, 403):
            raise UsageError(self._refused(status))
        if status == 404:
            model = str(body.get("model"))
            if "model" in said.lower():
                listed = f"; it lists {', '.join(map(shown, known[:8]))}" if known else ""
                raise UsageError(f"the server has no model {model!r}{listed}.{suggestion(model, known)} ({said})")
            raise UsageError(
                f"{self.url}/chat/completions is not there (404): the URL of an OpenAI-compatible server usually ends "
                f"with /v1 ({said})"
            )
        if status == 405 or 300 <= status < 400:
            raise UsageError(f"{self.url}/chat/completions takes no chat request (status {status}): check the URL")
        if "context_length_exceeded" in said or _TOO_LONG.search(said):
            raise TooLongError(said)
        # Later in a conversation it may be this model's calls that it refuses, and not tools.
        opening = all(message["role"] != "assistant" for message in body["messages"])
        if "tools" in body and "tool" in said.lower() and opening:
            raise UsageError(
                f"the server refuses tools: {said}; start it with tool calling, or take --tool-mode template or text"
            )
        raise RequestFailedError(f"status {status}: {said}")

    def _refused(self, status: int) -> str:
        what = "the key that was given" if self.key else "requests without a key"
        return f"the server {self.url} refuses {what} (status {status}): see --server-key-env"


def reply_of(answer: bytes) -> Reply:
    """Read the body of a successful answer.

    Raises:
        ValueError: if it is not that of a chat completion.
    """
    found = _parsed(answer)
    try:
        choice = found["choices"][0]
        message = choice["message"]
        content, calls = message.get("content"), message.get("tool_calls") or ()
    except (KeyError, IndexError, TypeError, AttributeError):
        raise ValueError(f"a reply that is no chat completion: {shown(answer[:100])}") from None
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(text for text in texts if isinstance(text, str))
    if not isinstance(content, str | None) or not isinstance(calls, list | tuple):
        raise ValueError("a message whose content is no text, or whose tool_calls are no list")
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ValueError("a tool call without the name of a function")
    thoughts = [message.get(name) for name in ("reasoning", "reasoning_content")]
    usage = found.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    known = isinstance(tokens, int) and not isinstance(tokens, bool) and 0 <= tokens < 2**31
    return Reply(
        content or "",
        tuple(calls),
        next((text for text in thoughts if isinstance(text, str) and text), ""),
        str(choice.get("finish_reason") or ""),
        tokens if known else None,
    )


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _message(answer: bytes) -> str:
    """What a server says of an error, on one line."""
    found = _parsed(answer)
    error = found.get("error", found) if isinstance(found, dict) else None
    if isinstance(error, dict):
        code, text = error.get("code"), error.get("message") or error.get("detail") or error
        error = f"{code}: {text}" if isinstance(code, str) else text
    text = str(error) if error is not None else answer[:400].decode("utf-8", "replace")
    return " ".join(text.split())[:400] or "no reason given"


def _seconds(text: str) -> float:
    return float(text) if re.fullmatch(r"\d{1,4}(\.\d+)?", text) else 0.0


def _of_transport(error: Exception) -> bool:
    import httpx

    return isinstance(error, httpx.TransportError | httpx.DecodingError)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}" if str(error) else type(error).__name__

"""Length-prefixed messages over file descriptors."""

import os
import struct

_HEADER = struct.Struct(">I")
_CHUNK = 1 << 18


class ClosedError(Exception):
    """The other end is gone."""


class TooLongError(Exception):
    """The other end announces more bytes than allowed."""


def framed(payload: bytes) -> bytes:
    """Return the payload with its length before it."""
    return _HEADER.pack(len(payload)) + payload


class FrameBuffer:
    """Collects bytes and gives complete frames."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._data += data

    def pop(self) -> bytes | None:
        """Take the next complete frame, or None while there is none.

        Raises:
            TooLongError: if the frame that begins is longer than the limit.
        """
        if len(self._data) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack_from(self._data)
        if length > self.limit:
            raise TooLongError(f"{length} bytes announced, {self.limit} allowed")
        end = _HEADER.size + length
        if len(self._data) < end:
            return None
        frame = bytes(memoryview(self._data)[_HEADER.size : end])
        del self._data[:end]
        return frame


class Channel:
    """Frames in both directions over one or two blocking descriptors."""

    def __init__(self, reader: int, writer: int | None = None, limit: int = 1 << 30) -> None:
        self.reader = reader
        self.writer = reader if writer is None else writer
        self.buffer = FrameBuffer(limit)

    def send(self, payload: bytes) -> None:
        """Send one frame.

        Raises:
            ClosedError: if nobody reads any more.
        """
        view = memoryview(framed(payload))
        try:
            while view:
                view = view[os.write(self.writer, view) :]
        except OSError as error:
            raise ClosedError(str(error)) from None

    def read(self) -> None:
        """Read once what is there into the buffer; blocks while nothing is.

        Raises:
            ClosedError: at the end of the stream.
        """
        try:
            data = os.read(self.reader, _CHUNK)
        except OSError as error:
            raise ClosedError(str(error)) from None
        if not data:
            raise ClosedError("end of stream")
        self.buffer.feed(data)

    def receive(self) -> bytes:
        """Wait for the next frame.

        Raises:
            ClosedError: if the stream ends before it is complete.
            TooLongError: if it is longer than the limit.
        """
        while (frame := self.buffer.pop()) is None:
            self.read()
        return frame

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in {self.reader, self.writer}:
            os.close(descriptor)

"""Bounds, and the queue before the loop."""

import asyncio
import contextlib

from .errors import Failure, TooLarge, Unreadable

MAX_BODY_BYTES = 1 << 20
# Values, and names of values.
MAX_BODY_VALUES = 20_000
# Lists and objects in each other in a body of A2A: each takes three levels in protobuf, which reads a hundred.
MAX_BODY_LEVELS = 32
# Bodies that are being read, together; and how long one may take to come.
MAX_READING_BYTES = 32 << 20
READ_SECONDS = 30
# Bodies that are answered, and questions that run or wait, together, as they are when parsed. A question takes several
# times as much in the end.
MAX_REQUESTS_BYTES = 32 << 20
MAX_MODEL_ANSWER_BYTES = 4 << 20
MAX_TOOL_ANSWER_BYTES = 4 << 20
MAX_PEER_ANSWER_BYTES = 4 << 20
MAX_CARD_BYTES = 1 << 20
MAX_TOOL_RESULT_CHARACTERS = 64 << 10
MAX_TOOLS_OF_A_SERVER = 500
MAX_PATH = 8
MAX_TASKS = 1000
MAX_PENDING = 100
# What a process keeps of conversations, tasks and calls that wait, all together.
MAX_MEMORY_BYTES = 64 << 20
MAX_SESSION_BYTES = 8 << 20
MAX_PENDING_BYTES = 16 << 20
# A message that is larger is kept in a task's history as its text alone, cut to as many characters.
MAX_KEPT_MESSAGE_BYTES = 64 << 10
MAX_ID_CHARACTERS = 200


def shortened(text, most=MAX_TOOL_RESULT_CHARACTERS):
    """The text, cut with a note where it is longer."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[cut: {len(text) - most} of {len(text)} characters are left out]"


def too_much_waits():
    """The Failure of a question that holds too much to wait for an answer."""
    return Failure("too_much_to_keep", f"what waits for an answer is larger than {MAX_PENDING_BYTES >> 20} MiB")


class Room:
    """At most so many bytes of requests at a time."""

    def __init__(self, most):
        self._most = most
        self.taken = 0

    def take(self, size):
        """Takes some, or raises Failure. It must be given back."""
        if self.taken + size > self._most:
            raise Failure("overloaded", "the agent has too many large requests; try again later")
        self.taken += size

    def give(self, size):
        self.taken -= size


class Gate:
    """At most `running` at a time; at most `waiting` wait for a place, in order. All of them need room."""

    def __init__(self, running, waiting, room):
        self._places = asyncio.Semaphore(running)
        self._most = running + waiting
        self._room = room
        self.inside = 0

    def enter(self, size):
        """Reserves a place in the queue, or raises Failure. Each entry needs a `leave` with the same size."""
        if self.inside >= self._most:
            raise Failure("overloaded", "the agent has too many requests; try again later")
        self._room.take(size)
        self.inside += 1

    def leave(self, size):
        self._room.give(size)
        self.inside -= 1

    @contextlib.asynccontextmanager
    async def place(self):
        """Waits for a place to run."""
        async with self._places:
            yield


def bounded_transport(http, what, most, **options):
    """A transport of `http` (httpx or its successor) that gives up on an answer of more than `most` bytes."""

    class Stream(http.AsyncByteStream):
        def __init__(self, inner):
            self._inner = inner

        async def __aiter__(self):
            seen = 0
            async for chunk in self._inner:
                seen += len(chunk)
                if seen > most:
                    raise TooLarge(f"the answer of {what} is larger than {most >> 20} MiB")
                yield chunk

        async def aclose(self):
            await self._inner.aclose()

    class Transport(http.AsyncHTTPTransport):
        async def handle_async_request(self, request):
            # What is unpacked later could be a thousand times as large.
            request.headers["accept-encoding"] = "identity"
            response = await super().handle_async_request(request)
            encoding = response.headers.get("content-encoding", "identity").strip().lower()
            if encoding not in ("", "identity"):
                await response.aclose()
                raise Unreadable(f"the answer of {what} is encoded, though that was not asked for")
            response.stream = Stream(response.stream)
            return response

    return Transport(**options)

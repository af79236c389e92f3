"""Bodies of requests: how they are read, and what room they take."""

import asyncio
import contextlib
import json
import math
import re
import sys

from starlette.requests import ClientDisconnect

from . import limits
from .errors import Failure

# A key of a request's scope: its connection ends with the answer.
LAST = "convoke.last"
# What a parsed value takes besides its text, about: a list or an object with one item in it.
BYTES_A_VALUE = 128
# Halves of a character stand in JSON as these only.
HALVES = re.compile(rb"\\u[dD][89a-fA-F]")


class Body:
    """The value of a body. It takes room until its question is admitted, or until it is answered."""

    def __init__(self, room, size):
        room.take(size)
        self.size = size
        self.value = None
        self._room = room

    def let_go(self):
        """Gives the room back, and forgets the value, also for who still holds it."""
        if self._room is not None:
            self._room.give(self.size)
            self._room = None
        value, self.value = self.value, None
        if isinstance(value, dict):
            params = value.get("params")
            value.clear()
            if isinstance(params, dict):
                params.clear()


@contextlib.asynccontextmanager
async def read(request, service):
    """The Body of a request. Raises Failure."""
    content = await body_of(request, service.reading)
    body = Body(service.room, weigh(content))
    try:
        body.value = json_of(content)
        del content
        yield body
    finally:
        body.let_go()


async def body_of(request, room):
    """The body, if it is said to be JSON, small enough and in time. It takes room meanwhile. Raises Failure."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", "application/a2a+json"):
        raise Failure("unsupported_media_type", "the content type must be application/json")
    too_large = Failure("request_too_large", f"the body is larger than {limits.MAX_BODY_BYTES >> 20} MiB")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > limits.MAX_BODY_BYTES:
        raise too_large
    content, taken = bytearray(), 0
    try:
        async with asyncio.timeout(limits.READ_SECONDS):
            async for chunk in request.stream():
                room.take(len(chunk))
                taken += len(chunk)
                content += chunk
                if len(content) > limits.MAX_BODY_BYTES:
                    raise too_large
    except ClientDisconnect:
        raise Failure("bad_request", "the body is not whole") from None
    except TimeoutError:
        # Starlette's requests share the scope of the server's.
        request.scope[LAST] = True
        raise Failure("bad_request", f"the body did not come within {limits.READ_SECONDS} seconds") from None
    finally:
        room.give(taken)
    return bytes(content)


def weigh(content):
    """How many bytes a body takes when it is parsed, about. Raises Failure where it has too many values.

    Nothing is parsed for it: a few bytes of a body can become a hundred times as many.
    """
    bare = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Texts and names of values. Outside of them, each value but the first stands behind one of the marks.
    values = (bare.count(b'"') + 1) // 2
    if values <= limits.MAX_BODY_VALUES:
        outside = b"".join(bare.split(b'"')[::2])
        values += sum(outside.count(mark) for mark in (b"[", b"{", b","))
    if values > limits.MAX_BODY_VALUES:
        raise Failure("request_too_large", f"the body has more than {limits.MAX_BODY_VALUES} values")
    return sys.getsizeof(text_of(content)) + values * BYTES_A_VALUE


def text_of(content):
    """The text of a body. It is UTF-8: in other encodings, bytes that look like quotes are none. Raises Failure."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Failure("bad_request", "the body is not UTF-8") from None


def json_of(content):
    """The value in a body. Raises Failure, also for numbers and texts that could not be passed on."""
    try:
        value = json.loads(text_of(content), parse_float=_finite, parse_constant=_finite)
        if HALVES.search(content):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError:
        raise Failure("bad_request", "a text of the body has half a character") from None
    except (ValueError, RecursionError):
        raise Failure("bad_request", "the body is not JSON") from None


def check_levels(value):
    """Raises Failure where lists and objects stand in each other deeper than a message of A2A can hold."""
    layer = [value]
    for _ in range(limits.MAX_BODY_LEVELS + 1):
        inside = [one.values() if isinstance(one, dict) else one for one in layer if isinstance(one, (dict, list))]
        if not inside:
            return
        layer = [one for several in inside for one in several]
    raise Failure("request_too_large", f"the body has more than {limits.MAX_BODY_LEVELS} levels")


def _finite(number):
    """The number. Raises ValueError if it is none."""
    if not math.isfinite(value := float(number)):
        raise ValueError
    return value

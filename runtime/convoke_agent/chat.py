"""OpenAI-style chat completions."""

import asyncio
import json
import time
import uuid

from starlette.responses import JSONResponse, StreamingResponse

from . import history, limits, logs, loop
from .errors import Failure, openai_body, stopping

SESSION_HEADER = "x-session-id"
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def _text_of(content):
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Failure("bad_request", "messages: content must be a text or a list of text parts")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise Failure("bad_request", "messages: only text parts are understood")
        texts.append(part["text"])
    return "\n".join(texts)


def _messages_of(body):
    """The messages as (role, text). The last is the question."""
    if not isinstance(body, dict):
        raise Failure("bad_request", "the body must be a JSON object")
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise Failure("empty_prompt", "messages: it must be a list with at least one message")
    found = []
    for one in given:
        role = one.get("role") if isinstance(one, dict) else None
        if not isinstance(role, str) or role not in ROLES:
            raise Failure("bad_request", "messages: role must be system, developer, user or assistant")
        found.append((ROLES[role], _text_of(one.get("content") or "")))
    if found[-1][0] != "user":
        raise Failure("bad_request", "messages: the last one must be the user's")
    if not found[-1][1].strip():
        raise Failure("empty_prompt", "messages: the last one has no text")
    return found


class Question:
    """One request."""

    def __init__(self, service, given, session, line):
        body = given.value
        self._service = service
        self._messages = _messages_of(body)
        self._line = line
        self.model = body.get("model") if isinstance(body.get("model"), str) else None
        self.stream = body.get("stream") is True
        if session is not None and not 0 < len(session) <= limits.MAX_ID_CHARACTERS:
            raise Failure("bad_request", f"X-Session-Id must have 1 to {limits.MAX_ID_CHARACTERS} characters")
        self.run = loop.Run(service.admit(given), given.size, session=session)
        self.model = self.model or self.run.snapshot.settings.name
        self.id = f"chatcmpl-{uuid.uuid4().hex}"

    async def answer(self):
        """The answer. Raises Failure. Writes the request's line and leaves the gate, however it ends."""
        status = "canceled"
        try:
            async with self._service.holding(self.run) as known:
                before = known if self.run.session else history.of_chat(self._messages[:-1])
                outcome = await loop.think(self.run, self._messages[-1][1], before)
                await self._service.remember(self.run, outcome.turn)
                status = "completed"
                return outcome
        except Failure as failure:
            status = failure.reason
            raise
        except asyncio.CancelledError:
            # It was not the client who ended it.
            if not self._service.stopping:
                raise
            status = "stopping"
            raise stopping() from None
        finally:
            self._service.gate.leave(self.run.size)
            self._line.end(status, self.run)

    def usage(self):
        usage = self.run.usage
        total = usage.input_tokens + usage.output_tokens
        return {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens, "total_tokens": total}

    def whole(self, answer):
        message = {"role": "assistant", "content": answer.text}
        choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
        return self._body("chat.completion") | {"choices": [choice], "usage": self.usage()}

    def chunk(self, delta, reason=None):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return self._body("chat.completion.chunk") | {"choices": [choice]}

    def last_chunk(self):
        return self._body("chat.completion.chunk") | {"choices": [], "usage": self.usage()}

    def _body(self, kind):
        return {"id": self.id, "object": kind, "created": int(time.time()), "model": self.model}


async def _gone(request):
    """Returns once the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _unless_gone(request, job):
    """What the job gives; it is cancelled if the client goes first."""
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({job, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not job.done():
            job.cancel()
    return await job


def _event(value):
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


async def _events(question, job, queue):
    """The stream: a chunk for each piece, then the usage."""
    try:
        yield _event(question.chunk({"role": "assistant", "content": ""}))
        while (text := await queue.get()) is not None:
            yield _event(question.chunk({"content": text}))
        yield _event(question.chunk({}, (await job).finish_reason))
        yield _event(question.last_chunk())
        yield "data: [DONE]\n\n"
    except Failure as failure:
        yield _event(openai_body(failure))
    finally:
        job.cancel()


async def completions(service, request, given):
    """Answers POST /v1/chat/completions."""
    line = logs.RequestLine("chat.completions", "openai")
    question = Question(service, given, request.headers.get(SESSION_HEADER), line)
    if not question.stream:
        job = asyncio.create_task(question.answer())
        service.began(job)
        return JSONResponse(question.whole(await _unless_gone(request, job)))
    queue = asyncio.Queue()

    async def on_text(text, first):
        await queue.put(text)

    question.run.on_text = on_text
    job = asyncio.create_task(question.answer())
    service.began(job)
    job.add_done_callback(lambda _: queue.put_nowait(None))
    # Until the first piece is there, an error still has a status of its own.
    first = asyncio.create_task(queue.get())
    try:
        await _unless_gone(request, first)
    except asyncio.CancelledError:
        job.cancel()
        raise
    if first.result() is None:
        await job
    return StreamingResponse(_events(question, job, _Chained(first.result(), queue)), media_type="text/event-stream")


class _Chained:
    """A queue with one value before the others."""

    def __init__(self, first, queue):
        self._first, self._queue = [first], queue

    async def get(self):
        return self._first.pop() if self._first else await self._queue.get()

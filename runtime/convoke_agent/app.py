"""The HTTP interface: which path leads where, and what is refused before anybody looks at it."""

import asyncio
import contextlib
import json

from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from . import card, chat, history, limits, logs, traces
from .a2a_handler import Handler
from .errors import Failure, openai_body
from .service import Service

__all__ = ("App", "Service")

# Streams end with their tasks; then what is written last needs a moment.
STREAM_GRACE_SECONDS = 1
# A2A errors of JSON-RPC for what is refused here.
RPC_CODES = {"bad_request": -32700, "request_too_large": -32600, "unsupported_media_type": -32005}
# Names of methods are A2A 1.0's; those of 0.3 have a slash.
VERSION_HEADER = b"a2a-version"
# A key of a request's scope: its connection ends with the answer.
LAST = "convoke.last"


class App:
    """The interface of one agent."""

    def __init__(self, service, environment):
        self._service = service
        self._port = environment.get("PORT") or "8000"
        # Both versions of the protocol.
        self._dispatcher = JsonRpcDispatcher(
            Handler(service), enable_v0_3_compat=True, shutdown_grace_period=STREAM_GRACE_SECONDS
        )

    def routes(self):
        get = ["GET"]
        return [
            Route("/health", self.health, methods=get),
            Route("/ready", self.ready, methods=get),
            Route("/.well-known/agent-card.json", self.card, methods=get),
            Route("/.well-known/agent.json", self.old_card, methods=get),
            Route("/", self.rpc, methods=["POST"]),
            Route("/v1/chat/completions", self.completions, methods=["POST"]),
            Route("/v1/models", self.models, methods=get),
            Route("/memory/sessions", self.sessions, methods=get),
            Route("/memory/sessions/{session:path}", self.session, methods=["GET", "DELETE"]),
        ]

    def asgi(self):
        handlers = {HTTPException: self.http_error, Failure: self.failure, Exception: self.unexpected}
        inner = Starlette(routes=self.routes(), exception_handlers=handlers)
        inner.router.redirect_slashes = False

        async def app(scope, receive, send):
            async def answer(event):
                if event["type"] == "http.response.start" and LAST in scope:
                    event = event | {"headers": [*event["headers"], (b"connection", b"close")]}
                await send(event)

            # The trace of the asker goes on, here and with those who are asked in turn.
            with traces.of_request(scope):
                await inner(scope, receive, answer)

        return app

    def _snapshot(self):
        """What the agent is now. Raises Failure where its settings are bad."""
        if self._service.snapshot is None:
            raise Failure("not_ready", self._service.problem)
        return self._service.snapshot

    # ---- what it answers

    async def health(self, request):
        return JSONResponse({"status": "ok"})

    async def ready(self, request):
        body = self._service.ready_body()
        return JSONResponse(body, 200 if body["reason"] is None else 503)

    def _card_of(self, request):
        snapshot = self._snapshot()
        host = request.headers.get("host", "")
        if not card.HOST.fullmatch(host):
            host = f"localhost:{self._port}"
        return card.card_of(snapshot.settings, snapshot.servers, f"http://{host}/")

    async def card(self, request):
        return JSONResponse(card.both_shapes(self._card_of(request)))

    async def old_card(self, request):
        return JSONResponse(card.old_shape(self._card_of(request)))

    async def models(self, request):
        one = {"id": self._snapshot().settings.name, "object": "model", "created": 0, "owned_by": "convoke"}
        return JSONResponse({"object": "list", "data": [one]})

    async def completions(self, request):
        self._snapshot()
        async with self._body(request) as content:
            return await chat.completions(self._service, request, json_of(content))

    async def rpc(self, request):
        try:
            async with self._body(request) as content:
                body = json_of(content)
                self._snapshot()
                return await self._dispatcher.handle_requests(replayed(request, content, body))
        except Failure as failure:
            error = {"code": RPC_CODES.get(failure.reason, -32603), "message": failure.message}
            error["data"] = {"reason": failure.reason}
            return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, failure.status)

    @contextlib.asynccontextmanager
    async def _body(self, request):
        """The body, which has room as long as it is answered. Raises Failure."""
        content = await body_of(request, self._service.reading)
        self._service.room.take(len(content))
        try:
            yield content
        finally:
            self._service.room.give(len(content))

    def _memory(self):
        if not self._snapshot().settings.debug_memory_endpoints:
            raise HTTPException(404)
        return self._service.memory

    async def sessions(self, request):
        return JSONResponse({"sessions": await self._memory().sessions()})

    async def session(self, request):
        name, memory = request.path_params["session"], self._memory()
        if not await memory.has(name):
            raise Failure("session_not_found", "there is no such session")
        if request.method == "DELETE":
            await memory.forget(name)
            return JSONResponse({"id": name, "deleted": True})
        return JSONResponse({"id": name, "messages": history.plain(await memory.messages(name))})

    async def failure(self, request, failure):
        answer = openai_error if request.url.path.startswith("/v1/") else plain_error
        return answer(failure)

    async def http_error(self, request, error):
        reasons = {
            404: ("not_found", "there is nothing at this path"),
            405: ("method_not_allowed", "the method is another"),
        }
        reason, message = reasons.get(error.status_code, ("bad_request", "the request cannot be read"))
        answer = openai_error if request.url.path.startswith("/v1/") else plain_error
        return answer(Failure(reason, message), error.headers)

    async def unexpected(self, request, error):
        logs.bug(error)
        answer = openai_error if request.url.path.startswith("/v1/") else plain_error
        return answer(Failure("internal", "the agent failed"))


def plain_error(failure, headers=None):
    return JSONResponse({"error": {"reason": failure.reason, "message": failure.message}}, failure.status, headers)


def openai_error(failure, headers=None):
    if failure.status in (429, 503):
        headers = {"Retry-After": "1"} | dict(headers or {})
    return JSONResponse(openai_body(failure), failure.status, headers)


async def body_of(request, room):
    """The body, if it is said to be JSON, is not too large, and comes in time. It needs room meanwhile. Raises Failure."""
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


def json_of(content):
    """The value in a body. Raises Failure."""
    try:
        return json.loads(content.decode())
    except UnicodeDecodeError:
        raise Failure("bad_request", "the body is not UTF-8") from None
    except (ValueError, RecursionError):
        raise Failure("bad_request", "the body is not JSON") from None


def replayed(request, content, body):
    """The request once more, for who reads its body. One of A2A 1.0 that leaves its version out gets it."""
    scope = dict(request.scope)
    method = body.get("method") if isinstance(body, dict) else None
    named = any(name == VERSION_HEADER for name, _ in scope["headers"])
    if not named and isinstance(method, str) and "/" not in method:
        scope["headers"] = [*scope["headers"], (VERSION_HEADER, b"1.0")]
    sent = False

    async def receive():
        nonlocal sent
        if sent:
            return await request.receive()
        sent = True
        return {"type": "http.request", "body": content, "more_body": False}

    return Request(scope, receive)

"""The HTTP interface: which path leads where, and what is refused before anybody looks at it."""

from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from . import bodies, card, chat, history, logs, traces
from .a2a_handler import Handler, Older
from .errors import Failure, openai_body
from .service import Service

__all__ = ("App", "Service")

# Streams end with their tasks; then what is written last needs a moment.
STREAM_GRACE_SECONDS = 1
# A2A errors of JSON-RPC for what is refused here.
RPC_CODES = {"bad_request": -32700, "request_too_large": -32600, "unsupported_media_type": -32005}
# Names of methods are A2A 1.0's; those of 0.3 have a slash.
VERSION_HEADER = b"a2a-version"


class App:
    """The interface of one agent."""

    def __init__(self, service, environment):
        self._service = service
        self._port = environment.get("PORT") or "8000"
        # Both versions of the protocol.
        handler = Handler(service)
        self._dispatcher = JsonRpcDispatcher(
            handler, Contexts(), enable_v0_3_compat=True, shutdown_grace_period=STREAM_GRACE_SECONDS
        )
        # It takes no other handler for the older one.
        self._dispatcher._v03_adapter.handler = Older(handler)

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
                # While it stops, other pods are asked by whoever connects anew.
                last = self._service.stopping or bodies.LAST in scope
                if event["type"] == "http.response.start" and last:
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
        async with bodies.read(request, self._service) as given:
            return await chat.completions(self._service, request, given)

    async def rpc(self, request):
        try:
            async with bodies.read(request, self._service) as given:
                self._snapshot()
                bodies.check_levels(given.value)
                return await self._dispatcher.handle_requests(passed_on(request, given))
        except Failure as failure:
            error = {"code": RPC_CODES.get(failure.reason, -32603), "message": failure.message}
            error["data"] = {"reason": failure.reason}
            return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, failure.status)

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


def passed_on(request, given):
    """The request for A2A's dispatcher, with its body and the version that its query or else its method names."""
    scope = dict(request.scope)
    method = given.value.get("method") if isinstance(given.value, dict) else None
    version = request.query_params.get("A2A-Version")
    if version is None and isinstance(method, str) and "/" not in method:
        version = "1.0"
    named = any(name == VERSION_HEADER for name, _ in scope["headers"])
    if not named and version is not None:
        scope["headers"] = [*scope["headers"], (VERSION_HEADER, version.encode())]
    return Passed(scope, request.receive, given)


class Passed(Request):
    """A request whose body was read."""

    def __init__(self, scope, receive, given):
        super().__init__(scope, receive)
        self.given = given

    async def json(self):
        return self.given.value


class Contexts(DefaultServerCallContextBuilder):
    """Gives the body to who handles the method."""

    def build(self, request):
        context = super().build(request)
        context.state["body"] = request.given
        return context

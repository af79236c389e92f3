"""The ASGI application in front of LiteLLM's: nothing reaches LiteLLM that did not pass here.

A request passes with a good key, to one of six routes, with a body of allowed fields and a model of the list. LiteLLM
then gets a request that was made anew: a fixed path, no query, three headers, none of them the caller's. So the key of
an agent never reaches LiteLLM, and no header can tell LiteLLM anything.
"""

import asyncio
import dataclasses
import json
import re
import time
from collections.abc import Callable

from . import keys, request

OPEN = frozenset(("/health/liveliness", "/health/readiness"))
CHAT = "/v1/chat/completions"
EMBEDDINGS = "/v1/embeddings"
MODELS = "/v1/models"
# What a key is good for: (method, path): what LiteLLM is asked.
ROUTES = {
    ("POST", CHAT): CHAT,
    ("POST", "/chat/completions"): CHAT,
    ("POST", EMBEDDINGS): EMBEDDINGS,
    ("POST", "/embeddings"): EMBEDDINGS,
    ("GET", MODELS): MODELS,
    ("GET", "/models"): MODELS,
}
# Where LiteLLM's authentication finds whom the gate let through.
CALLER = "convoke.caller"
LABEL = "convoke.model"
# Of all requests that are being read or answered, and of those of one caller.
MOST_BYTES_AT_ONCE = 64 << 20
MOST_BYTES_OF_ONE = 32 << 20
MOST_REQUESTS_AT_ONCE = 1024
MOST_REQUESTS_OF_ONE = 512
BODY_SECONDS = 60
BEARER = re.compile(rb"[Bb]earer ([\x21-\x7e]{1,512})")
RESPONSE_HEADERS = frozenset((b"content-type", b"content-length", b"cache-control", b"retry-after"))
JSON = (b"content-type", b"application/json")
ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 500: "server_error", 503: "server_error"}
# Stands for: the caller closed the connection before an answer.
CLOSED = 499


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a body of a route may be."""

    check: Callable
    most_bytes: int
    # Parsing is done in the event loop, as no thread would let others run meanwhile: this bounds how long it takes.
    most_values: int


KINDS = {
    CHAT: Kind(request.chat, 16 << 20, 200_000),
    # Most of them are tokens.
    EMBEDDINGS: Kind(request.embeddings, 4 << 20, 400_000),
}


class Gone(Exception):
    """The caller closed the connection."""


def overloaded():
    return request.Refused("too much at once, try again", code="overloaded", status=503)


class Held:
    """What callers hold: requests and bytes."""

    def __init__(self):
        self.requests = 0
        self.bytes = 0


class Taken:
    """What one request holds of what all may hold, and of its caller's share. A key that is not checked yet has none."""

    def __init__(self, gate):
        self.gate = gate
        self.agent = None
        self.size = 0
        if gate.all.requests >= MOST_REQUESTS_AT_ONCE:
            raise overloaded()
        gate.all.requests += 1

    def belongs_to(self, agent):
        """Takes one of the requests of a caller; raises Refused."""
        share = self.gate.shares.setdefault(agent, Held())
        if share.requests >= MOST_REQUESTS_OF_ONE:
            raise overloaded()
        share.requests += 1
        self.agent = agent

    def take(self, size):
        """Takes more bytes; raises Refused."""
        if self.size + size > MOST_BYTES_OF_ONE:
            raise request.Refused(f"the request takes more than {MOST_BYTES_OF_ONE} bytes of memory", status=413)
        share = self.gate.shares[self.agent]
        if share.bytes + size > MOST_BYTES_OF_ONE or self.gate.all.bytes + size > MOST_BYTES_AT_ONCE:
            raise overloaded()
        self.size += size
        share.bytes += size
        self.gate.all.bytes += size

    def give_back(self):
        self.gate.all.requests -= 1
        self.gate.all.bytes -= self.size
        share = self.gate.shares.get(self.agent)
        if share is not None:
            share.requests -= 1
            share.bytes -= self.size
            if share.requests == 0:
                del self.gate.shares[self.agent]


@dataclasses.dataclass(frozen=True)
class Passed:
    """A request that LiteLLM gets."""

    path: str
    body: bytes
    caller: keys.Caller
    # The model's name in the list; None when no model is asked.
    label: str | None

    def scope(self, scope):
        """What LiteLLM sees of it."""
        headers = [(b"host", b"localhost"), (b"content-length", str(len(self.body)).encode()), JSON]
        return {
            "type": "http",
            "asgi": scope["asgi"],
            "http_version": scope["http_version"],
            "method": scope["method"],
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": headers,
            "client": scope.get("client"),
            "server": scope.get("server"),
            "state": dict(scope.get("state") or {}),
            CALLER: self.caller,
            LABEL: self.label,
        }


class Gate:
    """The application."""

    def __init__(self, application, keyring, models, counters, outcomes, said, owner_fields=frozenset()):
        self.application = application
        self.keyring = keyring
        self.models = models
        self.counters = counters
        self.outcomes = outcomes
        self.said = said
        self.owner_fields = owner_fields
        self.all = Held()
        # By the name of the agent.
        self.shares = {}

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await self.application(scope, receive, send)
        elif scope["type"] == "http":
            await self.http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def http(self, scope, receive, send):
        if scope["method"] in ("GET", "HEAD") and scope["path"] in OPEN:
            await self.health(scope["path"], send)
            return
        try:
            taken = Taken(self)
        except request.Refused as refused:
            await answer(send, refused)
            return
        try:
            passed = await self.passed(scope, receive, taken)
            await self.forward(passed, scope, receive, send)
        except request.Refused as refused:
            await answer(send, refused)
        except Gone:
            pass
        finally:
            taken.give_back()

    async def health(self, path, send):
        """Liveliness: the process answers. Readiness: it can check keys, too."""
        problem = self.keyring.problem() if path == "/health/readiness" else None
        body = {"status": "ok"} if problem is None else {"status": "not ready", "reason": problem}
        await answer_json(send, 200 if problem is None else 503, body)

    def refuse(self, reason, text, **more):
        """Counts a refusal and raises it."""
        self.counters.refusal(reason)
        raise request.Refused(text, **more)

    def caller(self, scope):
        """Who sends a request; raises Refused."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        found = BEARER.fullmatch(given[0].strip()) if len(given) == 1 else None
        if found is None:
            self.refuse("no_key", "a key is needed: Authorization: Bearer <key>", code="invalid_api_key", status=401)
        caller = self.keyring.caller(found[1].decode("ascii"))
        if caller is None:
            self.refuse("bad_key", "the key is not good", code="invalid_api_key", status=401)
        return caller

    async def passed(self, scope, receive, taken):
        """What LiteLLM is asked; raises Refused or Gone."""
        caller = self.caller(scope)
        path = ROUTES.get((scope["method"], scope["path"]))
        if path is None:
            text = "this key is good for chat completions, embeddings and the list of models"
            self.refuse("route", text, code="route_not_allowed", status=403)
        taken.belongs_to(caller.agent)
        if path == MODELS:
            return Passed(path, b"", caller, None)
        kind = KINDS[path]
        try:
            data = await read(scope, receive, taken, kind.most_bytes)
            taken.take(max(0, request.weigh(data, kind.most_values) - len(data)))
            body = kind.check(data, self.owner_fields)
            data = request.encoded(body)
        except request.Refused:
            self.counters.refusal("body")
            raise
        label = self.models.label(body.get("model"))
        if label is None:
            self.refuse(
                "model", "the model is not one of this proxy", parameter="model", code="model_not_found", status=404
            )
        return Passed(path, data, caller, label)

    async def forward(self, passed, scope, receive, send):
        """Lets LiteLLM answer."""
        began = time.monotonic()
        status = None

        async def take():
            nonlocal body
            if body is None:
                return await receive()
            given, body = body, None
            return {"type": "http.request", "body": given, "more_body": False}

        async def give(event):
            nonlocal status
            if event["type"] == "http.response.start":
                status = event["status"]
                headers = [(name.lower(), value) for name, value in event.get("headers", ())]
                event = event | {"headers": [header for header in headers if header[0] in RESPONSE_HEADERS]}
            await send(event)

        body = passed.body
        failed = None
        try:
            await self.application(passed.scope(scope), take, give)
        except Exception as error:
            failed = type(error).__name__
            if status is None:
                raise request.Refused("the proxy failed", code="internal_error", status=500) from None
        finally:
            # Nothing was answered: the caller is gone, or LiteLLM failed.
            status = status or (500 if failed else CLOSED)
            if passed.label is not None:
                self.counters.request(passed.caller.agent, passed.label, status)
                self.outcomes.note(passed.caller.agent, passed.label, status)
            if status >= 400 or failed:
                seconds = time.monotonic() - began
                said = f"{passed.path} agent={passed.caller.agent} status={status} seconds={seconds:.1f}"
                self.said(f"{said} failed={failed}" if failed else said)


async def read(scope, receive, taken, most_bytes):
    """The bytes of a request's body; raises Refused or Gone."""
    for name, value in scope["headers"]:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise request.Refused("the body must not be encoded", status=415)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            parts = []
            while True:
                event = await receive()
                if event["type"] != "http.request":
                    raise Gone
                parts.append(event.get("body", b""))
                if taken.size + len(parts[-1]) > most_bytes:
                    raise request.Refused(f"the body has more than {most_bytes} bytes", status=413)
                taken.take(len(parts[-1]))
                if not event.get("more_body"):
                    return b"".join(parts)
    except TimeoutError:
        raise request.Refused(f"the body did not come within {BODY_SECONDS} s", status=408) from None


async def answer(send, refused):
    """Answers with a refusal, in OpenAI's form."""
    kind = ERROR_TYPES.get(refused.status, "invalid_request_error")
    error = {"message": str(refused), "type": kind, "param": refused.parameter, "code": refused.code}
    await answer_json(send, refused.status, {"error": error})


async def answer_json(send, status, body):
    data = json.dumps(body).encode()
    headers = [JSON, (b"content-length", str(len(data)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})

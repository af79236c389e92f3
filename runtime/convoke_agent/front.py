"""The interface while the rest is loaded, which takes seconds on a slow CPU. Then it only passes on.

Nothing is imported here while another thread imports: two that import at once can lock each other up.
"""

import asyncio
import contextlib
import importlib
import json

from . import logs
from .errors import Failure, openai_body

STARTS = Failure("not_ready", "the agent starts")


def _answer(path):
    """Status and body of what can be said by now."""
    if path == "/health":
        return 200, {"status": "ok"}
    if path == "/ready":
        return 503, {"status": "not ready", "reason": STARTS.message}
    if path == "/":
        error = {"code": -32603, "message": STARTS.message, "data": {"reason": STARTS.reason}}
        return 503, {"jsonrpc": "2.0", "id": None, "error": error}
    if path.startswith("/v1/"):
        return 503, openai_body(STARTS)
    return 503, {"error": {"reason": STARTS.reason, "message": STARTS.message}}


class Front:
    """An ASGI application."""

    def __init__(self, environment):
        self._environment = environment
        self._service = None
        self._app = None
        self._loading = None

    async def __call__(self, scope, receive, send):
        if self._app is not None:
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        status, body = _answer(scope["path"])
        content = json.dumps(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"retry-after", b"1")]})
        await send({"type": "http.response.body", "body": content})

    def load(self):
        """Begins to load the rest, beside the requests. Gives the task."""
        self._loading = asyncio.create_task(self._load())
        return self._loading

    async def _load(self):
        app = await asyncio.to_thread(importlib.import_module, "convoke_agent.app")
        self._service = app.Service(self._environment)
        await self._service.start()
        self._app = app.App(self._service, self._environment).asgi()
        logs.say("the agent serves", ready=self._service.state() is None)

    async def drain(self, seconds):
        """Takes no more questions, and ends what runs within these seconds. What is there can still be asked for."""
        self._loading.cancel()
        await asyncio.gather(self._loading, return_exceptions=True)
        if self._service is not None:
            await self._service.drain(seconds)

    async def close(self, seconds):
        """Closes everything; what does not close within these seconds is left."""
        if self._service is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._service.close()

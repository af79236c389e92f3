"""Connections to tool servers (Model Context Protocol)."""

import asyncio
import contextlib
import contextvars
import dataclasses
import hashlib
import json

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED

from . import limits, logs, schemas
from .errors import TooLarge

CONNECT_SECONDS = 10
# How long a server is left alone after it could not be reached.
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 10
# A listing is read again after this long: tools come and go without a sign.
LISTING_SECONDS = 60
# How long a call waits for a connection that is made anew.
AGAIN_SECONDS = 3
POLL_SECONDS = 0.05
CLOSE_AGAIN_SECONDS = 0.5
SESSION_HEADER = "mcp-session-id"
ARGUMENTS_BYTES = 256 << 10


class ToolError(Exception):
    """A call that gave no result. The message is for the model."""


@dataclasses.dataclass
class Sent:
    """What is seen of one call's HTTP request."""

    unknown_session: bool = False


# The call that a request is sent for: the client library sends it in the context of who calls.
SENT = contextvars.ContextVar("sent", default=None)


async def _see(response):
    """Notes a session that the server does not know any more. It says so with 404, before anything runs."""
    sent, request = SENT.get(), response.request
    if sent is not None and request.method == "POST" and SESSION_HEADER in request.headers:
        sent.unknown_session = response.status_code == 404


def check_arguments(arguments):
    """Raises ToolError where they are too large."""
    if len(json.dumps(arguments)) > ARGUMENTS_BYTES:
        raise ToolError(f"the arguments are larger than {ARGUMENTS_BYTES >> 10} KiB")


def _text_of(result):
    """What a tool answered, as text for the model."""
    texts = []
    for part in result.content:
        if part.type == "text":
            texts.append(part.text)
        elif part.type == "resource" and getattr(part.resource, "text", None) is not None:
            texts.append(part.resource.text)
        else:
            texts.append(f"[{part.type} is left out: only text can be passed on]")
    if not texts and result.structured_content is not None:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return limits.shortened("\n".join(texts))


def _leaf(error):
    """The first error within groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _did_not_run(error):
    """Whether a call that failed so was not answered because it never arrived, or was refused."""
    if isinstance(error, MCPError):
        return error.error.code != CONNECTION_CLOSED
    return isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout))


class ToolServer:
    """A server as one configuration has it: which of its tools may be called, and which need approval."""

    def __init__(self, settings, connection):
        self.name = settings.name
        self.connection = connection
        self._settings = settings
        self._listing = None
        self._tools = None

    @property
    def problem(self):
        return self.connection.problem

    @property
    def tools(self):
        """The tools that may be called, by their names; None if the server never listed them."""
        if self._listing is not self.connection.listing:
            allowed, found = self._settings.tools, self.connection.listing
            missing = [name for name in allowed if name not in found]
            if missing and self._listing is None:
                logs.warn("tool server lacks allowed tools", server=self.name, tools=missing)
            self._tools = {name: tool for name, tool in found.items() if not allowed or name in allowed}
            self._listing = found
        return self._tools

    def needs_approval(self, tool):
        return tool in self._settings.require_approval

    def fingerprint(self, tool):
        """Tells whether a tool is the one that it was: where it is, and what it says of itself."""
        said = tool.model_dump(mode="json", include={"name", "description", "input_schema", "annotations"})
        content = json.dumps([self._settings.url, said], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    async def call(self, tool, arguments, seconds, once=False):
        """What the tool answers. Raises ToolError; never waits longer than `seconds`. With `once` it is sent once."""
        check_arguments(arguments)
        return await self.connection.call(tool, arguments, seconds, once)


class Connection:
    """One server. A task of its own connects, lists its tools and connects again; calls come from other tasks."""

    def __init__(self, settings, headers):
        self.name = settings.name
        self.problem = "it was not asked yet"
        # All tools that the server listed last, by their names.
        self.listing = None
        self.listed = asyncio.Event()
        # The same with the tools that are left out.
        self._found = None
        # Calls that wait for an answer.
        self._calls = 0
        self._url = settings.url
        self._headers = headers
        self._client = None
        self._look = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"tools of {self.name}")

    async def close(self):
        # A connection that fails at this moment may swallow it.
        while not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_AGAIN_SECONDS)
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self):
        wait = FIRST_WAIT_SECONDS
        while True:
            listed = False
            try:
                async with self._connection() as client:
                    try:
                        while True:
                            self._look.clear()
                            await self._list_unless_busy(client)
                            listed, self._client, self.problem, wait = True, client, None, FIRST_WAIT_SECONDS
                            with contextlib.suppress(TimeoutError):
                                await asyncio.wait_for(self._look.wait(), LISTING_SECONDS)
                    finally:
                        self._client = None
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                if not isinstance(_leaf(error), Exception):
                    raise
                self._lost(_leaf(error), listed)
            self._client = None
            # One that was there a moment ago may be there again.
            await asyncio.sleep(POLL_SECONDS if listed else wait)
            wait = min(wait * 2, LONGEST_WAIT_SECONDS)

    def _lost(self, error, listed):
        problem = type(error).__name__
        if listed or self.problem != problem:
            logs.warn("tool server is not there", server=self.name, error=problem)
        self.problem = problem

    @contextlib.asynccontextmanager
    async def _connection(self):
        # A call may take longer than the wait for its first byte; its own deadline ends it.
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
        transport = limits.bounded_transport(httpx2, "the tool server", limits.MAX_TOOL_ANSWER_BYTES)
        options = {"headers": self._headers, "timeout": timeout, "event_hooks": {"response": [_see]}}
        async with httpx2.AsyncClient(transport=transport, **options) as http:
            # A server that is not there any more would not answer that the session ends either.
            streams = streamable_http_client(self._url, http_client=http, terminate_on_close=False)
            client = Client(streams, cache=None)
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await stack.enter_async_context(client)
                yield client

    async def _list_unless_busy(self, client):
        """Lists the tools. One that is slow while it works keeps its connection: its calls would be lost, and run again."""
        try:
            await self._list(client)
        except TimeoutError:
            if self._client is not client or not self._calls:
                raise
            logs.warn("tool server does not list its tools while it works", server=self.name)

    async def _list(self, client):
        found, cursor = {}, None
        async with asyncio.timeout(CONNECT_SECONDS):
            while len(found) < limits.MAX_TOOLS_OF_A_SERVER:
                page = await client.list_tools(cursor=cursor)
                found |= {tool.name: tool for tool in page.tools}
                cursor = page.next_cursor
                if not cursor:
                    break
        # One that lists the same keeps its listing: then nothing is named anew.
        if found != self._found:
            self._found = found
            bad = [name for name, tool in found.items() if not schemas.is_sound(tool.input_schema)]
            if bad:
                logs.warn("tools are left out: the schemas of their arguments are none", server=self.name, tools=bad)
            self.listing = {name: tool for name, tool in found.items() if name not in bad}
        self.listed.set()

    async def call(self, tool, arguments, seconds, once):
        try:
            async with asyncio.timeout(seconds):
                result = await self._call(tool, arguments, once)
        except TimeoutError:
            self._look.set()
            raise ToolError(f"the tool did not answer within {seconds:.0f} s; it may have run") from None
        if result.is_error:
            raise ToolError(_text_of(result) or "the tool failed without a reason")
        return _text_of(result)

    async def _connected(self, but=None):
        """The connection, where it is another than this one. Raises ToolError."""
        for _ in range(int(AGAIN_SECONDS / POLL_SECONDS)):
            if self._client not in (None, but):
                return self._client
            await asyncio.sleep(POLL_SECONDS)
        raise ToolError(f"the tool server {self.name} cannot be reached")

    async def _call(self, tool, arguments, once):
        client = await self._connected()
        sent = Sent()
        within = SENT.set(sent)
        self._calls += 1
        try:
            try:
                return await client.call_tool(tool, arguments)
            except MCPError:
                if not sent.unknown_session:
                    raise
                self._look.set()
                if once:
                    raise ToolError("the tool server lost its session, so the call did not run; ask again") from None
            return await (await self._connected(but=client)).call_tool(tool, arguments)
        except BaseException as error:
            leaf = _leaf(error)
            if not isinstance(leaf, Exception) or isinstance(leaf, (TimeoutError, ToolError)):
                raise
            self._look.set()
            if isinstance(leaf, TooLarge):
                raise ToolError(str(leaf)) from None
            ran = "" if _did_not_run(leaf) else "; the tool may have run"
            raise ToolError(limits.shortened(f"the tool server failed: {leaf}", 1000) + ran) from None
        finally:
            self._calls -= 1
            SENT.reset(within)

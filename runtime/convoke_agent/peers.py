"""Other agents, asked over A2A; those that speak none, over chat completions."""

import asyncio
import contextlib
import json
import time
import urllib.parse
import uuid

import httpx
from a2a.client.card_resolver import parse_agent_card
from a2a.client.client import ClientCallContext, ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.helpers.proto_helpers import get_artifact_text, get_message_text
from a2a.types.a2a_pb2 import (
    AgentCard,
    Artifact,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError, MethodNotFoundError
from google.protobuf.json_format import MessageToDict, ParseDict
from opentelemetry import propagate

from . import limits
from .errors import TooLarge
from .tool_servers import ToolError

CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
CARD_SECONDS = 10
# A Service refuses connections for a moment after its pod is ready. Nothing was sent then: tries after 0, 0.5 and 1 s.
CONNECT_RETRIES = 3
# How long each of these tries waits for an address that does not answer at all.
CONNECT_SECONDS = 3
CARD_FRESH_SECONDS = 300
CARD_RETRY_SECONDS = 5
# How long the first question waits for descriptions of peers.
DESCRIPTION_SECONDS = 1
# How long a peer may take to hear that nobody waits any more: less than a process has at its end.
CANCEL_SECONDS = 1.5
PATH_KEY = "convoke.dev/path"
CHAT_PATH = "/v1/chat/completions"
# What HTTP answers where nothing is served.
NOT_SERVED = (404, 405)
INTERRUPTED = (TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED)
TERMINAL = (
    TaskState.TASK_STATE_COMPLETED,
    TaskState.TASK_STATE_CANCELED,
    TaskState.TASK_STATE_FAILED,
    TaskState.TASK_STATE_REJECTED,
)


def client():
    """The HTTP client for all peers."""
    # The gate bounds how many questions run, so nobody waits for a connection.
    options = {"retries": CONNECT_RETRIES, "limits": httpx.Limits(max_connections=None)}
    transport = limits.bounded_transport(httpx, "the agent", limits.MAX_PEER_ANSWER_BYTES, **options)
    # A stream is silent for as long as the peer thinks: its asker's deadline ends it.
    timeout = httpx.Timeout(CARD_SECONDS, connect=CONNECT_SECONDS, read=None, pool=None)
    return httpx.AsyncClient(transport=transport, timeout=timeout)


def data_of(message):
    """The objects in the data parts of a message."""
    found = [MessageToDict(part.data) for part in message.parts if part.HasField("data")]
    return [value for value in found if isinstance(value, dict)]


def at_address(card, base):
    """The card with only what A2A clients need to reach the agent, under the address that was configured.

    What a card says of its host is not trusted: it may be made up or be of another network.
    """
    base = urllib.parse.urlsplit(base)
    reached = AgentCard(capabilities=card.capabilities)
    for interface in card.supported_interfaces:
        if interface.protocol_binding != "JSONRPC":
            continue
        path = urllib.parse.urlsplit(interface.url).path or "/"
        if base.path and not path.startswith(base.path):
            path = base.path + path
        interface = reached.supported_interfaces.add(
            protocol_binding="JSONRPC", protocol_version=interface.protocol_version
        )
        interface.url = urllib.parse.urlunsplit((base.scheme, base.netloc, path, "", ""))
    return reached


class Peer:
    """One agent that can be asked."""

    def __init__(self, settings, http):
        self.name = settings.name
        self.settings = settings
        self._http = http
        self._card = None
        # Whether the agent has shown that it speaks no A2A. The next card that is read is believed again.
        self._by_chat = False
        self._next_look = 0.0
        self._fetching = None

    def description(self):
        """What the peer's card says it does."""
        if self._card is None:
            return f"Asks the agent {self.name}."
        skills = [f"- {skill.name}: {skill.description}" for skill in self._card.skills[:20]]
        text = "\n".join([f"Asks the agent {self.name}. {self._card.description}", *skills])
        return limits.shortened(text, 2000)

    async def look(self):
        """Fetches the card when it is time to; waits only for the first one, and not long."""
        if time.monotonic() < self._next_look:
            return
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._fetch())
        if self._card is None:
            await asyncio.wait({self._fetching}, timeout=DESCRIPTION_SECONDS)

    async def _fetch(self):
        self._next_look = time.monotonic() + CARD_RETRY_SECONDS
        for path in CARD_PATHS:
            try:
                async with asyncio.timeout(CARD_SECONDS):
                    reply = await self._http.get(self.settings.url + path)
                if reply.status_code == 404:
                    continue
                if reply.status_code == 200 and len(reply.content) <= limits.MAX_CARD_BYTES:
                    self._card = parse_agent_card(json.loads(reply.content))
                    self._by_chat = False
                    self._next_look = time.monotonic() + CARD_FRESH_SECONDS
                return
            except (httpx.HTTPError, TimeoutError, TooLarge, ValueError, RecursionError, TypeError, A2AError):
                return
            except Exception as error:
                if type(error).__module__.startswith("google.protobuf"):
                    return
                raise
        # An agent without a card speaks no A2A.
        self._card = None
        self._by_chat = True
        self._next_look = time.monotonic() + CARD_FRESH_SECONDS

    async def _client(self):
        """A client for A2A; None for an agent that speaks none."""
        if self._card is None and not self._by_chat:
            self._next_look = 0.0
            await self.look()
            if self._fetching is not None:
                await asyncio.wait({self._fetching}, timeout=CARD_SECONDS)
        if self._by_chat:
            return None
        if self._card is None:
            raise ToolError(f"the agent {self.name} cannot be reached: its card cannot be read")
        config = ClientConfig(httpx_client=self._http, streaming=True)
        try:
            return ClientFactory(config).create(at_address(self._card, self.settings.url))
        except ValueError:
            raise ToolError(f"the agent {self.name} speaks no JSON-RPC") from None

    async def ask(self, parts, path, task_id="", context_id=""):
        """Sends a message and waits until the peer's task ends or waits. Gives the Task. Raises ToolError."""
        message = Message(role=Role.ROLE_USER, message_id=str(uuid.uuid4()), parts=parts)
        message.task_id, message.context_id = task_id, context_id
        message.metadata.update({PATH_KEY: list(path)})
        seen = Seen(task_id)
        talk = asyncio.create_task(self._talk(message, seen))
        try:
            await asyncio.shield(talk)
        except asyncio.CancelledError:
            await self._give_up(talk, seen)
            raise
        except (A2AError, httpx.HTTPError, TooLarge, ValueError) as error:
            raise ToolError(f"the agent {self.name} failed: {limits.shortened(str(error), 500)}") from None
        except Exception as error:
            # The client library has errors of its own without a common base that it exports.
            if not type(error).__module__.startswith(("a2a.", "google.protobuf", "pydantic")):
                raise
            raise ToolError(f"the agent {self.name} failed: {limits.shortened(str(error), 500)}") from None
        return seen.task

    async def _give_up(self, talk, seen):
        """Ends a talk, and tells the peer."""
        named = asyncio.create_task(seen.named.wait())
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_SECONDS):
                    # A task can only be cancelled by its name, which the peer's first words tell.
                    await asyncio.wait({talk, named}, return_when=asyncio.FIRST_COMPLETED)
                    talk.cancel()
                    await asyncio.gather(talk, return_exceptions=True)
                    await self.cancel(seen.task.id)
        finally:
            named.cancel()
            talk.cancel()

    async def _talk(self, message, seen):
        agent = await self._client()
        if agent is None:
            await self._chat(message, seen)
            return
        try:
            async for event in agent.send_message(SendMessageRequest(message=message), context=_context()):
                seen.take(event)
        except A2AError as error:
            if not speaks_no_a2a(error):
                raise
            self._by_chat = True
            await self._chat(message, seen)
            return
        while seen.task.status.state not in (*TERMINAL, *INTERRUPTED):
            await asyncio.sleep(0.5)
            seen.task = await agent.get_task(GetTaskRequest(id=seen.task.id), context=_context())

    async def _chat(self, message, seen):
        """Asks over chat completions. Each question is a conversation of its own there, as it is over A2A."""
        if message.task_id or not message.parts[0].HasField("text"):
            raise ToolError(f"the agent {self.name} speaks no A2A any more, so its task cannot go on")
        # There is no task that could be cancelled: the end of the connection tells the agent.
        seen.named.set()
        stream = self._card is None or self._card.capabilities.streaming
        question = {"role": "user", "content": message.parts[0].text}
        body = {"model": "agent", "messages": [question], "stream": stream}
        headers = {"Accept": "application/json, text/event-stream"}
        propagate.inject(headers)
        async with self._http.stream("POST", self.settings.url + CHAT_PATH, json=body, headers=headers) as reply:
            if reply.status_code in NOT_SERVED:
                raise ToolError(f"the agent {self.name} speaks neither A2A nor chat completions")
            if reply.status_code != 200:
                raise ToolError(f"the agent {self.name} failed: HTTP {reply.status_code}")
            text = await chat_text(reply)
        seen.task.status.state = TaskState.TASK_STATE_COMPLETED
        seen.task.artifacts.append(Artifact(artifact_id="answer", parts=[text_part(text)]))

    async def cancel(self, task_id):
        """Tells the peer that nobody waits any more; whether it hears that is not known."""
        if not task_id or self._card is None or self._by_chat:
            return
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CANCEL_SECONDS):
                await (await self._client()).cancel_task(CancelTaskRequest(id=task_id), context=_context())


def speaks_no_a2a(error):
    """Whether a message was refused because nothing takes any: so it has done nothing yet."""
    refused = error.__cause__
    of_http = isinstance(refused, httpx.HTTPStatusError) and refused.response.status_code in NOT_SERVED
    return of_http or isinstance(error, MethodNotFoundError)


async def chat_text(reply):
    """The text of a chat completion, streamed or not. Raises ValueError."""
    if not reply.headers.get("content-type", "").startswith("text/event-stream"):
        return chat_piece(await reply.aread(), "message")[0]
    texts, has_ended = [], False
    async for line in reply.aiter_lines():
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or not data:
            continue
        if data == "[DONE]":
            has_ended = True
            break
        text, is_last = chat_piece(data, "delta")
        texts.append(text)
        has_ended = has_ended or is_last
    if not has_ended:
        raise ValueError("its answer ended early")
    return "".join(texts)


def chat_piece(content, key):
    """The text in a completion or a chunk of one, and whether it is the last. Raises ValueError."""
    try:
        value = json.loads(content)
        if error := value.get("error"):
            raise ValueError(str(error.get("message", "")) if isinstance(error, dict) else str(error))
        choice = next(iter(value.get("choices") or []), {})
        text = choice.get(key, {}).get("content") or ""
        if not isinstance(text, str):
            raise TypeError
    except (json.JSONDecodeError, RecursionError, AttributeError, TypeError):
        raise ValueError("its answer is no chat completion") from None
    return "" if is_progress(text) else text, isinstance(choice.get("finish_reason"), str)


def is_progress(text):
    """Whether a piece is no text of the answer: pydantic-ai-server reports calls of tools in pieces of their own."""
    if not text.startswith('{"type": "progress"'):
        return False
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text).keys() >= {"type", "action", "target"}
    return False


def _context():
    carrier = {}
    propagate.inject(carrier)
    return ClientCallContext(service_parameters=carrier)


class Seen:
    """A peer's task, put together from what it sends."""

    def __init__(self, task_id):
        self.task = Task(id=task_id)
        self.named = asyncio.Event()
        if task_id:
            self.named.set()

    def take(self, event):
        if event.HasField("task"):
            self.task = event.task
        elif event.HasField("message"):
            self.task.status.state = TaskState.TASK_STATE_COMPLETED
            self.task.status.message.CopyFrom(event.message)
        elif event.HasField("status_update"):
            self.task.id = event.status_update.task_id
            self.task.context_id = event.status_update.context_id
            self.task.status.CopyFrom(event.status_update.status)
        elif event.HasField("artifact_update"):
            add_artifact(self.task, event.artifact_update)
        if self.task.id:
            self.named.set()


def add_artifact(task, update):
    """Applies an update of an artifact to a task."""
    there = next((one for one in task.artifacts if one.artifact_id == update.artifact.artifact_id), None)
    if there is None:
        task.artifacts.append(update.artifact)
    elif update.append:
        there.parts.extend(update.artifact.parts)
    else:
        there.CopyFrom(update.artifact)


def answer_of(task):
    """What a peer's task says, as text."""
    # The parts of an artifact that came in pieces are one text.
    texts = [get_artifact_text(artifact, "") for artifact in task.artifacts]
    text = "\n".join(filter(None, texts)) or get_message_text(task.status.message)
    return limits.shortened(text)


def text_part(text):
    return Part(text=text)


def shown(value):
    """An object as the receiver of a data part has it."""
    sent = data_part(value).SerializeToString()
    return MessageToDict(Part.FromString(sent).data)


def data_part(value):
    part = Part()
    ParseDict(value, part.data)
    return part

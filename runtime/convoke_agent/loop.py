"""The loop: asks the model, runs the tools that it asks for, asks again."""

import asyncio
import contextlib
import dataclasses
import time

import httpx2
from a2a.types.a2a_pb2 import TaskState
from google.protobuf.json_format import ParseError
from google.protobuf.message import DecodeError
from openai import AsyncOpenAI
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolDefinition, UsageLimits
from pydantic_ai.exceptions import CallDeferred, ToolFailed
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta, ThinkingPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_ai.toolsets.external import TOOL_SCHEMA_VALIDATOR
from pydantic_ai.usage import RunUsage

from . import limits, names, peers
from .errors import Failure, failure_of
from .settings import KEY_VARIABLE, values_of
from .tool_servers import ToolError, check_arguments

MODEL_CONNECT_SECONDS = 10
MODEL_RETRIES = 2
# Calls that the asker is told of while they happen, for one question.
MAX_CALLS_TOLD = 1000
# Calls in one answer of the model.
MAX_CALLS_AT_ONCE = 32
# Of all results of one question. When they are used up, each result has the second number.
MAX_RESULT_CHARACTERS = 1 << 20
LEAST_RESULT_CHARACTERS = 1 << 10
# Steps bound the loop; how often one tool fails does not.
TOOL_RETRIES = 1000
# The client library wants a key; this one is not sent.
NO_KEY = "there-is-no-key"
NO_APPROVAL_HERE = "the call needs approval, which this interface cannot ask for"
NO_INPUT_HERE = "the agent needs input, which this interface cannot ask for"


@dataclasses.dataclass
class Told:
    """A call that is told of."""

    # Not where a peer asks back and the call goes on later.
    ended: bool = True


@dataclasses.dataclass
class Run:
    """One question while it is thought about."""

    snapshot: "Snapshot"
    # Bytes of the question, as the gate counts them.
    size: int
    session: str | None = None
    path: tuple[str, ...] = ()
    # Whether the asker can be asked back.
    can_pause: bool = False
    on_text: object = None
    # Is told of each call of a tool or a peer.
    on_call: object = None
    calls_told: int = 0
    # Calls in the step of this number.
    step: int = 0
    calls: int = 0
    result_characters: int = 0
    usage: RunUsage = dataclasses.field(default_factory=RunUsage)
    tools_used: list[str] = dataclasses.field(default_factory=list)
    deadline: float = 0.0

    def __post_init__(self):
        self.deadline = time.monotonic() + self.snapshot.settings.agentic_loop.max_seconds

    def remaining(self):
        return max(self.deadline - time.monotonic(), 0.0)

    def count_call(self, step):
        """Counts a call of a step. Raises ToolError where there are too many."""
        if step != self.step:
            self.step, self.calls = step, 0
        self.calls += 1
        if self.calls > MAX_CALLS_AT_ONCE:
            raise ToolError(f"an answer may have {MAX_CALLS_AT_ONCE} calls: this one did not run")

    def kept(self, text):
        """A result as the model gets it: less of it where others have taken the room of the question."""
        room = max(MAX_RESULT_CHARACTERS - self.result_characters, LEAST_RESULT_CHARACTERS)
        text = limits.shortened(text, room)
        self.result_characters += len(text)
        return text

    @contextlib.contextmanager
    def telling(self, kind, name, server=None, goes_on=False):
        """Tells of a call while it happens: that it begins, unless it goes on, and how it ends."""
        call, told = {"type": kind, "name": name} | ({"server": server} if server is not None else {}), Told()
        if self.on_call is None or self.calls_told >= MAX_CALLS_TOLD:
            yield told
            return
        self.calls_told += 1
        if not goes_on:
            self.on_call(call | {"phase": "start"})
        try:
            yield told
        except ToolError:
            self.on_call(call | {"phase": "end", "ok": False})
            raise
        if told.ended:
            self.on_call(call | {"phase": "end", "ok": True})


@dataclasses.dataclass
class Answer:
    """What the model said in the end. `turn` is the conversation's new part."""

    text: str
    turn: list
    # "length" where the model's own bound on tokens cut it.
    finish_reason: str = "stop"


@dataclasses.dataclass
class Pause:
    """The loop waits for the asker: `items` are the calls that wait, `messages` all so far, `base` those of before."""

    items: list[dict]
    messages: list
    base: int
    results: dict = dataclasses.field(default_factory=dict)


class Snapshot:
    """The agent as one configuration describes it. Requests keep theirs when another comes."""

    def __init__(self, settings, environment, servers, others, tool_seconds):
        self.settings = settings
        self.servers = servers
        self.peers = others
        self.tool_seconds = tool_seconds
        self.agent = None
        self._environment = environment
        self._delegates = self._named_peers()
        self._listings = None
        self._tools = {}

    def build(self, http, capabilities):
        """Makes the model and the agent. `http` is the client for the model API."""
        settings = self.settings
        base = settings.model_url.rstrip("/")
        client = AsyncOpenAI(
            base_url=base if base.endswith("/v1") else f"{base}/v1",
            api_key=self._environment.get(KEY_VARIABLE) or NO_KEY,
            default_headers=values_of(settings.model_headers, self._environment),
            http_client=http,
            max_retries=MODEL_RETRIES,
        )
        provider = OpenAICompatibleProvider(settings.model_api or "model-api", openai_client=client)
        self.agent = Agent(
            # A stream that is cut has none: half an answer would be taken for the whole, and half a call be made.
            OpenAIChatModel(
                settings.model, provider=provider, profile={"openai_chat_streaming_requires_finish_reason": True}
            ),
            name=settings.name,
            instructions=settings.instructions or None,
            output_type=[str, DeferredToolRequests],
            deps_type=Run,
            toolsets=[Tools()],
            model_settings=_model_settings(settings.model_parameters),
            retries={"tools": TOOL_RETRIES, "output": 1},
            capabilities=capabilities,
        )

    def tools(self):
        """The tools by the names that the model sees: (server, MCP tool) each."""
        if not self.settings.agentic_loop.enable_tools:
            return {}
        listings = [server.tools for server in self.servers]
        # They are named anew only when a server lists others.
        if self._listings is None or any(a is not b for a, b in zip(listings, self._listings, strict=True)):
            listed = [(server, tool) for server in self.servers for tool in (server.tools or {}).values()]
            wanted = [(tool.name, f"{server.name}_{tool.name}") for server, tool in listed]
            self._tools = dict(zip(names.assigned(wanted, self._delegates), listed, strict=True))
            self._listings = listings
        return self._tools

    def delegates(self):
        """The peers by the names of their tools."""
        return self._delegates

    def _named_peers(self):
        if not self.settings.agentic_loop.enable_delegation:
            return {}
        wanted = [(f"delegate_to_{peer.name}",) * 2 for peer in self.peers]
        return dict(zip(names.assigned(wanted), self.peers, strict=True))


def model_http():
    """The HTTP client for the model API."""
    transport = limits.bounded_transport(httpx2, "the model API", limits.MAX_MODEL_ANSWER_BYTES)
    timeout = httpx2.Timeout(60, connect=MODEL_CONNECT_SECONDS)
    return httpx2.AsyncClient(transport=transport, timeout=timeout, event_hooks={"request": [_without_no_key]})


async def _without_no_key(request):
    if request.headers.get("Authorization") == f"Bearer {NO_KEY}":
        del request.headers["Authorization"]


def _model_settings(parameters):
    plain = ("temperature", "top_p", "max_tokens", "presence_penalty", "frequency_penalty", "seed")
    plain += ("stop_sequences", "extra_body")
    found = {name: getattr(parameters, name) for name in plain if getattr(parameters, name) is not None}
    return found | {"timeout": parameters.timeout_seconds}


@dataclasses.dataclass(kw_only=True)
class Offered(ToolsetTool):
    """A tool as it was offered to the model. `target` is a peer, or a server and its tool."""

    target: object


class Tools(AbstractToolset):
    """Tools of servers and of peers, as the run's configuration has them."""

    @property
    def id(self):
        return "tools"

    async def get_tools(self, ctx):
        snapshot = ctx.deps.snapshot
        delegates = snapshot.delegates()
        await asyncio.gather(*(peer.look() for peer in delegates.values()))
        found = {
            name: self._tool(name, tool.description, tool.input_schema, (server, tool))
            for name, (server, tool) in snapshot.tools().items()
        }
        schema = {
            "type": "object",
            "properties": {
                "message": {"type": "string", "description": "What the agent is asked, with all it must know."}
            },
            "required": ["message"],
        }
        return found | {name: self._tool(name, peer.description(), schema, peer) for name, peer in delegates.items()}

    def _tool(self, name, description, schema, target):
        definition = ToolDefinition(
            name=name, description=description or "", parameters_json_schema=schema, strict=False
        )
        return Offered(
            toolset=self,
            tool_def=definition,
            max_retries=TOOL_RETRIES,
            args_validator=TOOL_SCHEMA_VALIDATOR,
            target=target,
        )

    async def call_tool(self, name, tool_args, ctx, tool):
        run = ctx.deps
        run.tools_used.append(name)
        if not isinstance(tool_args, dict):
            raise ToolFailed("the arguments must be a JSON object")
        try:
            run.count_call(ctx.run_step)
            if isinstance(tool.target, peers.Peer):
                return run.kept(await delegate(tool.target, tool_args, run))
            server, target = tool.target
            check_arguments(tool_args)
            if server.needs_approval(target.name):
                if not run.can_pause:
                    raise ToolError(NO_APPROVAL_HERE)
                check_shown(tool_args)
                item = {"kind": "tool", "server": server.name, "tool": target.name, "arguments": tool_args}
                raise CallDeferred(metadata=item | {"definition": server.fingerprint(target)})
            with run.telling("tool", target.name, server.name):
                seconds = min(run.snapshot.tool_seconds, run.remaining())
                return run.kept(await server.call(target.name, tool_args, seconds))
        except ToolError as error:
            raise ToolFailed(str(error)) from None


def check_shown(arguments):
    """Raises ToolError unless whoever approves a call is shown exactly these arguments. A2A has no integers, and bounded depth."""
    try:
        shown = peers.shown({"arguments": arguments})["arguments"]
    except (ValueError, RecursionError, ParseError, DecodeError):
        shown = None
    if shown != arguments or _levels(arguments) > limits.MAX_BODY_LEVELS:
        raise ToolError("the call needs approval, and its arguments cannot be shown exactly: large integers must be texts")


def _levels(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_levels, inner), default=0)


async def delegate(peer, arguments, run):
    """Asks a peer. Raises ToolError, or CallDeferred where the peer asks back."""
    message = arguments.get("message")
    if not isinstance(message, str) or not message.strip():
        raise ToolError("the argument `message` must be a text that is not empty")
    path = (*run.path, run.snapshot.settings.name)
    if peer.name in path:
        raise ToolError(f"the agent {peer.name} waits for this answer already: asking it again would not end")
    if len(path) > limits.MAX_PATH:
        raise ToolError(f"the question was passed on {limits.MAX_PATH} times already: answer it here")
    with run.telling("peer", peer.name) as told:
        task = await asked(peer, [peers.text_part(message)], path, run)
        told.ended = task.status.state not in peers.INTERRUPTED
        if not told.ended and not run.can_pause:
            await peer.cancel(task.id)
            raise ToolError(NO_APPROVAL_HERE if approval_in(task) else NO_INPUT_HERE)
    if told.ended:
        return peers.answer_of(task)
    raise CallDeferred(metadata=waiting_peer(peer.name, task))


async def asked(peer, parts, path, run, of_task=None):
    """A peer's task once it ends well or waits. Raises ToolError for one that failed."""
    try:
        async with asyncio.timeout(run.remaining()):
            task = await peer.ask(parts, path, *(of_task or ()))
    except TimeoutError:
        raise ToolError(f"the agent {peer.name} did not answer in time") from None
    state = task.status.state
    if state in (TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_REJECTED, TaskState.TASK_STATE_CANCELED):
        why = limits.shortened(peers.answer_of(task), 1000)
        raise ToolError(f"the agent {peer.name} {TaskState.Name(state)[11:].lower()}: {why}")
    return task


def approval_in(task):
    """The approval that a waiting task asks for; None if it asks for something else."""
    for data in peers.data_of(task.status.message):
        approval = data.get("approval")
        if isinstance(approval, dict) and isinstance(approval.get("token"), str):
            return approval
    return None


def waiting_peer(name, task):
    """What is kept of a peer that asks back."""
    item = {"kind": "peer", "peer": name, "taskId": task.id, "contextId": task.context_id}
    return item | {"approval": approval_in(task), "question": peers.answer_of(task)}


async def think(run, prompt, history, paused=None):
    """Runs the loop on a question, or on from where it paused. Gives an Answer or a Pause. Raises Failure."""
    loop = run.snapshot.settings.agentic_loop
    deferred = None
    if paused is not None:
        history, prompt = paused.messages, None
        calls = {
            key: value["text"] if value["ok"] else ToolFailed(value["text"]) for key, value in paused.results.items()
        }
        deferred = DeferredToolResults(calls=calls)
    try:
        async with asyncio.timeout(run.remaining()):
            result = await run.snapshot.agent.run(
                prompt,
                message_history=history,
                deferred_tool_results=deferred,
                deps=run,
                usage=run.usage,
                usage_limits=UsageLimits(request_limit=loop.max_steps, total_tokens_limit=loop.max_tokens),
                event_stream_handler=_text_handler if run.on_text is not None else None,
            )
    except Exception as error:
        raise failure_of(error) from error
    base = len(history) if paused is None else paused.base
    messages = result.all_messages()
    if isinstance(result.output, str):
        reason = "length" if result.response.finish_reason == "length" else "stop"
        return Answer(result.output, _whole_turn(messages[base:]), reason)
    requests = result.output
    items = [{"id": call.tool_call_id} | requests.metadata[call.tool_call_id] for call in requests.calls]
    return Pause(items, messages, base)


def _whole(text):
    """The text. Raises Failure where it has half a character: it could neither be told nor be sent along later."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Failure("model_bad_answer", "the answer of the model API has half a character") from None
    return text


def _whole_turn(messages):
    """The messages, if all that the model said in them, and thought, is whole. Raises Failure."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, (TextPart, ThinkingPart)):
                _whole(part.content)
    return messages


async def _text_handler(ctx, events):
    """Passes on the text of the model as it comes. Each step's text begins with `first`."""
    first = True
    async for event in events:
        text = ""
        if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
            text = event.part.content
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            text = event.delta.content_delta
        if text:
            await ctx.deps.on_text(_whole(text), first)
            first = False


async def settle(run, item, decision):
    """Does what the asker decided about a call that waits.

    Gives its result ({"ok", "text"}), or another item where a peer asks back again.
    """
    try:
        if item["kind"] == "tool":
            return {"ok": True, "text": await _run_approved(run, item, decision)}
        peer = next((one for one in run.snapshot.peers if one.name == item["peer"]), None)
        if peer is None:
            raise ToolError(f"the agent {item['peer']} is not a peer any more")
        return await _settle_peer(run, peer, item, decision)
    except ToolError as error:
        return {"ok": False, "text": str(error)}


async def _settle_peer(run, peer, item, decision):
    path, of_task = (*run.path, run.snapshot.settings.name), (item["taskId"], item["contextId"])
    with run.telling("peer", peer.name, goes_on=True) as told:
        task = await asked(peer, [_reply(item, decision)], path, run, of_task)
        told.ended = task.status.state not in peers.INTERRUPTED
    if told.ended:
        return {"ok": True, "text": peers.answer_of(task)}
    return {"id": item["id"]} | waiting_peer(peer.name, task)


def _reply(item, decision):
    if item["approval"] is None:
        return peers.text_part(decision["text"])
    answer = {"token": item["approval"]["token"], "decision": decision["decision"]}
    if decision.get("reason"):
        answer["reason"] = decision["reason"]
    return peers.data_part({"approval": answer})


async def _run_approved(run, item, decision):
    if decision["decision"] != "approve":
        reason = decision.get("reason")
        raise ToolError("the user denied the call" + (f": {reason}" if reason else ""))
    server = next((one for one in run.snapshot.servers if one.name == item["server"]), None)
    tool = (server.tools or {}).get(item["tool"]) if server is not None else None
    if tool is None:
        raise ToolError("the tool is not there any more")
    if server.fingerprint(tool) != item.get("definition"):
        raise ToolError("the tool has changed since the approval was asked for, so it did not run; ask again")
    seconds = min(run.snapshot.tool_seconds, run.remaining())
    with run.telling("tool", tool.name, server.name):
        return await server.call(tool.name, item["arguments"], seconds, once=True)

"""What A2A's methods do, for both versions of the protocol."""

import asyncio
import contextlib
import functools
import inspect
import time

from a2a.compat.v0_3.request_handler import RequestHandler03
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types.a2a_pb2 import ListTasksResponse, Task, TaskState
from a2a.utils import errors as of
from a2a.utils.proto_utils import validate_proto_required_fields
from a2a.utils.task import ListTasksCursor, apply_history_length, decode_list_tasks_cursor, encode_list_tasks_cursor
from google.protobuf.json_format import MessageToDict, ParseError
from pydantic import ValidationError

from . import limits, logs, loop, peers, tasks
from .errors import Failure

CANCEL_SECONDS = 10
CANCEL_LOOK_SECONDS = 1
# Tasks that are read at once to list them, and bytes of one page of them.
LIST_BATCH = 20
MAX_PAGE_BYTES = 8 << 20
MAX_PAGE_SIZE = 100
MAX_TOKEN_CHARACTERS = 1000
# How long after its deadline a task of a process that is gone counts as running.
LOST_SECONDS = 60
# How long after it took an answer a replica needs to say that the task goes on.
TAKEN_SECONDS = 15
OF_THE_ASKER = ("bad_request", "empty_prompt", "delegation_loop", "delegation_too_deep", "approval_invalid")


def error_of(failure):
    """A Failure as an error of the protocol; the reason is in its data."""
    kind = of.InvalidParamsError if failure.reason in OF_THE_ASKER else of.InternalError
    return kind(failure.message, {"reason": failure.reason})


@contextlib.contextmanager
def _protocol_errors(params):
    try:
        _check(params)
        yield
    except Failure as failure:
        raise error_of(failure) from None
    except of.A2AError:
        raise
    except Exception as error:
        logs.bug(error)
        raise error_of(Failure("internal", "the agent failed")) from None


@contextlib.contextmanager
def _errors_of_the_asker(params):
    """For A2A 0.3: what cannot become protobuf came from the asker. What becomes an answer is validated, too."""
    try:
        yield
    except ValidationError:
        raise
    except (ParseError, ValueError, OverflowError):
        raise error_of(Failure("bad_request", "the parameters cannot be read")) from None


def _check(params):
    """Raises Failure where a field is missing that the protocol requires, or a length is none."""
    try:
        validate_proto_required_fields(params)
    except of.InvalidParamsError as error:
        names = ", ".join(one["field"] for one in error.data["errors"])
        raise Failure("bad_request", f"required: {names}") from None
    limited = params.configuration if "configuration" in params.DESCRIPTOR.fields_by_name else params
    if "history_length" in limited.DESCRIPTOR.fields_by_name and limited.history_length < 0:
        raise Failure("bad_request", "historyLength must not be negative")


def _listed_after(params, context):
    """The task after which a page of a list begins; None for the first page. Raises Failure for what is not valid."""
    if params.HasField("page_size") and not 1 <= params.page_size <= MAX_PAGE_SIZE:
        raise Failure("bad_request", f"pageSize must be between 1 and {MAX_PAGE_SIZE}")
    # A state that is not known is read as none.
    status = ((context.state["body"].value or {}).get("params") or {}).get("status")
    if not params.status and status not in (None, 0, "", "TASK_STATE_UNSPECIFIED"):
        raise Failure("bad_request", "there is no such status")
    is_short = 0 < len(params.page_token) <= MAX_TOKEN_CHARACTERS
    after = decode_list_tasks_cursor(params.page_token) if is_short else None
    if params.page_token and after is None:
        raise Failure("bad_request", "the pageToken is none of this agent")
    return after


def _within(method, guard):
    """The method, each of whose calls runs in such a context."""
    if inspect.isasyncgenfunction(method):

        @functools.wraps(method)
        async def stream(*args):
            with guard(args[1]):
                async for event in method(*args):
                    yield event

        return stream

    @functools.wraps(method)
    async def single(*args):
        with guard(args[1]):
            return await method(*args)

    return single


def told(method):
    """Makes every error one of the protocol, and refuses what lacks what it must have."""
    return _within(method, _protocol_errors)


class Older(RequestHandler03):
    """A2A 0.3: its requests become those of 1.0."""

    on_message_send = _within(RequestHandler03.on_message_send, _errors_of_the_asker)
    on_message_send_stream = _within(RequestHandler03.on_message_send_stream, _errors_of_the_asker)
    on_get_task = _within(RequestHandler03.on_get_task, _errors_of_the_asker)
    on_cancel_task = _within(RequestHandler03.on_cancel_task, _errors_of_the_asker)
    on_subscribe_to_task = _within(RequestHandler03.on_subscribe_to_task, _errors_of_the_asker)


def _path_of(message, name):
    """The agents that a question came through. Raises Failure where it must not go on."""
    path = MessageToDict(message.metadata).get(peers.PATH_KEY, [])
    if not isinstance(path, list) or not all(isinstance(one, str) for one in path):
        raise Failure("bad_request", f"the metadata {peers.PATH_KEY} must be a list of names")
    if name in path:
        raise Failure("delegation_loop", f"the agent {name} waits for the answer to this question already")
    if len(path) > limits.MAX_PATH:
        raise Failure("delegation_too_deep", f"the question was passed on more than {limits.MAX_PATH} times")
    return tuple(path)


def _text_of(message):
    texts = [part.text for part in message.parts if part.HasField("text")]
    if any(part.HasField("raw") or part.HasField("url") for part in message.parts):
        raise of.ContentTypeNotSupportedError("only text and data parts are understood")
    return "\n".join(texts)


def _approval_of(message):
    """The decision in a message; None if there is none. Raises Failure for one that cannot be read."""
    for data in peers.data_of(message):
        if "approval" not in data:
            continue
        found = data["approval"]
        if not isinstance(found, dict) or not isinstance(found.get("token"), str):
            raise Failure("approval_invalid", "the approval has no token")
        if found.get("decision") not in ("approve", "deny"):
            raise Failure("approval_invalid", "the decision must be approve or deny")
        reason = found.get("reason")
        return found | {"reason": limits.shortened(reason, 1000) if isinstance(reason, str) else None}
    return None


class Handler(RequestHandler):
    """Tasks of one agent."""

    def __init__(self, service):
        self._service = service
        self._live = {}

    # ---- messages

    @told
    async def on_message_send(self, params, context):
        live = await self._begin(params, context, False)
        # Its callers hold it for as long as it is answered.
        params.ClearField("message")
        if not params.configuration.return_immediately:
            await live.ended.wait()
        task = Task()
        task.CopyFrom(live.task)
        return apply_history_length(task, params.configuration)

    @told
    async def on_message_send_stream(self, params, context):
        live = await self._begin(params, context, True)
        params.ClearField("message")
        async for event in self._follow(live):
            yield event

    async def _follow(self, live):
        queue = live.follow()
        try:
            task = Task()
            task.CopyFrom(live.task)
            yield task
            while (event := await queue.get()) is not None:
                yield event
        finally:
            live.unfollow(queue)

    async def _begin(self, params, context, stream):
        message = params.message
        for identifier in (message.task_id, message.context_id, message.message_id):
            if len(identifier) > limits.MAX_ID_CHARACTERS:
                raise Failure("bad_request", f"an identifier is longer than {limits.MAX_ID_CHARACTERS} characters")
        line = logs.RequestLine(context.state.get("method", ""), "a2a")
        if message.task_id:
            return await self._go_on(message, context.state["body"], line, stream)
        text = _text_of(message)
        if not text.strip():
            raise Failure("empty_prompt", "the message has no text")
        snapshot = self._service.admit(context.state["body"])
        size = context.state["body"].size
        try:
            path = _path_of(message, snapshot.settings.name)
            live = tasks.Live(tasks.new(message))
        except BaseException:
            self._service.gate.leave(size)
            raise
        run = loop.Run(snapshot, size, session=live.task.context_id, path=path, can_pause=True)
        self._start(live, run, line, stream, functools.partial(self._ask, text))
        return live

    async def _go_on(self, message, given, line, stream):
        """A message for a task that waits."""
        task_id = message.task_id
        task = await self._known(task_id)
        if message.context_id and message.context_id != task.context_id:
            raise of.InvalidParamsError("the task is of another context", {"reason": "bad_request"})
        if task.status.state not in peers.INTERRUPTED:
            raise of.UnsupportedOperationError("the task waits for no message")
        memory = self._service.memory
        pending = await memory.waiting(task_id)
        if pending is None:
            raise Failure("approval_invalid", "nothing waits for an answer any more")
        decision = self._decision(message, pending["items"][0])
        if decision is None:
            # Plain text is no decision: the question is asked again.
            live = tasks.Live(task)
            live.end()
            return live
        size = given.size
        snapshot = self._service.admit(given)
        try:
            token = decision.get("token", pending["token"])
            pending = await memory.take(task_id, token)
            if pending is None:
                raise Failure("approval_invalid", "the token is wrong or was used already")
        except BaseException:
            self._service.gate.leave(size)
            raise
        live = tasks.Live(tasks.goes_on(task, message))
        run = loop.Run(snapshot, size, session=task.context_id, path=tuple(pending["path"]), can_pause=True)
        run.usage.requests, run.usage.input_tokens, run.usage.output_tokens = pending["usage"]
        self._start(live, run, line, stream, functools.partial(self._settle, pending, decision))
        return live

    def _decision(self, message, item):
        """What the message decides about a call that waits; None if it is an approval and the message none."""
        if item["kind"] == "tool" or item["approval"] is not None:
            return _approval_of(message)
        text = _text_of(message)
        if not text.strip():
            raise Failure("empty_prompt", "the message has no text")
        return {"text": text}

    # ---- the work on a task

    def _start(self, live, run, line, stream, work):
        run.on_text = live.text if stream else None
        run.on_call = live.call
        self._live[live.task.id] = live
        live.job = asyncio.create_task(self._work(live, run, line, work))
        self._service.began(live.job, live.cancel)
        live.job.add_done_callback(lambda _: self._never_begun(live, run, line))

    def _never_begun(self, live, run, line):
        """Ends a task whose job was cancelled before its first step: then nothing of the job ran."""
        if not live.begun:
            live.begun = True
            live.conclude(TaskState.TASK_STATE_CANCELED)
            self._service.began(asyncio.create_task(self._end(live, run, line)), live.cancel)

    async def _work(self, live, run, line, work):
        """Runs a task to its end or to where it waits; whatever happens, the task then says so."""
        live.begun = True
        watch = None
        try:
            memory = self._service.memory
            if memory.shared:
                await memory.save_task(live.task)
                watch = asyncio.create_task(self._watch(live))
            async with self._service.holding(run) as history:
                live.works()
                await work(live, run, history)
        except asyncio.CancelledError:
            live.conclude(TaskState.TASK_STATE_CANCELED)
        except Failure as failure:
            live.fail(failure)
        except Exception as error:
            logs.bug(error)
            live.fail(Failure("internal", "the agent failed"))
        finally:
            if watch is not None:
                watch.cancel()
            await self._end(live, run, line)

    async def _end(self, live, run, line):
        """Keeps how a task ended, and then tells it: who is told may go on with it at once, at any replica."""
        self._service.gate.leave(run.size)
        live.usage(run)
        try:
            await self._service.memory.save_task(live.concluded())
        except Failure as failure:
            live.lose(failure)
        finally:
            # Another message may have begun to go on with it.
            if self._live.get(live.task.id) is live:
                del self._live[live.task.id]
            live.end()
            line.end(TaskState.Name(live.task.status.state)[11:].lower(), run)

    async def _watch(self, live):
        """Cancels the task when another replica was asked to."""
        while True:
            await asyncio.sleep(CANCEL_LOOK_SECONDS)
            with contextlib.suppress(Failure):
                if await self._service.memory.asked_to_cancel(live.task.id):
                    live.cancel()
                    return

    async def _ask(self, text, live, run, history):
        await self._conclude(live, run, await loop.think(run, text, history))

    async def _settle(self, pending, decision, live, run, _):
        """Goes on where a task waited."""
        pause = loop.Pause(pending["items"], pending["messages"], pending["base"], pending["results"])
        item = pause.items.pop(0)
        result = await loop.settle(run, item, decision)
        if "id" in result:
            pause.items.insert(0, result)
        else:
            pause.results[item["id"]] = result
        outcome = pause if pause.items else await loop.think(run, None, None, pause)
        await self._conclude(live, run, outcome)

    async def _conclude(self, live, run, outcome):
        if isinstance(outcome, loop.Answer):
            await self._service.remember(run, outcome.turn)
            if outcome.finish_reason != "stop":
                live.task.metadata.update({"finishReason": outcome.finish_reason})
            live.answer(outcome.text)
            return
        token = tasks.token()
        usage = (run.usage.requests, run.usage.input_tokens, run.usage.output_tokens)
        pending = {
            "items": outcome.items,
            "messages": outcome.messages,
            "base": outcome.base,
            "results": outcome.results,
        }
        pending |= {"path": list(run.path), "usage": usage, "token": token}
        await self._service.memory.wait_for(live.task.id, token, pending)
        live.conclude(TaskState.TASK_STATE_INPUT_REQUIRED, tasks.ask(outcome.items[0], token))

    # ---- tasks

    async def _known(self, task_id):
        """A task by its id, as it is now. Raises TaskNotFoundError."""
        if self._service.memory is None:
            raise Failure("not_ready", self._service.problem or "the agent starts")
        if task_id in self._live:
            return self._live[task_id].task
        task = await self._service.memory.task(task_id)
        if task is None:
            raise of.TaskNotFoundError
        failure = await self._fate(task)
        if failure is not None:
            live = tasks.Live(task)
            live.fail(failure)
            task = live.concluded()
            await self._service.memory.save_task(task)
        return task

    async def _fate(self, task):
        """Why a task that neither runs here nor ended will never end; None if it may."""
        age = time.time() - task.status.timestamp.seconds
        memory = self._service.memory
        if task.status.state in peers.INTERRUPTED:
            # Another replica may have taken the answer a moment ago, and says so next.
            until = self._service.pending_seconds + (TAKEN_SECONDS if memory.shared else 0)
            if age > until and await memory.waiting(task.id) is None:
                return Failure("approval_expired", "nobody answered in time")
        elif task.status.state not in peers.TERMINAL:
            if age > self._service.snapshot.settings.agentic_loop.max_seconds + LOST_SECONDS:
                return Failure("internal", "the process that ran the task is gone")
        return None

    @told
    async def on_get_task(self, params, context):
        task = Task()
        task.CopyFrom(await self._known(params.id))
        return apply_history_length(task, params)

    @told
    async def on_list_tasks(self, params, context):
        after = _listed_after(params, context)
        # Whoever knows a context may see its tasks; nobody may see those of all.
        if not params.context_id:
            raise of.UnsupportedOperationError("tasks are only listed by contextId")
        since = params.status_timestamp_after.ToNanoseconds() if params.HasField("status_timestamp_after") else 0
        wanted = lambda task: (
            (not params.status or task.status.state == params.status)
            and task.status.timestamp.ToNanoseconds() >= since
        )
        stamp = lambda task: (task.status.timestamp.ToNanoseconds(), task.id)
        live = {key: one.task for key, one in self._live.items() if one.task.context_id == params.context_id}
        found = [stamp(task) for task in live.values() if wanted(task)]
        memory = self._service.memory
        stored = [key for key in await memory.task_ids(params.context_id) if key not in live]
        for n in range(0, len(stored), LIST_BATCH):
            found += [stamp(task) for task in await memory.tasks(stored[n : n + LIST_BATCH]) if wanted(task)]
        found.sort(reverse=True)
        skip = sum(one >= (after.timestamp_ns or 0, after.task_id) for one in found) if after else 0
        size = params.page_size if params.HasField("page_size") else 50
        page, room = ListTasksResponse(total_size=len(found), page_size=size), MAX_PAGE_BYTES
        for _, key in found[skip : skip + size]:
            # One that is gone by now is left out.
            read = [live[key]] if key in live else await memory.tasks([key])
            room -= sum(task.ByteSize() for task in read)
            if room < 0 and page.tasks:
                break
            page.tasks.extend(apply_history_length(task, params) for task in read)
            skip += 1
        for task in page.tasks:
            tasks.without_tokens(task)
        if skip < len(found):
            page.next_page_token = encode_list_tasks_cursor(ListTasksCursor(*found[skip - 1]))
        return page

    @told
    async def on_cancel_task(self, params, context):
        task = await self._known(params.id)
        live = self._live.get(params.id)
        if live is not None:
            live.cancel()
            await live.ended.wait()
            task = live.task
        elif task.status.state in peers.TERMINAL:
            raise of.TaskNotCancelableError
        if task.status.state not in peers.TERMINAL:
            task = await self._cancel_stored(task)
        if task.status.state != TaskState.TASK_STATE_CANCELED:
            raise of.TaskNotCancelableError
        return task

    async def _cancel_stored(self, task):
        """Cancels a task that does not run here: takes away what waits, or asks the replica that runs it."""
        memory = self._service.memory
        until, asked = time.monotonic() + CANCEL_SECONDS, False
        while task.status.state not in peers.TERMINAL and time.monotonic() < until:
            if task.status.state in peers.INTERRUPTED:
                pending = await memory.waiting(task.id)
                # Only one of an answer and a cancellation takes what waits.
                taken = pending is not None and await memory.take(task.id, pending["token"]) is not None
                if taken or not memory.shared:
                    return await self._cancel_waiting(task, pending)
            # It runs elsewhere.
            if not asked and not await memory.ask_to_cancel(task.id):
                break
            asked = True
            await asyncio.sleep(CANCEL_LOOK_SECONDS / 4)
            found = await memory.task(task.id)
            if found is None:
                break
            task = found
        return task

    async def _cancel_waiting(self, task, pending):
        by_name = {peer.name: peer for peer in self._service.snapshot.peers}
        for item in (pending or {"items": ()})["items"]:
            if item["kind"] == "peer" and item["peer"] in by_name:
                await by_name[item["peer"]].cancel(item["taskId"])
        live = tasks.Live(task)
        live.conclude(TaskState.TASK_STATE_CANCELED)
        task = live.concluded()
        await self._service.memory.save_task(task)
        return task

    @told
    async def on_subscribe_to_task(self, params, context):
        task = await self._known(params.id)
        live = self._live.get(params.id)
        if live is not None:
            async for event in self._follow(live):
                yield event
        elif task.status.state in peers.INTERRUPTED:
            yield task
        else:
            raise of.UnsupportedOperationError("the task does not run in this process")

    # ---- what there is none of

    async def _no_push(self, params, context):
        raise of.PushNotificationNotSupportedError

    on_create_task_push_notification_config = _no_push
    on_get_task_push_notification_config = _no_push
    on_list_task_push_notification_configs = _no_push
    on_delete_task_push_notification_config = _no_push

    async def on_get_extended_agent_card(self, params, context):
        raise of.UnsupportedOperationError

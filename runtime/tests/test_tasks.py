"""Tasks where two things happen at once, and what a process keeps. The handler runs in the test's own process."""

import asyncio
import contextlib
import json
import logging
import pathlib
import tempfile
import types
import unittest
from unittest import mock

from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskState,
)
from a2a.utils import errors as of
from google.protobuf.json_format import MessageToDict
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

from convoke_agent import history, limits, logs, peers, tasks
from convoke_agent.a2a_handler import Handler
from convoke_agent.bodies import Body
from convoke_agent.errors import Failure
from convoke_agent.memory import Local
from convoke_agent.service import Service
from convoke_agent.settings import Memory
from tests.support import ScriptedModel, ToolServer

CONTEXT = types.SimpleNamespace(state={"method": "test", "body": Body(limits.Room(0), 0)})


class SlowlyShared(Local):
    """Memory that says it is shared, and takes a while to write."""

    shared = True
    saving = 0.2

    async def save_task(self, task):
        await asyncio.sleep(self.saving)
        await super().save_task(task)


def message(*parts, task_id=""):
    return SendMessageRequest(message=Message(role=Role.ROLE_USER, message_id="m", parts=parts, task_id=task_id))


def answer_to(task, decision="approve"):
    token = peers.data_of(task.status.message)[0]["approval"]["token"]
    return message(peers.data_part({"approval": {"token": token, "decision": decision}}), task_id=task.id)


class Races(unittest.IsolatedAsyncioTestCase):
    """`note` needs approval; what is asked `hang` hangs."""

    async def asyncSetUp(self):
        # A busy machine is slow; that is not to be told.
        asyncio.get_running_loop().slow_callback_duration = 60
        silence = logging.NullHandler()
        logs.LOGGER.addHandler(silence)
        self.addCleanup(logs.LOGGER.removeHandler, silence)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        note = {"tool": "note", "arguments": {"file": str(self.folder / "noted"), "text": "line"}}
        rules = [
            {"prompt": "then hang", "steps": [note, {"hang": True}]},
            {"steps": [note, {"text": "done: {results}"}]},
        ]
        model = ScriptedModel(rules)
        self.addCleanup(model.stop)
        tools = ToolServer()
        self.addCleanup(tools.stop)
        server = {"name": "t", "url": tools.url, "tools": ["note"], "requireApproval": ["note"]}
        (self.folder / "config.json").write_text(json.dumps({"mcpServers": [server]}))
        environment = {"MODEL_API_URL": model.url, "MODEL_NAME": "scripted"}
        environment["AGENT_CONFIG_FILE"] = str(self.folder / "config.json")
        self.service = Service(environment)
        await self.service.start()
        self.addAsyncCleanup(self.service.close)
        self.addAsyncCleanup(self.service.drain, 1)
        self.handler = Handler(self.service)
        async with asyncio.timeout(60):
            while self.service.state() is not None:
                await asyncio.sleep(0.05)

    async def waiting(self, text="write"):
        task = await self.handler.on_message_send(message(Part(text=text)), CONTEXT)
        self.assertEqual(task.status.state, TaskState.TASK_STATE_INPUT_REQUIRED)
        return task

    async def test_a_task_that_is_cancelled_before_its_first_step_ends(self):
        task = await self.waiting()
        async with asyncio.timeout(20):
            done, canceled = await asyncio.gather(
                self.handler.on_message_send(answer_to(task), CONTEXT),
                self.handler.on_cancel_task(CancelTaskRequest(id=task.id), CONTEXT),
            )
        states = {done.status.state, canceled.status.state}
        self.assertEqual(states, {TaskState.TASK_STATE_CANCELED})
        self.assertEqual(self.service.gate.inside, 0)
        again = await self.handler.on_get_task(GetTaskRequest(id=task.id), CONTEXT)
        self.assertEqual(again.status.state, TaskState.TASK_STATE_CANCELED)
        self.assertFalse((self.folder / "noted").exists())

    async def test_a_quick_answer_is_not_lost_by_the_end_of_the_work_before(self):
        self.service.memory = SlowlyShared(self.service.memory.settings, 600)
        stream = self.handler.on_message_send_stream(message(Part(text="then hang")), CONTEXT)
        async with contextlib.aclosing(stream) as events:
            async for event in events:
                if event.status.state == TaskState.TASK_STATE_INPUT_REQUIRED:
                    break
        token = peers.data_of(event.status.message)[0]["approval"]["token"]
        known = await self.service.memory.task(event.task_id)
        self.assertEqual(known.status.state, TaskState.TASK_STATE_INPUT_REQUIRED)
        self.assertEqual(peers.data_of(known.status.message)[0]["approval"]["token"], token)
        params = answer_to(known)
        params.configuration.return_immediately = True
        await self.handler.on_message_send(params, CONTEXT)
        async with asyncio.timeout(20):
            while not (self.folder / "noted").exists():
                await asyncio.sleep(0.02)
        await asyncio.sleep(SlowlyShared.saving * 2)
        canceled = await self.handler.on_cancel_task(CancelTaskRequest(id=known.id), CONTEXT)
        self.assertEqual(canceled.status.state, TaskState.TASK_STATE_CANCELED)

    async def test_an_end_that_is_decided_is_stored_when_the_agent_stops(self):
        self.service.memory = SlowlyShared(self.service.memory.settings, 600)
        decided, conclude = asyncio.Event(), tasks.Live.conclude
        told = lambda *args: (conclude(*args), decided.set())
        with mock.patch.object(tasks.Live, "conclude", told):
            sent = asyncio.create_task(self.handler.on_message_send(message(Part(text="write")), CONTEXT))
            await asyncio.wait_for(decided.wait(), 60)
            await self.service.drain(0)
        task = await asyncio.wait_for(sent, 60)
        kept = await self.service.memory.task(task.id)
        states = (task.status.state, kept.status.state)
        self.assertEqual(states, (TaskState.TASK_STATE_INPUT_REQUIRED,) * 2)

    async def test_what_another_replica_took_is_not_cancelled_here(self):
        """Between the answer and the first word of who took it, the task still looks as if it waits."""
        memory = self.service.memory = SlowlyShared(self.service.memory.settings, 600)
        task = await self.waiting()
        asked = []

        async def elsewhere(task_id):
            asked.append(task_id)
            stored = await memory.task(task_id)
            stored.status.state = TaskState.TASK_STATE_COMPLETED
            await memory.save_task(stored)
            return True

        memory.ask_to_cancel = elsewhere
        await memory.take(task.id, (await memory.waiting(task.id))["token"])
        with self.assertRaises(of.TaskNotCancelableError):
            await self.handler.on_cancel_task(CancelTaskRequest(id=task.id), CONTEXT)
        self.assertEqual(asked, [task.id])
        self.assertEqual((await memory.task(task.id)).status.state, TaskState.TASK_STATE_COMPLETED)

    async def test_what_was_approved_is_what_runs(self):
        connection = self.service.snapshot.servers[0].connection
        task = await self.waiting()
        tool = connection.listing["note"]
        connection.listing = connection.listing | {"note": tool.model_copy(update={"description": "Deletes all."})}
        done = await self.handler.on_message_send(answer_to(task), CONTEXT)
        self.assertIn("the tool has changed since the approval was asked for", done.artifacts[0].parts[0].text)
        self.assertFalse((self.folder / "noted").exists())
        task = await self.waiting()
        done = await self.handler.on_message_send(answer_to(task), CONTEXT)
        self.assertEqual(done.artifacts[0].parts[0].text, "done: noted line")

    async def test_a_task_that_goes_on_says_so_from_the_start(self):
        memory = self.service.memory = SlowlyShared(self.service.memory.settings, 600)
        task = await self.waiting("then hang")
        saved = []
        keep = memory.save_task

        async def save_task(task):
            saved.append((task.status.state, task.status.timestamp.ToNanoseconds()))
            await keep(task)

        memory.save_task = save_task
        params = answer_to(task)
        params.configuration.return_immediately = True
        await self.handler.on_message_send(params, CONTEXT)
        async with asyncio.timeout(20):
            while not saved:
                await asyncio.sleep(0.02)
        self.assertEqual(saved[0][0], TaskState.TASK_STATE_WORKING)
        self.assertGreater(saved[0][1], task.status.timestamp.ToNanoseconds())
        await self.handler.on_cancel_task(CancelTaskRequest(id=task.id), CONTEXT)


def ended(name, size, context="c"):
    """A task that ended, of about this many bytes."""
    task = Task(id=name, context_id=context)
    task.status.state = TaskState.TASK_STATE_COMPLETED
    task.artifacts.add(artifact_id="a").parts.append(Part(text="x" * size))
    return task


def turn(size):
    return [ModelRequest(parts=[UserPromptPart("q" * size)]), ModelResponse(parts=[TextPart("a")])]


def pending(size=0):
    return {"items": [], "messages": turn(size), "results": {}, "path": [], "usage": (0, 0, 0), "token": "t"}


class Kept(unittest.IsolatedAsyncioTestCase):
    """What one process keeps, with less room than usual."""

    def setUp(self):
        self.enterContext(mock.patch.object(limits, "MAX_MEMORY_BYTES", 100_000))
        self.enterContext(mock.patch.object(limits, "MAX_TASKS", 20))
        self.memory = Local(Memory(), 600)

    async def there(self, *names):
        return [name for name in names if await self.memory.task(name) is not None]

    async def test_bytes_of_tasks_are_bounded_and_the_oldest_goes(self):
        for n in range(10):
            await self.memory.save_task(ended(f"t{n}", 20_000))
        self.assertEqual(await self.there(*(f"t{n}" for n in range(10))), ["t6", "t7", "t8", "t9"])

    async def test_tasks_and_conversations_share_the_room(self):
        await self.memory.save_task(ended("old", 30_000))
        await self.memory.append("s1", turn(30_000))
        await self.memory.save_task(ended("new", 30_000))
        await self.memory.messages("s1")
        await self.memory.append("s2", turn(30_000))
        self.assertEqual((await self.there("old", "new"), await self.memory.sessions()), (["new"], ["s1", "s2"]))
        await self.memory.append("s3", turn(30_000))
        self.assertEqual((await self.there("new"), await self.memory.sessions()), ([], ["s1", "s2", "s3"]))

    async def test_what_waits_outlives_what_ended(self):
        await self.memory.save_task(ended("waits", 10))
        await self.memory.wait_for("waits", "t", pending(10_000))
        for n in range(30):
            await self.memory.save_task(ended(f"t{n}", 10))
        for n in range(30):
            await self.memory.save_task(ended(f"u{n}", 30_000))
            await self.memory.append(f"s{n}", turn(30_000))
        self.assertEqual(await self.there("waits"), ["waits"])
        self.assertIsNotNone(await self.memory.take("waits", "t"))
        await self.memory.save_task(ended("last", 95_000))
        self.assertEqual(await self.there("waits", "last"), ["last"])

    async def test_of_what_waits_the_oldest_goes_with_its_task(self):
        for n in range(5):
            await self.memory.save_task(ended(f"t{n}", 10))
            await self.memory.wait_for(f"t{n}", "t", pending(25_000))
        self.assertEqual(await self.there(*(f"t{n}" for n in range(5))), ["t2", "t3", "t4"])
        self.assertIsNone(await self.memory.waiting("t1"))
        self.assertIsNotNone(await self.memory.waiting("t2"))

    async def test_what_is_too_large_does_not_wait(self):
        with mock.patch.object(limits, "MAX_PENDING_BYTES", 50_000), self.assertRaises(Failure) as raised:
            await self.memory.wait_for("t", "t", pending(60_000))
        self.assertEqual(raised.exception.reason, "too_much_to_keep")

    async def test_a_conversation_forgets_its_oldest_turns(self):
        with mock.patch.object(limits, "MAX_SESSION_BYTES", 50_000):
            for _ in range(5):
                await self.memory.append("s", turn(20_000))
        self.assertEqual(len(await self.memory.messages("s")), 4)

    async def test_what_is_let_go_is_not_counted(self):
        for _ in range(3):
            await self.memory.save_task(ended("t", 40_000))
            await self.memory.append("s", turn(1_000))
            await self.memory.wait_for("t", "t", pending(1_000))
            await self.memory.take("t", "t")
            await self.memory.forget("s")
        for kept, size in ((self.memory._tasks, 42_000), (self.memory._sessions, 0), (self.memory._pending, 0)):
            self.assertLessEqual(kept.bytes, size)

    async def test_a_listing_is_paged_by_bytes_too(self):
        handler = Handler(types.SimpleNamespace(memory=self.memory))
        for n in range(4):
            await self.memory.save_task(ended(f"t{n}", 20_000))
        await self.memory.save_task(ended("other", 10, "another"))
        found, token = [], ""
        with mock.patch("convoke_agent.a2a_handler.MAX_PAGE_BYTES", 30_000):
            for _ in range(4):
                page = await handler.on_list_tasks(ListTasksRequest(context_id="c", page_token=token), CONTEXT)
                found += [task.id for task in page.tasks]
                token = page.next_page_token
                self.assertEqual((len(page.tasks), page.total_size), (1, 4))
        self.assertEqual((sorted(found), token), (["t0", "t1", "t2", "t3"], ""))


class Histories(unittest.TestCase):
    def test_a_large_message_is_kept_as_its_text_and_cut(self):
        values = peers.data_part({"values": [[]] * 50_000})
        given = Message(role=Role.ROLE_USER, message_id="m", parts=[Part(text="é" * 200_000), values])
        kept = tasks.new(given).history[0]
        self.assertEqual([bool(part.text) for part in kept.parts], [True])
        self.assertLess(len(kept.parts[0].text), limits.MAX_KEPT_MESSAGE_BYTES + 100)
        self.assertIn("are left out", kept.parts[0].text)
        small = Message(role=Role.ROLE_USER, message_id="m", parts=[Part(text="x"), peers.data_part({"a": 1})])
        self.assertEqual(
            MessageToDict(tasks.new(small).history[0])["parts"], [{"text": "x"}, {"data": {"a": 1}}]
        )

    def test_sizes_are_those_in_memory(self):
        self.assertGreater(history.size_of(turn(100_000)), 100_000)
        # One character outside makes all of them take four bytes.
        wide = [ModelRequest(parts=[UserPromptPart("q" * 100_000 + "\U0001f600")])]
        self.assertGreater(history.size_of(wide), 400_000)
        self.assertGreater(history.size_of({"arguments": [[] for _ in range(1000)]}), 50_000)


if __name__ == "__main__":
    unittest.main()

"""Conversations: in one process, and in Redis for several."""

import asyncio
import concurrent.futures
import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

from a2a.types.a2a_pb2 import Task
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart

from convoke_agent import history, limits, logs, shared_memory
from convoke_agent.errors import Failure
from convoke_agent.service import Service
from convoke_agent.settings import Memory
from convoke_agent.shared_memory import Shared
from tests.support import (
    SECONDS,
    Agent,
    ScriptedModel,
    ToolServer,
    approval_of,
    ask,
    free_port,
    opens,
    text_of,
    wait_until,
)


def seen(model, text):
    """The contents of the messages by which the model was asked this, but for the system's."""
    messages = model.asked(text)[-1]["body"]["messages"]
    return [one["content"] for one in messages if one["role"] not in ("system", "developer")]


class Cutting(unittest.TestCase):
    def turn(self, n, tools=0):
        found = [ModelRequest(parts=[UserPromptPart(f"q{n}")])]
        for one in range(tools):
            found.append(ModelResponse(parts=[ToolCallPart("t", {}, f"c{one}")]))
            found.append(ModelRequest(parts=[ToolReturnPart("t", "r", f"c{one}")]))
        return [*found, ModelResponse(parts=[TextPart(f"a{n}")])]

    def shape(self, messages):
        return [part.part_kind for message in messages for part in message.parts]

    def test_whole_turns_are_kept_as_long_as_they_fit(self):
        messages = self.turn(1) + self.turn(2, 1) + self.turn(3)
        self.assertEqual(history.newest(messages, 100), messages)
        self.assertEqual(history.newest(messages, 6), messages[2:])
        self.assertEqual(history.newest(messages, 7), messages[2:])
        self.assertEqual(history.newest(messages, 1), [])

    def test_a_turn_that_is_too_long_goes_without_its_tools(self):
        for tools in range(1, 5):
            kept = history.newest(self.turn(1, tools), 2)
            self.assertEqual(self.shape(kept), ["user-prompt", "text"])

    def test_what_is_written_is_read(self):
        messages = self.turn(1, 2)
        again = history.loaded(json.loads(json.dumps(history.dumped(messages))))
        self.assertEqual(history.dumped(again), history.dumped(messages))


class Local(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = ScriptedModel([{"prompt": "slow", "steps": [{"delay": 0.4, "text": "slow: {prompt}"}]}])
        cls.addClassCleanup(cls.model.stop)
        memory = {"MEMORY_CONTEXT_LIMIT": "4", "MEMORY_MAX_SESSIONS": "3", "MEMORY_MAX_SESSION_EVENTS": "6"}
        memory["AGENT_DEBUG_MEMORY_ENDPOINTS"] = "true"
        cls.agent = Agent("critic", memory | {"MODEL_API_URL": cls.model.url})
        cls.addClassCleanup(cls.agent.stop)

    def test_a_session_goes_on_over_both_interfaces(self):
        session = {"X-Session-Id": "both"}
        self.agent.said("one", session)
        self.agent.send("two", message={"contextId": "both"})
        self.agent.said("three of both", session)
        self.assertEqual(seen(self.model, "three of both"), ["one", "echo: one", "two", "echo: two", "three of both"])
        self.agent.said("four of both", session)
        self.assertEqual(seen(self.model, "four of both")[0], "two")

    def test_without_a_session_nothing_is_kept(self):
        self.agent.said("alone one")
        self.agent.said("alone two")
        self.assertEqual(seen(self.model, "alone two"), ["alone two"])

    def test_requests_of_a_session_run_one_after_the_other_and_others_beside(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            same = [pool.submit(self.agent.said, f"slow {n}", {"X-Session-Id": "queue"}) for n in range(3)]
            self.assertEqual(sorted(one.result() for one in same), [f"slow: slow {n}" for n in range(3)])
        lengths = sorted(len(seen(self.model, f"slow {n}")) for n in range(3))
        self.assertEqual(lengths, [1, 3, 5])

    def test_they_can_be_looked_at_and_forgotten(self):
        self.agent.said("look at me", {"X-Session-Id": "looked/at"})
        self.assertIn("looked/at", ask(self.agent.url, "/memory/sessions")[1]["sessions"])
        status, body = ask(self.agent.url, "/memory/sessions/looked/at")
        self.assertEqual((status, body["messages"][0]["parts"][-1]["content"]), (200, "look at me"))
        self.assertEqual(ask(self.agent.url, "/memory/sessions/looked/at", method="DELETE")[0], 200)
        self.assertEqual(ask(self.agent.url, "/memory/sessions/looked/at")[0], 404)

    def test_the_oldest_gives_way(self):
        for n in range(5):
            self.agent.said("hello", {"X-Session-Id": f"many-{n}"})
        self.assertEqual(ask(self.agent.url, "/memory/sessions")[1]["sessions"], ["many-2", "many-3", "many-4"])

    def test_a_question_that_fails_leaves_no_trace(self):
        self.model.model.rules.insert(0, {"prompt": "^break", "steps": [{"status": 401}]})
        session = {"X-Session-Id": "broken"}
        self.agent.said("before", session)
        self.assertEqual(self.agent.chat("break", session)[0], 502)
        self.agent.said("after the break", session)
        self.assertEqual(seen(self.model, "after the break"), ["before", "echo: before", "after the break"])


class NotReachedYet(unittest.IsolatedAsyncioTestCase):
    """A Redis that has not said anything since the agent began."""

    async def test_the_agent_is_not_ready_before_redis_answered_once(self):
        answers = asyncio.Event()
        environment = {"MODEL_API_URL": "http://127.0.0.1:9", "MODEL_NAME": "m"}
        environment |= {"MEMORY_TYPE": "redis", "MEMORY_REDIS_URL": "redis://127.0.0.1:9"}
        service = Service(environment)
        with mock.patch.object(Shared, "ping", lambda _: answers.wait()):
            await service.start()
            self.addAsyncCleanup(service.close)
            for _ in range(3):
                self.assertEqual(service.ready_body()["status"], "not ready")
                self.assertIn("Redis", service.state())
                await asyncio.sleep(0.01)
            answers.set()
            async with asyncio.timeout(SECONDS):
                while service.state() is not None:
                    await asyncio.sleep(0.01)


@unittest.skipUnless(shutil.which("redis-server"), "there is no redis-server")
class Shrinking(unittest.IsolatedAsyncioTestCase):
    """A Redis that lacks some commands, as older ones do."""

    def memory(self, *lacks):
        port = free_port()
        folder = self.enterContext(tempfile.TemporaryDirectory())
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        for name in lacks:
            command += ["--rename-command", name, ""]
        redis = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(redis.wait)
        self.addCleanup(redis.kill)
        wait_until(lambda: opens(port), "Redis serves")
        memory = Shared(Memory(), 600, f"redis://127.0.0.1:{port}", "critic")
        self.addAsyncCleanup(memory.close)
        self.enterContext(mock.patch.object(limits, "MAX_TASKS", 2))
        return memory

    async def save(self, memory):
        """Saves four tasks, of which the first waits. Gives those that are kept."""
        await memory.wait_for("t0", "token", {"messages": []})
        for n in range(4):
            await memory.save_task(Task(id=f"t{n}", context_id=f"c{n}"))
        return [f"t{n}" for n in range(4) if await memory.task(f"t{n}") is not None]

    async def test_the_oldest_tasks_go_without_newer_commands(self):
        self.assertEqual(await self.save(self.memory("ZMSCORE")), ["t0", "t3"])

    async def test_what_is_saved_is_saved_where_the_oldest_cannot_go(self):
        with self.assertLogs(logs.LOGGER, "WARNING") as told:
            self.assertEqual(await self.save(self.memory("ZSCORE", "ZMSCORE")), ["t0", "t1", "t2", "t3"])
        self.assertIn("the oldest entries were not dropped", told.output[0])


    async def test_more_questions_than_connections_wait_for_one(self):
        with mock.patch.object(shared_memory, "MOST_CONNECTIONS", 3):
            memory = self.memory()
        await asyncio.gather(*(memory.save_task(Task(id=f"t{n}", context_id="c")) for n in range(100)))
        self.assertEqual(len(await memory.task_ids("c")), 2)

    async def test_a_redis_that_takes_no_writes_is_not_there(self):
        memory = self.memory()
        await memory.ping()
        await memory._redis.config_set("maxmemory", 1)
        with self.assertRaises(Failure):
            await memory.ping()
        await memory._redis.config_set("maxmemory", 0)
        await memory.ping()

    async def test_what_cannot_be_read_is_left_out(self):
        memory = self.memory()
        for value in ("{", "[]", '{"messages": [{"kind": "new"}]}', "\udc80".encode("utf-8", "surrogatepass")):
            await memory._redis.set(memory._key("session", "s"), value)
            await memory._redis.set(memory._key("task", "t"), value)
            await memory._redis.hset(memory._key("pending", "t"), mapping={"token": "x", "value": value})
            with self.assertLogs(logs.LOGGER, "WARNING") as told:
                self.assertEqual(await memory.messages("s"), [])
                self.assertIsNone(await memory.task("t"))
                self.assertEqual(await memory.tasks(["t"]), [])
                self.assertIsNone(await memory.waiting("t"))
            self.assertIn("cannot be read", told.output[0])
        turn = [ModelRequest(parts=[UserPromptPart("q")]), ModelResponse(parts=[TextPart("a")])]
        await memory.append("s", turn)
        self.assertEqual(len(await memory.messages("s")), 2)

    async def test_who_is_cancelled_while_asking_for_a_session_does_not_hold_it(self):
        memory = self.memory()
        taken, set_ = asyncio.Event(), memory._redis.set

        async def slow(*args, **kwargs):
            await set_(*args, **kwargs)
            taken.set()
            await asyncio.sleep(SECONDS)

        async def hold():
            async with memory.session("s", 5):
                pass

        with mock.patch.object(memory._redis, "set", slow):
            asking = asyncio.create_task(hold())
            await taken.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        self.assertEqual(await memory._redis.exists(memory._key("lock", "s")), 0)


@unittest.skipUnless(shutil.which("redis-server"), "there is no redis-server")
class Redis(unittest.TestCase):
    """Two replicas of one agent."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.port = free_port()
        cls.redis = None
        cls.start_redis()
        cls.addClassCleanup(lambda: cls.stop_redis())
        note = {"tool": "note", "arguments": {"file": "{prompt}", "text": "line"}}
        cls.model = ScriptedModel(
            [
                {"prompt": "slow", "steps": [{"delay": 0.3, "text": "slow: {prompt}"}]},
                {"prompt": "then hang", "steps": [note, {"hang": True}]},
                {"prompt": "hang", "steps": [{"hang": True}]},
                {"prompt": "^/", "steps": [note, {"text": "done: {results}"}]},
            ]
        )
        cls.addClassCleanup(cls.model.stop)
        cls.tools = ToolServer()
        cls.addClassCleanup(cls.tools.stop)
        config = {
            "mcpServers": [{"name": "t", "url": cls.tools.url, "requireApproval": ["note"]}],
            "memory": {"type": "Redis", "contextLimit": 20},
        }
        (cls.folder / "config.json").write_text(json.dumps(config))
        environment = {"MODEL_API_URL": cls.model.url, "MEMORY_REDIS_URL": f"redis://127.0.0.1:{cls.port}/0"}
        environment["AGENT_CONFIG_FILE"] = f"{cls.folder}/config.json"
        cls.one, cls.two = (Agent("critic", environment, wait=False) for _ in range(2))
        for agent in (cls.one, cls.two):
            cls.addClassCleanup(agent.stop)
        for agent in (cls.one, cls.two):
            agent.wait_ready()

    @classmethod
    def start_redis(cls):
        command = [
            "redis-server",
            "--port",
            str(cls.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(cls.folder),
        ]
        cls.redis = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: opens(cls.port), "Redis serves")

    @classmethod
    def stop_redis(cls):
        cls.redis.kill()
        cls.redis.wait()

    def test_a_session_goes_on_at_another_replica(self):
        self.one.said("first", {"X-Session-Id": "shared"})
        self.two.said("second of shared", {"X-Session-Id": "shared"})
        self.assertEqual(seen(self.model, "second of shared"), ["first", "echo: first", "second of shared"])

    def test_replicas_do_not_interleave(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            agents = (self.one, self.two, self.one, self.two)
            asked = [pool.submit(agent.said, f"slow {n}", {"X-Session-Id": "queue"}) for n, agent in enumerate(agents)]
            self.assertEqual([one.result() for one in asked], [f"slow: slow {n}" for n in range(4)])
        self.assertEqual(sorted(len(seen(self.model, f"slow {n}")) for n in range(4)), [1, 3, 5, 7])

    def test_any_replica_goes_on_and_one_answer_counts(self):
        file = self.folder / "noted"
        task = self.one.send(str(file))
        self.assertEqual(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED")
        self.assertEqual(self.two.rpc("GetTask", {"id": task["id"]})["result"]["id"], task["id"])
        data = {"approval": {"token": approval_of(task)["token"], "decision": "approve"}}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            send = lambda agent: agent.send(data=data, message={"taskId": task["id"]})
            replies = list(pool.map(send, [self.two, self.one] * 4))
        done = [one for one in replies if "error" not in one]
        self.assertEqual(len(done), 1)
        self.assertEqual((text_of(done[0]), file.read_text()), ("done: noted line", "line\n"))

    def test_any_replica_lists_the_tasks_of_a_context(self):
        sent = [self.one.send("hello", message={"contextId": "listed"})["id"] for _ in range(2)]
        self.one.send("hello", message={"contextId": "another"})
        listed = self.two.rpc("ListTasks", {"contextId": "listed"})["result"]
        self.assertEqual([one["id"] for one in listed["tasks"]], sent[::-1])
        self.assertEqual(self.two.rpc("ListTasks", {"contextId": "unknown"})["result"].get("tasks", []), [])

    def test_a_task_that_goes_on_is_cancelled_by_any_replica(self):
        task = self.one.send(f"{self.folder}/then hang")
        self.assertEqual(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", task)
        data = {"approval": {"token": approval_of(task)["token"], "decision": "approve"}}
        self.one.send(data=data, message={"taskId": task["id"]}, configuration={"returnImmediately": True})
        get = lambda: self.two.rpc("GetTask", {"id": task["id"]})["result"]["status"]["state"]
        wait_until(lambda: get() == "TASK_STATE_WORKING", "the other replica sees that it works", 10)
        state = self.two.rpc("CancelTask", {"id": task["id"]})["result"]["status"]["state"]
        self.assertEqual((state, get()), ("TASK_STATE_CANCELED",) * 2)

    def test_any_replica_cancels(self):
        task = self.one.send("hang", configuration={"returnImmediately": True})
        wait_until(lambda: self.model.model.hanging, "the model is asked")
        state = self.two.rpc("CancelTask", {"id": task["id"]})["result"]["status"]["state"]
        self.assertEqual(state, "TASK_STATE_CANCELED")
        wait_until(lambda: not self.model.model.hanging, "the model call is given up")

    def test_without_redis_questions_fail_and_the_agent_stays(self):
        self.stop_redis()
        try:
            status, body = self.one.chat("hello", {"X-Session-Id": "away"})
            self.assertEqual((status, body["error"]["code"]), (503, "memory_unavailable"))
            failed = self.one.rpc("GetTask", {"id": "x"})["error"]
            self.assertEqual(failed["data"][0]["metadata"]["reason"], "memory_unavailable")
            wait_until(lambda: self.one.state()[0] == 503, "it is not ready")
            self.assertIn("memory", self.one.state()[1]["reason"])
            self.assertEqual(ask(self.one.url, "/health")[0], 200)
        finally:
            self.start_redis()
        wait_until(lambda: self.one.state()[0] == 200, "it is ready again")
        self.assertEqual(self.one.said("back", {"X-Session-Id": "away"}), "echo: back")


if __name__ == "__main__":
    unittest.main()

"""A2A's methods, in both versions, as JSON and by the protocol's own client."""

import asyncio
import http.client
import json
import tempfile
import time
import unittest

import httpx
from a2a.client.client import ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest, TaskState
from google.protobuf.json_format import MessageToDict

from tests.support import Agent, ScriptedModel, ToolServer, ask, ask_raw, free_port, text_of, wait_until


def events_of(content):
    """The values of a stream of server-sent events."""
    blocks = content.decode().replace("\r\n", "\n").split("\n\n")
    return [json.loads(line[6:]) for block in blocks for line in block.split("\n") if line.startswith("data: ")]


class Methods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = ScriptedModel(
            [
                {"prompt": "hang", "steps": [{"hang": True}]},
                {"prompt": "slow", "steps": [{"delay": 1, "text": "slow done"}]},
            ]
        )
        cls.addClassCleanup(cls.model.stop)
        cls.agent = Agent("critic", {"MODEL_API_URL": cls.model.url})
        cls.addClassCleanup(cls.agent.stop)

    def message(self, text, **more):
        return {"message": {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": text}]}} | more

    def old_message(self, text):
        part = {"kind": "text", "text": text}
        return {"message": {"kind": "message", "role": "user", "messageId": "m", "parts": [part]}}

    def test_a_message_of_1_0(self):
        task = self.agent.send("hello")
        self.assertEqual(task["status"]["state"], "TASK_STATE_COMPLETED")
        self.assertEqual(text_of(task), "echo: hello")
        self.assertEqual([one["role"] for one in task["history"]], ["ROLE_USER", "ROLE_AGENT"])
        again = self.agent.rpc("GetTask", {"id": task["id"]})["result"]
        self.assertEqual(again, task)
        short = self.agent.rpc("GetTask", {"id": task["id"], "historyLength": 1})["result"]
        self.assertEqual(len(short["history"]), 1)

    def test_a_message_of_0_3(self):
        task = self.agent.rpc("message/send", self.old_message("hello"))["result"]
        self.assertEqual((task["kind"], task["status"]["state"]), ("task", "completed"))
        self.assertEqual(task["artifacts"][0]["parts"], [{"kind": "text", "text": "echo: hello"}])
        self.assertEqual(self.agent.rpc("tasks/get", {"id": task["id"]})["result"]["id"], task["id"])

    def test_a_client_that_leaves_out_the_version_is_understood(self):
        body = {"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": self.message("hello")}
        answer = ask(self.agent.url, "/", body)[1]
        self.assertEqual((answer["id"], text_of(answer["result"]["task"])), (7, "echo: hello"))

    def test_the_version_may_be_in_the_query(self):
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": self.message("hello")}
        asked = lambda version, **more: ask(self.agent.url, "/?A2A-Version=" + version, body, **more)[1]
        for version in ("0.3", "", "2.0", "%C3%A9"):
            self.assertEqual(asked(version)["error"]["code"], -32009, version)
        self.assertIn("result", asked("1.0"))
        self.assertIn("result", asked("2.0", headers={"A2A-Version": "1.0"}))

    def test_a_stream_of_1_0(self):
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": self.message("one two")}
        _, content, headers = ask_raw(self.agent.url, "/", body, headers={"A2A-Version": "1.0"})
        self.assertIn("text/event-stream", headers["Content-Type"])
        events = [one["result"] for one in events_of(content)]
        self.assertEqual(events[0]["task"]["status"]["state"], "TASK_STATE_SUBMITTED")
        states = [one["statusUpdate"]["status"]["state"] for one in events if "statusUpdate" in one]
        self.assertEqual(states, ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"])
        updates = [one["artifactUpdate"] for one in events if "artifactUpdate" in one]
        pieces = [one["artifact"]["parts"][0].get("text", "") for one in updates]
        self.assertEqual("".join(pieces), "echo: one two")
        self.assertEqual([one.get("append", False) for one in updates], [False] + [True] * (len(updates) - 1))
        self.assertEqual(text_of(self.agent.rpc("GetTask", {"id": events[0]["task"]["id"]})["result"]), "echo: one two")

    def test_a_stream_of_0_3(self):
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": self.old_message("one two")}
        events = [one["result"] for one in events_of(ask_raw(self.agent.url, "/", body)[1])]
        self.assertEqual((events[0]["kind"], events[-1]["kind"], events[-1]["final"]), ("task", "status-update", True))
        pieces = [one["artifact"]["parts"][0]["text"] for one in events if one["kind"] == "artifact-update"]
        self.assertEqual("".join(pieces), "echo: one two")

    def started(self, text):
        """A task that runs and for which nobody waits."""
        return self.agent.send(text, configuration={"returnImmediately": True})

    def test_a_task_for_which_nobody_waits(self):
        task = self.started("slow one")
        self.assertIn(task["status"]["state"], ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"))
        get = lambda: self.agent.rpc("GetTask", {"id": task["id"]})["result"]
        done = wait_until(lambda: get()["status"]["state"] == "TASK_STATE_COMPLETED" and get(), "the task ends")
        self.assertEqual(text_of(done), "slow done")

    def test_a_task_can_be_followed(self):
        task = self.started("slow follow")
        body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task["id"]}}
        events = [one["result"] for one in events_of(ask_raw(self.agent.url, "/", body)[1])]
        self.assertEqual(events[0]["task"]["id"], task["id"])
        self.assertEqual(events[-1]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED")
        self.assertEqual(ask(self.agent.url, "/", body)[1]["error"]["code"], -32004)

    def test_cancel_gives_up_the_model_call(self):
        for method in ("CancelTask", "tasks/cancel"):
            with self.subTest(method):
                before = self.model.model.abandoned
                task = self.started("hang here")
                wait_until(lambda: self.model.model.hanging, "the model is asked")
                began = time.monotonic()
                state = self.agent.rpc(method, {"id": task["id"]})["result"]["status"]["state"]
                self.assertIn(state.lower(), ("task_state_canceled", "canceled"))
                wait_until(lambda: self.model.model.abandoned == before + 1, "the model call is given up", 3)
                self.assertLess(time.monotonic() - began, 3)
                self.assertEqual(self.agent.rpc(method, {"id": task["id"]})["error"]["code"], -32002)

    def test_tasks_that_are_not_there(self):
        for method in ("GetTask", "CancelTask", "SubscribeToTask", "tasks/get", "tasks/cancel"):
            self.assertEqual(self.agent.rpc(method, {"id": "no-such-task"})["error"]["code"], -32001, method)
        self.assertEqual(self.agent.send("x", message={"taskId": "no-such-task"})["error"]["code"], -32001)

    def test_a_task_that_ended_takes_no_message(self):
        task = self.agent.send("hello")
        self.assertEqual(self.agent.send("more", message={"taskId": task["id"]})["error"]["code"], -32004)

    def test_tasks_are_listed_by_context_only(self):
        task = self.agent.send("hello", message={"contextId": "listed"})
        listed = self.agent.rpc("ListTasks", {"contextId": "listed"})["result"]
        self.assertEqual([one["id"] for one in listed["tasks"]], [task["id"]])
        self.assertEqual(self.agent.rpc("ListTasks", {})["error"]["code"], -32004)

    def test_a_listing_is_filtered_and_paged_from_where_the_last_page_ended(self):
        for _ in range(3):
            self.agent.send("hello", message={"contextId": "paged"})
        listed = lambda **more: self.agent.rpc("ListTasks", {"contextId": "paged"} | more)["result"]
        first = listed(pageSize=2)
        # One that comes between two pages shows none twice.
        self.agent.send("hello", message={"contextId": "paged"})
        second = listed(pageSize=2, pageToken=first["nextPageToken"])
        found = [task["id"] for page in (first, second) for task in page["tasks"]]
        self.assertEqual((len(found), len(set(found)), second.get("nextPageToken", "")), (3, 3, ""))
        self.assertEqual(listed(statusTimestampAfter="2999-01-01T00:00:00Z").get("tasks", []), [])
        self.assertEqual(len(listed(status="TASK_STATE_COMPLETED")["tasks"]), 4)
        self.assertEqual(listed(status="TASK_STATE_FAILED").get("tasks", []), [])

    def test_what_is_not_valid_is_refused(self):
        task = self.agent.send("hello")
        message = {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": "x"}]}
        for method, params in (
            ("ListTasks", {"pageSize": 0}),
            ("ListTasks", {"pageSize": -1}),
            ("ListTasks", {"pageSize": 101}),
            ("ListTasks", {"pageToken": "7"}),
            ("ListTasks", {"pageToken": "é" * 2000}),
            ("ListTasks", {"status": "DONE"}),
            ("ListTasks", {"historyLength": -1}),
            ("GetTask", {"id": task["id"], "historyLength": -1}),
            ("GetTask", {}),
            ("SendMessage", {}),
            ("SendMessage", {"message": message | {"role": "ROLE_ANY"}}),
            ("SendMessage", {"message": {key: message[key] for key in ("role", "parts")}}),
            ("SendMessage", {"message": message, "configuration": {"historyLength": -1}}),
        ):
            with self.subTest(method, params=str(params)[:80]):
                error = self.agent.rpc(method, params)["error"]
                self.assertEqual(error["code"], -32602)
                self.assertEqual(error["data"][0]["metadata"]["reason"], "bad_request")

    def test_what_there_is_none_of(self):
        self.assertEqual(self.agent.rpc("GetExtendedAgentCard", {})["error"]["code"], -32004)
        config = {"taskId": "t", "url": "http://x"}
        self.assertEqual(self.agent.rpc("CreateTaskPushNotificationConfig", config)["error"]["code"], -32003)
        file = {"message": {"role": "ROLE_USER", "messageId": "m", "parts": [{"url": "http://x/f"}]}}
        self.assertEqual(self.agent.rpc("SendMessage", file)["error"]["code"], -32005)
        long = self.agent.send("x", message={"contextId": "c" * 1000})
        self.assertEqual(long["error"]["data"][0]["metadata"]["reason"], "bad_request")

    def test_a_client_that_goes_does_not_end_its_task(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.agent.port, timeout=0.3)
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": self.message("slow leave")}
        body["params"]["message"]["contextId"] = "left"
        connection.request("POST", "/", json.dumps(body), {"Content-Type": "application/json"})
        with self.assertRaises(OSError):
            connection.getresponse()
        connection.close()
        tasks = lambda: self.agent.rpc("ListTasks", {"contextId": "left"})["result"]["tasks"]
        wait_until(lambda: tasks() and tasks()[0]["status"]["state"] == "TASK_STATE_COMPLETED", "the task ends")

    def test_the_protocols_own_client(self):
        async def talk(path, streaming):
            async with httpx.AsyncClient(trust_env=False, timeout=20) as http_client:
                card = parse_agent_card((await http_client.get(self.agent.url + path)).json())
                client = ClientFactory(ClientConfig(httpx_client=http_client, streaming=streaming)).create(card)
                message = Message(role=Role.ROLE_USER, message_id="m", parts=[Part(text="hello you")])
                return [event async for event in client.send_message(SendMessageRequest(message=message))]

        for path in ("/.well-known/agent-card.json", "/.well-known/agent.json"):
            with self.subTest(path):
                task = asyncio.run(talk(path, False))[0].task
                self.assertEqual(task.artifacts[0].parts[0].text, "echo: hello you")
                events = asyncio.run(talk(path, True))
                self.assertEqual(events[-1].status_update.status.state, TaskState.TASK_STATE_COMPLETED)
                text = "".join(
                    e.artifact_update.artifact.parts[0].text for e in events if e.HasField("artifact_update")
                )
                self.assertEqual(text, "echo: hello you")


class Calls(unittest.TestCase):
    """What followers are told of while an agent works. `critic` has tools and asks `writer`, which has one as well."""

    @classmethod
    def setUpClass(cls):
        call = lambda name, **arguments: {"tool": name, "arguments": arguments}
        rules = [
            {"system": "writer", "steps": [call("note", file="/dev/null", text="x"), {"text": "written"}]},
            {"prompt": "^breaks", "steps": [call("fails", text="secret-argument"), {"text": "it broke"}]},
            {
                "prompt": "^both",
                "steps": [
                    call("echo", text="secret-argument") | {"text": "I look."},
                    call("delegate_to_writer", message="secret-argument"),
                    {"text": "all done"},
                ],
            },
        ]
        cls.model = ScriptedModel(rules)
        cls.addClassCleanup(cls.model.stop)
        cls.tools = ToolServer()
        cls.addClassCleanup(cls.tools.stop)
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        ports = {"critic": free_port(), "writer": free_port()}
        server = {"name": "t", "url": cls.tools.url}
        configs = {
            "critic": {
                "mcpServers": [server | {"tools": ["echo", "fails"]}],
                "peers": [{"name": "writer", "url": f"http://127.0.0.1:{ports['writer']}"}],
            },
            "writer": {"mcpServers": [server | {"tools": ["note"], "requireApproval": ["note"]}]},
        }
        cls.agents = {}
        for name, config in configs.items():
            with open(f"{folder}/{name}.json", "w", encoding="utf-8") as file:
                json.dump(config, file)
            environment = {"MODEL_API_URL": cls.model.url, "AGENT_INSTRUCTIONS": f"You are the {name}."}
            environment["AGENT_CONFIG_FILE"] = f"{folder}/{name}.json"
            cls.agents[name] = Agent(name, environment, ports[name], wait=False)
            cls.addClassCleanup(cls.agents[name].stop)
        for agent in cls.agents.values():
            agent.wait_ready()
        cls.agent = cls.agents["critic"]

    def follow(self, parts, **more):
        """The events of a stream of 1.0, and the calls among them."""
        message = {"role": "ROLE_USER", "messageId": "m", "parts": parts} | more
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}
        events = [one["result"] for one in events_of(ask_raw(self.agent.url, "/", body)[1])]
        updates = [one["statusUpdate"] for one in events if "statusUpdate" in one]
        return events, [one["metadata"]["event"] for one in updates if "event" in one.get("metadata", {})]

    def test_calls_and_usage_are_in_the_metadata_of_states(self):
        events, calls = self.follow([{"text": "both"}])
        echo = {"type": "tool", "name": "echo", "server": "t"}
        writer = {"type": "peer", "name": "writer"}
        start, end = {"phase": "start"}, {"phase": "end", "ok": True}
        self.assertEqual(calls, [echo | start, echo | end, writer | start])
        last = events[-1]["statusUpdate"]
        self.assertEqual(last["status"]["state"], "TASK_STATE_INPUT_REQUIRED")
        self.assertEqual(last["metadata"], {"usage": {"inputTokens": 22, "outputTokens": 10, "steps": 2}})
        self.assertNotIn("secret-argument", json.dumps([one for one in events if "approval" not in json.dumps(one)]))
        token = next(one["data"]["approval"]["token"] for one in last["status"]["message"]["parts"] if "data" in one)
        answer = {"data": {"approval": {"token": token, "decision": "approve"}}}
        events, calls = self.follow([answer], taskId=last["taskId"])
        self.assertEqual(calls, [writer | end])
        last = events[-1]["statusUpdate"]
        self.assertEqual(last["status"]["state"], "TASK_STATE_COMPLETED")
        self.assertEqual(last["metadata"]["usage"]["steps"], 3)
        self.assertNotIn("message", last["status"])
        pieces = [one["artifactUpdate"]["artifact"] for one in events if "artifactUpdate" in one]
        self.assertTrue(all(set(part) == {"text"} for one in pieces for part in one["parts"]))
        known = self.agent.rpc("GetTask", {"id": last["taskId"]})["result"]
        self.assertEqual((text_of(known), known["metadata"]), ("all done", last["metadata"]))

    def test_a_call_that_fails_is_told_as_such(self):
        _, calls = self.follow([{"text": "breaks"}])
        self.assertEqual([(one["phase"], one.get("ok")) for one in calls], [("start", None), ("end", False)])

    def test_answers_in_one_piece_have_the_usage_beside_the_text(self):
        task = self.agent.send("breaks now")
        self.assertEqual(task["metadata"], {"usage": {"inputTokens": 24, "outputTokens": 10, "steps": 2}})
        self.assertEqual(text_of(task), "it broke")
        self.assertNotIn("event", json.dumps(task))
        part = {"kind": "text", "text": "breaks now"}
        message = {"kind": "message", "role": "user", "messageId": "m", "parts": [part]}
        old = self.agent.rpc("message/send", {"message": message})["result"]
        self.assertEqual(old["metadata"], task["metadata"])

    def test_clients_that_know_nothing_of_it_see_a_plain_answer(self):
        async def talk(path, streaming):
            async with httpx.AsyncClient(trust_env=False, timeout=60) as http_client:
                card = parse_agent_card((await http_client.get(self.agent.url + path)).json())
                client = ClientFactory(ClientConfig(httpx_client=http_client, streaming=streaming)).create(card)
                message = Message(role=Role.ROLE_USER, message_id="m", parts=[Part(text="breaks")])
                return [event async for event in client.send_message(SendMessageRequest(message=message))]

        for path in ("/.well-known/agent-card.json", "/.well-known/agent.json"):
            with self.subTest(path):
                task = asyncio.run(talk(path, False))[0].task
                self.assertEqual((len(task.artifacts), task.artifacts[0].parts[0].text), (1, "it broke"))
                events = asyncio.run(talk(path, True))
                states = [one.status_update for one in events if one.HasField("status_update")]
                self.assertEqual(states[-1].status.state, TaskState.TASK_STATE_COMPLETED)
                self.assertFalse(any(one.status.HasField("message") for one in states))
                told = [MessageToDict(one.metadata) for one in states]
                self.assertEqual([one["event"]["phase"] for one in told if "event" in one], ["start", "end"])
                self.assertEqual(told[-1]["usage"]["steps"], 2)
                text = "".join(
                    e.artifact_update.artifact.parts[0].text for e in events if e.HasField("artifact_update")
                )
                self.assertEqual(text, "it broke")


class Queue(unittest.TestCase):
    def test_too_many_are_told_so(self):
        model = ScriptedModel([{"prompt": "slow", "steps": [{"delay": 1.5, "text": "done"}]}])
        self.addCleanup(model.stop)
        agent = Agent("critic", {"MODEL_API_URL": model.url, "AGENT_MAX_RUNNING": "1", "AGENT_MAX_WAITING": "1"})
        self.addCleanup(agent.stop)
        tasks = [agent.send("slow", configuration={"returnImmediately": True}) for _ in range(2)]
        self.assertEqual(agent.send("third")["error"]["data"][0]["metadata"]["reason"], "overloaded")
        status, content, headers = ask_raw(
            agent.url, "/v1/chat/completions", {"messages": [{"role": "user", "content": "fourth"}]}
        )
        self.assertEqual(
            (status, json.loads(content)["error"]["code"], headers["Retry-After"]), (503, "overloaded", "1")
        )
        for task in tasks:
            get = lambda: agent.rpc("GetTask", {"id": task["id"]})["result"]
            wait_until(lambda: get()["status"]["state"] == "TASK_STATE_COMPLETED", "the task ends")
        self.assertEqual(agent.said("after"), "echo: after")

    def test_large_questions_have_a_bound_together(self):
        model = ScriptedModel([{"prompt": "slow", "steps": [{"hang": True}]}])
        self.addCleanup(model.stop)
        agent = Agent("critic", {"MODEL_API_URL": model.url})
        self.addCleanup(agent.stop)
        large = "slow " + "x" * 1_000_000
        started = [agent.send(large, configuration={"returnImmediately": True}) for _ in range(40)]
        refused = [one for one in started if "error" in one]
        self.assertTrue(all("overloaded" in json.dumps(one["error"]["data"]) for one in refused))
        taken = [one for one in started if one not in refused]
        self.assertGreater(len(refused), 5)
        self.assertGreater(len(taken), 15)
        # Questions that end give their room back.
        for task in taken:
            agent.rpc("CancelTask", {"id": task["id"]})
        get = lambda task: agent.rpc("GetTask", {"id": task["id"]})["result"]["status"]["state"]
        for task in taken:
            wait_until(lambda: get(task) == "TASK_STATE_CANCELED", "the task ends")
        self.assertEqual(agent.said("small"), "echo: small")
        self.assertEqual(text_of(agent.send("x" * 900_000))[:8], "echo: xx")


if __name__ == "__main__":
    unittest.main()

"""A2A's methods, in both versions, as JSON and by the protocol's own client."""

import asyncio
import http.client
import json
import time
import unittest

import httpx
from a2a.client.client import ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest, TaskState

from tests.support import Agent, ScriptedModel, ask, ask_raw, text_of, wait_until


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

    def test_what_there_is_none_of(self):
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


if __name__ == "__main__":
    unittest.main()

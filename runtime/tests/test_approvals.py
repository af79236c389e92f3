"""Calls that wait for their asker's approval."""

import concurrent.futures
import json
import pathlib
import tempfile
import unittest

from convoke_agent import loop
from convoke_agent.tool_servers import ToolError
from tests.support import Agent, ScriptedModel, ToolServer, approval_of, free_port, reason_of, text_of, wait_until

# An integer that no double is.
BIG = {"tool": "note", "arguments": {"file": "{prompt}", "text": 2**53 + 1}}
NOTE = {"tool": "note", "arguments": {"file": "{prompt}", "text": "line"}}


class Approvals(unittest.TestCase):
    """`front` has a tool that needs approval and delegates to `back`, which has one too."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.model = ScriptedModel(
            [
                {
                    "system": "front",
                    "prompt": "^ask back",
                    "steps": [
                        {"tool": "delegate_to_back", "arguments": {"message": f"{cls.folder}/nested"}},
                        {"text": "front: {0}"},
                    ],
                },
                {"prompt": "^big ", "steps": [BIG, {"text": "done: {results}"}]},
                {"prompt": "twice$", "steps": [{"calls": [NOTE, NOTE]}, {"text": "{0} and {1}"}]},
                {"prompt": "$", "steps": [NOTE, {"text": "done: {results}"}]},
            ]
        )
        cls.addClassCleanup(cls.model.stop)
        cls.tools = ToolServer()
        cls.addClassCleanup(cls.tools.stop)
        ports = {"front": free_port(), "back": free_port()}
        cls.agents = {}
        for name, port in ports.items():
            config = {
                "name": name,
                "mcpServers": [{"name": "t", "url": cls.tools.url, "tools": ["note"], "requireApproval": ["note"]}],
                "peers": [{"name": "back", "url": f"http://127.0.0.1:{ports['back']}"}] if name == "front" else [],
            }
            path = cls.folder / f"{name}.json"
            path.write_text(json.dumps(config))
            environment = {"MODEL_API_URL": cls.model.url, "AGENT_CONFIG_FILE": str(path), "AGENT_INSTRUCTIONS": name}
            environment |= {"AGENT_APPROVAL_SECONDS": "10"}
            cls.agents[name] = Agent(name, environment, port, wait=False)
            cls.addClassCleanup(cls.agents[name].stop)
        for agent in cls.agents.values():
            agent.wait_ready()
        cls.front = cls.agents["front"]

    def lines(self, name):
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def waiting(self, name, question="{}"):
        """A task that waits for approval of a line in a file."""
        task = self.front.send(question.format(self.folder / name))
        self.assertEqual(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", task)
        self.assertEqual(self.lines(name), [])
        return task

    def answer(self, task, token, decision, **more):
        data = {"approval": {"token": token, "decision": decision} | more}
        return self.front.send(data=data, message={"taskId": task["id"]})

    def reason(self, reply):
        return reply["error"]["data"][0]["metadata"]["reason"]

    def test_what_cannot_be_shown_exactly_is_not_asked_for(self):
        done = self.front.send(f"big {self.folder}/big")
        self.assertEqual(done["status"]["state"], "TASK_STATE_COMPLETED", done)
        self.assertIn("its arguments cannot be shown exactly", text_of(done))
        deep = []
        for _ in range(40):
            deep = [deep]
        for odd in (float("nan"), float("inf"), 2**53 + 1, "\ud800", deep):
            with self.subTest(odd=odd), self.assertRaises(ToolError):
                loop.check_shown({"x": [odd]})
        for good in (1, -0.0, 2**53, 0.1, True, None, "1", [], {}, {"a": [{"b": None}]}, "\u00fc"):
            loop.check_shown({"x": good})

    def test_approved(self):
        task = self.waiting("approved")
        asked = approval_of(task)
        self.assertEqual((asked["server"], asked["tool"]), ("t", "note"))
        self.assertEqual(asked["arguments"], {"file": str(self.folder / "approved"), "text": "line"})
        self.assertIn("note", task["status"]["message"]["parts"][0]["text"])
        done = self.answer(task, asked["token"], "approve")
        self.assertEqual((done["status"]["state"], text_of(done)), ("TASK_STATE_COMPLETED", "done: noted line"))
        self.assertEqual(self.lines("approved"), ["line"])
        self.assertEqual(self.answer(task, asked["token"], "approve")["error"]["code"], -32004)
        self.assertEqual(self.lines("approved"), ["line"])

    def test_denied(self):
        task = self.waiting("denied")
        done = self.answer(task, approval_of(task)["token"], "deny", reason="too dear")
        self.assertEqual(text_of(done), 'done: {"error":"the user denied the call: too dear"}')
        self.assertEqual(self.lines("denied"), [])

    def test_answers_that_are_none(self):
        task = self.waiting("none")
        token = approval_of(task)["token"]
        self.assertEqual(self.reason(self.answer(task, "wrong", "approve")), "approval_invalid")
        self.assertEqual(self.reason(self.answer(task, token, "perhaps")), "approval_invalid")
        again = self.front.send("yes, approve it", message={"taskId": task["id"]})
        self.assertEqual((again["status"]["state"], approval_of(again)["token"]), ("TASK_STATE_INPUT_REQUIRED", token))
        other = self.waiting("other")
        self.assertEqual(self.reason(self.answer(other, token, "approve")), "approval_invalid")
        self.assertEqual(self.lines("none") + self.lines("other"), [])
        self.assertEqual(self.answer(task, token, "approve")["status"]["state"], "TASK_STATE_COMPLETED")

    def test_of_many_answers_one_counts(self):
        task = self.waiting("raced")
        token = approval_of(task)["token"]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda _: self.answer(task, token, "approve"), range(8)))
        self.assertEqual(sum("error" not in one for one in replies), 1)
        self.assertEqual(self.lines("raced"), ["line"])

    def test_two_calls_are_asked_for_one_after_the_other(self):
        task = self.waiting("twice", "{}")
        token = approval_of(task)["token"]
        second = self.answer(task, token, "approve")
        self.assertEqual(second["status"]["state"], "TASK_STATE_INPUT_REQUIRED")
        self.assertEqual(self.lines("twice"), ["line"])
        self.assertEqual(self.reason(self.answer(task, token, "approve")), "approval_invalid")
        done = self.answer(task, approval_of(second)["token"], "deny")
        self.assertEqual(text_of(done), 'noted line and {"error":"the user denied the call"}')
        self.assertEqual(self.lines("twice"), ["line"])

    def test_a_peers_question_reaches_the_asker(self):
        task = self.front.send("ask back, please")
        asked = approval_of(task)
        self.assertEqual((asked["agent"], asked["tool"]), ("back", "note"))
        self.assertEqual(asked["arguments"]["file"], f"{self.folder}/nested")
        again = self.front.send("yes", message={"taskId": task["id"]})
        self.assertEqual(again["status"]["state"], "TASK_STATE_INPUT_REQUIRED")
        self.assertEqual(self.lines("nested"), [])
        done = self.answer(task, asked["token"], "approve")
        self.assertEqual(text_of(done), "front: done: noted line")
        self.assertEqual(self.lines("nested"), ["line"])

    def test_a_list_of_tasks_has_no_token(self):
        task = self.waiting("listed")
        token = approval_of(task)["token"]
        listed = lambda: self.front.rpc("ListTasks", {"contextId": task["contextId"]})["result"]["tasks"]
        self.assertEqual(approval_of(listed()[0])["tool"], "note")
        self.assertNotIn(token, json.dumps(listed()))
        get = self.front.rpc("GetTask", {"id": task["id"]})["result"]
        self.assertEqual(approval_of(get)["token"], token)
        self.assertEqual(self.answer(task, token, "approve")["status"]["state"], "TASK_STATE_COMPLETED")
        self.assertEqual(self.lines("listed"), ["line"])
        # It is in the history by then.
        self.assertNotIn(token, json.dumps(listed()))

    def test_chat_is_told_that_it_cannot(self):
        self.assertIn("needs approval, which this interface cannot ask for", self.front.said("ask back by chat"))

    def test_cancelled_while_it_waits(self):
        task = self.waiting("cancelled")
        done = self.front.rpc("CancelTask", {"id": task["id"]})["result"]
        self.assertEqual(done["status"]["state"], "TASK_STATE_CANCELED")
        self.assertIn("error", self.answer(task, approval_of(task)["token"], "approve"))
        self.assertEqual(self.lines("cancelled"), [])

    def test_0_3_approves_too(self):
        part = {"kind": "text", "text": str(self.folder / "old")}
        message = {"kind": "message", "role": "user", "messageId": "m", "parts": [part]}
        task = self.front.rpc("message/send", {"message": message})["result"]
        self.assertEqual(task["status"]["state"], "input-required")
        asked = next(one["data"] for one in task["status"]["message"]["parts"] if one["kind"] == "data")["approval"]
        answer = {"kind": "data", "data": {"approval": {"token": asked["token"], "decision": "approve"}}}
        message |= {"parts": [answer], "taskId": task["id"]}
        self.assertEqual(self.front.rpc("message/send", {"message": message})["result"]["status"]["state"], "completed")
        self.assertEqual(self.lines("old"), ["line"])

    def test_what_waits_too_long_is_gone(self):
        task = self.waiting("late")
        token = approval_of(task)["token"]
        get = lambda: self.front.rpc("GetTask", {"id": task["id"]})["result"]
        expired = wait_until(lambda: get()["status"]["state"] == "TASK_STATE_FAILED" and get(), "the approval expires")
        self.assertEqual(reason_of(expired), "approval_expired")
        self.assertIn("error", self.answer(task, token, "approve"))
        self.assertEqual(self.lines("late"), [])


if __name__ == "__main__":
    unittest.main()

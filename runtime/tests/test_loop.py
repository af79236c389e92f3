"""What `agenticLoop` bounds and what it takes away."""

import json
import tempfile
import unittest

from tests.support import Agent, ScriptedModel, ToolServer, ask_raw, free_port, reason_of, text_of

# A request for one word takes 16 tokens, and each word more one more (scripted_model.usage_of).
MAX_TOKENS = 60


def call(tool, **arguments):
    return {"tool": tool, "arguments": arguments}


class Tokens(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        count = call("count_words", text="a b c")
        rules = [{"prompt": "^counts", "steps": [count, count, count, count, {"text": "counted"}]}]
        cls.model = ScriptedModel(rules)
        cls.addClassCleanup(cls.model.stop)
        tools = ToolServer()
        cls.addClassCleanup(tools.stop)
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        config = {"agenticLoop": {"maxTokens": MAX_TOKENS, "maxSteps": 10}}
        config["mcpServers"] = [{"name": "t", "url": tools.url}]
        with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        cls.agent = Agent("critic", {"MODEL_API_URL": cls.model.url, "AGENT_CONFIG_FILE": f"{folder}/config.json"})
        cls.addClassCleanup(cls.agent.stop)

    def check(self, prompt):
        """Asks over each interface, and then something that fits."""
        asked = 0
        with self.subTest("chat"):
            status, body = self.agent.chat(prompt)
            self.assertEqual((status, body["error"]["code"]), (500, "tokens_exceeded"))
            asked = len(self.model.asked(prompt))
            self.assertEqual(self.agent.said("fits"), "echo: fits")
        with self.subTest("chat, streamed"):
            body = {"messages": [{"role": "user", "content": prompt}], "stream": True}
            _, content, _ = ask_raw(self.agent.url, "/v1/chat/completions", body)
            # What came before stays told.
            last = json.loads(content.split(b"data: ")[-1])
            self.assertEqual(last["error"]["code"], "tokens_exceeded")
        with self.subTest("A2A 1.0"):
            task = self.agent.send(prompt, message={"contextId": prompt[:20]})
            self.assertEqual((task["status"]["state"], reason_of(task)), ("TASK_STATE_FAILED", "tokens_exceeded"))
            after = self.agent.send("fits", message={"contextId": prompt[:20]})
            self.assertEqual((after["status"]["state"], text_of(after)), ("TASK_STATE_COMPLETED", "echo: fits"))
        with self.subTest("A2A 0.3"):
            message = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": prompt}]}
            status = self.agent.rpc("message/send", {"message": message})["result"]["status"]
            (reason,) = [one["data"]["error"]["reason"] for one in status["message"]["parts"] if one["kind"] == "data"]
            self.assertEqual((status["state"], reason), ("failed", "tokens_exceeded"))
        return asked

    def test_an_answer_that_takes_too_many(self):
        self.assertEqual(self.check("long " + "word " * MAX_TOKENS), 1)

    def test_steps_that_take_too_many_together(self):
        # Three take 48. The fourth takes too many.
        self.assertEqual(self.check("counts"), 4)

    def test_as_many_as_are_allowed(self):
        self.assertEqual(self.agent.chat("word " * (MAX_TOKENS - 15))[0], 200)
        self.assertEqual(self.agent.chat("word " * (MAX_TOKENS - 14))[0], 500)


class TakenAway(unittest.TestCase):
    """`asks` has no tools and `works` has no delegation. Both have the same tool server, and each other as a peer."""

    @classmethod
    def setUpClass(cls):
        rules = [
            {"prompt": "^use", "steps": [call("echo", text="{prompt}"), {"text": "results: {results}"}]},
            {"prompt": "^let asks", "steps": [call("delegate_to_asks", message="for asks"), {"text": "{results}"}]},
            {"prompt": "^let works", "steps": [call("delegate_to_works", message="use it"), {"text": "{results}"}]},
        ]
        cls.model = ScriptedModel(rules)
        cls.addClassCleanup(cls.model.stop)
        tools = ToolServer()
        cls.addClassCleanup(tools.stop)
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        with open(f"{folder}/works.json", "w", encoding="utf-8") as file:
            json.dump({"agenticLoop": {"enableDelegation": False}}, file)
        ports = {"asks": free_port(), "works": free_port()}
        more = {"asks": {"AGENTIC_LOOP_ENABLE_TOOLS": "false"}, "works": {"AGENT_CONFIG_FILE": f"{folder}/works.json"}}
        cls.agents = {}
        for name, other in (("asks", "works"), ("works", "asks")):
            environment = {"MODEL_API_URL": cls.model.url, "MCP_SERVERS": "t", "MCP_SERVER_T_URL": tools.url}
            environment["PEER_AGENTS"] = other
            environment[f"PEER_AGENT_{other.upper()}_CARD_URL"] = f"http://127.0.0.1:{ports[other]}"
            cls.agents[name] = Agent(name, environment | more[name], ports[name], wait=False)
            cls.addClassCleanup(cls.agents[name].stop)
        for agent in cls.agents.values():
            agent.wait_ready()

    def offered(self, name):
        self.agents[name].said(f"hello {name}")
        return [one["function"]["name"] for one in self.model.asked(f"hello {name}")[0]["body"].get("tools", [])]

    def test_what_the_model_is_offered(self):
        self.assertEqual(self.offered("asks"), ["delegate_to_works"])
        self.assertEqual(sorted(self.offered("works")), ["count_words", "echo", "fails", "hangs", "long", "note"])

    def test_what_it_asks_for_nevertheless_is_not_there(self):
        self.assertIn("Unknown tool name: 'echo'", self.agents["asks"].said("use it"))
        self.assertIn("Unknown tool name: 'delegate_to_asks'", self.agents["works"].said("let asks"))
        self.assertEqual(self.model.asked("for asks"), [])

    def test_the_other_is_there(self):
        self.assertEqual(self.agents["asks"].said("let works"), "results: tool says use it")
        self.assertEqual(self.agents["works"].said("use it"), "results: tool says use it")


class Bounds(unittest.TestCase):
    """What one answer of the model may be."""

    @classmethod
    def setUpClass(cls):
        many = {"calls": [call("count_words", text="a " * n) for n in range(1, 41)]}
        long = {"calls": [call("long", characters=60_000) for _ in range(20)]}
        rules = [
            {"prompt": "^many", "steps": [many, {"text": "{results}"}]},
            {"prompt": "^long", "steps": [long, {"text": "{results}"}]},
            {"prompt": "^short", "steps": [{"text": "as far as", "finish": "length"}]},
            {"prompt": "^cut", "steps": [{"text": "as far as that", "cut": True}]},
            {"prompt": "^packed", "steps": [{"text": "x", "gzip": True}]},
        ]
        cls.model = ScriptedModel(rules)
        cls.addClassCleanup(cls.model.stop)
        tools = ToolServer()
        cls.addClassCleanup(tools.stop)
        servers = {"MCP_SERVERS": "t", "MCP_SERVER_T_URL": tools.url}
        cls.agent = Agent("critic", {"MODEL_API_URL": cls.model.url} | servers)
        cls.addClassCleanup(cls.agent.stop)

    def streamed(self, prompt):
        """The events of a streamed answer."""
        body = {"messages": [{"role": "user", "content": prompt}], "stream": True}
        _, content, _ = ask_raw(self.agent.url, "/v1/chat/completions", body)
        return [json.loads(event) for event in content.split(b"data: ")[1:] if b"[DONE]" not in event]

    def test_so_many_calls_run_and_the_others_are_told(self):
        results = self.agent.said("many").split(" | ")
        refused = [one for one in results if "an answer may have 32 calls" in one]
        self.assertEqual((len(results), len(refused)), (40, 8))

    def test_the_results_of_a_question_have_a_bound_together(self):
        said = self.agent.said("long")
        self.assertGreater(len(said), 1 << 20)
        self.assertLess(len(said), (1 << 20) + 20 * 2000)
        self.assertIn("characters are left out]", said)

    def test_an_answer_that_the_model_cut_is_told_as_cut(self):
        _, body = self.agent.chat("short")
        self.assertEqual(body["choices"][0]["finish_reason"], "length")
        reasons = [event["choices"][0]["finish_reason"] for event in self.streamed("short") if event.get("choices")]
        self.assertEqual((reasons[-1], set(reasons[:-1])), ("length", {None}))
        task = self.agent.send("short")
        self.assertEqual((text_of(task), task["metadata"]["finishReason"]), ("as far as", "length"))
        _, body = self.agent.chat("whole")
        self.assertEqual(body["choices"][0]["finish_reason"], "stop")
        self.assertNotIn("finishReason", self.agent.send("whole").get("metadata", {}))

    def test_an_answer_that_ends_early_is_none(self):
        self.assertEqual(self.streamed("cut")[-1]["error"]["code"], "model_bad_answer")

    def test_a_packed_answer_is_not_unpacked(self):
        status, body = self.agent.chat("packed")
        self.assertEqual((status, body["error"]["code"]), (502, "model_bad_answer"))
        self.assertEqual(self.model.asked("packed")[0]["headers"]["accept-encoding"], "identity")


if __name__ == "__main__":
    unittest.main()

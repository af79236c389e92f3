"""pydantic-ai-server as an Agent's image: with the environment that the operator gives, and our agents as peers.

scripts/test runs it. By hand, with the Pythons of two virtual environments, one of each requirements.txt:

    PYTHONPATH=runtime SERVER_PYTHON=…/bin/python …/bin/python -B -m unittest discover -s runtime/compatibility
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from tests.support import RUNTIME, SECONDS, Agent, ScriptedModel, ToolServer, ask, ask_raw, free_port, wait_until

PYTHON = os.environ["SERVER_PYTHON"]
# The Deployment of an agent with a model, a tool server and a peer, as the operator makes it.
SNAPSHOT = "convoke__controllers__agent__desired__tests__a1_the_deployment_of_a_minimal_agent.snap"
OURS, THEIRS = "You are the writer", "You are the asker"


def rule(system, prompt, *steps):
    return {"system": system, "prompt": prompt, "steps": list(steps)}


def rendered():
    """The environment that the operator renders."""
    path = RUNTIME.parent / "src/controllers/agent/tests/snapshots" / SNAPSHOT
    deployment = json.loads(path.read_text(encoding="utf-8").split("---\n", 2)[2])
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    return {one["name"]: one["value"] for one in container["env"]}


class Server:
    """The server, with its own command."""

    def __init__(self, folder, environment):
        self._log = pathlib.Path(folder, "log")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = ["-m", "uvicorn", "pais.server:get_app", "--factory", "--host", "127.0.0.1", "--port", str(port)]
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [PYTHON, *command], env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT
            )

    def wait_ready(self):
        try:
            wait_until(self._is_ready, "the server is ready", SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._log.read_text(encoding='utf-8')[-3000:]}") from None

    def _is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError("the server ended")
        try:
            return ask(self.url, "/ready")[0] == 200
        except OSError:
            return False

    def stop(self):
        self.process.kill()
        self.process.wait(SECONDS)


class PydanticAiServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        delegate = {"tool": "delegate_to_writer", "arguments": {"task": "hello"}}
        back = {"tool": "delegate_to_a", "arguments": {"message": "use a tool"}}
        cls.model = ScriptedModel(
            [
                rule(THEIRS, "tool", {"tool": "count_words", "arguments": {"text": "a b c"}}, {"text": "counted {0}"}),
                rule(THEIRS, "peer", delegate, {"text": "the peer says {0}"}),
                rule(OURS, "back", back, {"text": "got {0}"}),
                rule(OURS, "", {"text": "writer heard {prompt}"}),
                rule(THEIRS, "", {"text": "asker heard {prompt}"}),
            ]
        )
        cls.addClassCleanup(cls.model.stop)
        cls.tools = ToolServer()
        cls.addClassCleanup(cls.tools.stop)
        home = tempfile.TemporaryDirectory()
        cls.addClassCleanup(home.cleanup)
        peer = free_port()
        urls = {"MODEL_API_URL": cls.model.url, "OPENAI_BASE_URL": f"{cls.model.url}/v1"}
        urls |= {"MCP_SERVER_WEB_SEARCH_URL": cls.tools.url, "MCP_SERVER_web-search_URL": cls.tools.url}
        urls |= {"PEER_AGENT_WRITER_CARD_URL": f"http://127.0.0.1:{peer}"}
        environment = rendered()
        assert urls.keys() <= environment.keys(), "the operator renders other variables now"
        more = {"AGENT_DESCRIPTION": "Asks.", "AGENT_INSTRUCTIONS": THEIRS, "OPENAI_API_KEY": "sk-test"}
        machine = {"PATH": os.environ["PATH"], "HOME": home.name}
        cls.server = Server(home.name, environment | urls | more | machine)
        cls.addClassCleanup(cls.server.stop)
        ours = {"MODEL_API_URL": cls.model.url, "AGENT_INSTRUCTIONS": OURS}
        ours |= {"PEER_AGENTS": "a", "PEER_AGENT_A_CARD_URL": cls.server.url}
        cls.writer = Agent("writer", ours, peer)
        cls.addClassCleanup(cls.writer.stop)
        cls.server.wait_ready()

    def said(self, text, session=None):
        body = {"model": "agent", "messages": [{"role": "user", "content": text}]}
        headers = {"X-Session-ID": session} if session else {}
        status, reply = ask(self.server.url, "/v1/chat/completions", body, headers=headers)
        self.assertEqual(status, 200, reply)
        return reply["choices"][0]["message"]["content"]

    def test_its_probes_and_its_card(self):
        self.assertEqual(ask(self.server.url, "/health")[0], 200)
        self.assertEqual(ask(self.server.url, "/.well-known/agent-card.json")[0], 404)
        status, card = ask(self.server.url, "/.well-known/agent.json")
        self.assertEqual((status, card["name"], card["description"]), (200, "a", "Asks."))

    def test_it_uses_our_model_tools_and_peers(self):
        self.assertEqual(self.said("hi"), "asker heard hi")
        self.assertEqual(self.said("use a tool"), "counted 3")
        self.assertEqual(self.said("ask the peer"), "the peer says writer heard hello")

    def test_our_agents_ask_it(self):
        self.assertEqual(self.writer.said("back"), "got counted 3")

    def test_a_session_is_one_of_its_conversations(self):
        self.said("remember seven", "s1")
        self.said("what was it", "s1")
        before = [str(one["content"]) for one in self.model.asked("what was it")[-1]["body"]["messages"]]
        self.assertTrue(any("remember seven" in text for text in before), before)

    def test_its_streams_are_as_our_clients_read_them(self):
        """src/cli/ask/chat.rs and runtime/convoke_agent/peers.py leave out what reports a call."""
        body = {"model": "agent", "messages": [{"role": "user", "content": "use a tool"}], "stream": True}
        status, content, headers = ask_raw(self.server.url, "/v1/chat/completions", body)
        self.assertEqual((status, headers["content-type"].split(";")[0]), (200, "text/event-stream"))
        events = [one.removeprefix("data: ") for one in content.decode().split("\n\n") if one]
        self.assertEqual(events[-1], "[DONE]")
        choices = [json.loads(one)["choices"][0] for one in events[:-1]]
        self.assertEqual(choices[-1]["finish_reason"], "stop")
        call, answer = [one["delta"]["content"] for one in choices[:-1]]
        self.assertTrue(call.startswith('{"type": "progress"'), call)
        self.assertEqual((json.loads(call)["action"], json.loads(call)["target"]), ("tool_call", "count_words"))
        self.assertEqual(answer, "counted 3")

    def test_what_it_does_not_do(self):
        """What docs/agents.md says of images of one's own."""
        self.said("key")
        self.assertEqual(self.model.asked("key")[-1]["headers"]["authorization"], "Bearer not-needed")
        for method in ("message/send", "message/stream", "SendStreamingMessage"):
            message = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
            self.assertEqual(ask(self.server.url, "/", body)[1]["error"]["code"], -32601)


if __name__ == "__main__":
    unittest.main()

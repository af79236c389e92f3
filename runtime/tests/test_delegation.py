"""Agents that ask agents."""

import asyncio
import json
import threading
import time
import types
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from a2a.types.a2a_pb2 import AgentCard

from convoke_agent.peers import Peer, answer_of, client, text_part
from convoke_agent.service import KEEP_SECONDS
from tests.support import Agent, ScriptedModel, ToolServer, free_port, text_of, wait_until


def system(name, prompt, *steps):
    return {"system": f"You are {name}", "prompt": prompt, "steps": list(steps)}


def to(peer, message="{prompt}"):
    return {"tool": f"delegate_to_{peer}", "arguments": {"message": message}}


class OldAgent:
    """An agent that only speaks A2A 0.3, without streams, and says it is somewhere else."""

    def __init__(self, port=0):
        outer = self
        self.seen = []
        self.traces = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                card = {
                    "protocolVersion": "0.3.0",
                    "name": "old",
                    "description": "An old one.",
                    "url": "http://localhost:1/",
                    "version": "1",
                    "capabilities": {},
                    "defaultInputModes": ["text/plain"],
                    "defaultOutputModes": ["text/plain"],
                    "skills": [],
                }
                found = self.path == "/.well-known/agent.json"
                self.say(200 if found else 404, card if found else {})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.seen.append(body)
                outer.traces.append(self.headers.get("traceparent", ""))
                task = {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}}
                if body["method"] == "tasks/get":
                    part = {"kind": "text", "text": "an old answer"}
                    task |= {"status": {"state": "completed"}, "artifacts": [{"artifactId": "a", "parts": [part]}]}
                self.say(200, {"jsonrpc": "2.0", "id": body["id"], "result": task})

            def say(self, status, value):
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Connecting(unittest.IsolatedAsyncioTestCase):
    async def test_an_agent_that_refuses_connections_at_first_is_asked_once_it_takes_them(self):
        refused = asyncio.Event()

        async def see(event, _):
            if event == "connection.retry.started":
                refused.set()

        async def follow(request):
            request.extensions["trace"] = see

        port = free_port()
        http = client()
        self.addAsyncCleanup(http.aclose)
        http.event_hooks = {"request": [follow]}
        peer = Peer(types.SimpleNamespace(name="late", url=f"http://127.0.0.1:{port}"), http)
        asked = asyncio.create_task(peer.ask([text_part("hello")], ()))
        await asyncio.wait_for(refused.wait(), 20)
        late = OldAgent(port)
        self.addCleanup(late.stop)
        self.assertEqual(answer_of(await asked), "an old answer")
        self.assertEqual([body["method"] for body in late.seen].count("message/send"), 1)


class GivingUp(unittest.IsolatedAsyncioTestCase):
    async def test_a_question_that_is_cancelled_ends_before_the_process_does(self):
        class Slow(Peer):
            async def _talk(self, message, seen):
                await asyncio.sleep(1)
                seen.task.id = "t"
                seen.named.set()
                await asyncio.Event().wait()

            async def _client(self):
                told.set()
                await asyncio.Event().wait()

        told = asyncio.Event()
        peer = Slow(types.SimpleNamespace(name="slow", url="http://slow"), None)
        peer._card = AgentCard()
        asked = asyncio.create_task(peer.ask([text_part("hello")], ()))
        await asyncio.sleep(0)
        began = time.monotonic()
        asked.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await asked
        self.assertTrue(told.is_set())
        self.assertLess(time.monotonic() - began, KEEP_SECONDS)


class Delegation(unittest.TestCase):
    """Three agents, each a peer of both others; a peer that is not there; one of 0.3."""

    @classmethod
    def setUpClass(cls):
        cls.model = ScriptedModel(
            [
                system(
                    "alpha",
                    "tool then peer",
                    {"tool": "count_words", "arguments": {"text": "a b c"}},
                    to("beta", "count"),
                    {"text": "{0} and {1}"},
                ),
                system("alpha", "round", to("beta"), {"text": "alpha: {0}"}),
                system("beta", "round", to("gamma"), {"text": "beta: {0}"}),
                system("gamma", "round", to("alpha"), {"text": "gamma: {0}"}),
                system("alpha", "old", to("old"), {"text": "alpha: {0}"}),
                system("alpha", "gone", to("gone"), {"text": "alpha: {0}"}),
                system("alpha", "empty", to("beta", " "), {"text": "alpha: {0}"}),
                system("alpha", "broken", to("beta"), {"text": "alpha: {0}"}),
                system("beta", "broken", {"status": 401}),
                system("alpha", "hang", to("beta"), {"text": "alpha: {0}"}),
                system("beta", "hang", {"hang": True}),
                system("beta", "", {"text": "beta says {prompt}"}),
            ]
        )
        cls.addClassCleanup(cls.model.stop)
        cls.tools = ToolServer()
        cls.addClassCleanup(cls.tools.stop)
        cls.old = OldAgent()
        cls.addClassCleanup(cls.old.stop)
        ports = {name: free_port() for name in ("alpha", "beta", "gamma", "gone")}
        urls = {f"PEER_AGENT_{name.upper()}_CARD_URL": f"http://127.0.0.1:{port}" for name, port in ports.items()}
        urls["PEER_AGENT_OLD_CARD_URL"] = cls.old.url
        cls.agents = {}
        for name in ("alpha", "beta", "gamma"):
            others = [other for other in (*ports, "old") if other != name]
            environment = {
                "MODEL_API_URL": cls.model.url,
                "AGENT_INSTRUCTIONS": f"You are {name}.",
                "AGENT_DESCRIPTION": f"Is {name}.",
            }
            environment |= urls | {"PEER_AGENTS": ",".join(others)}
            environment |= {"MCP_SERVERS": "t", "MCP_SERVER_T_URL": cls.tools.url}
            cls.agents[name] = Agent(name, environment, ports[name], wait=False)
            cls.addClassCleanup(cls.agents[name].stop)
        for agent in cls.agents.values():
            agent.wait_ready()
        cls.alpha = cls.agents["alpha"]

    def test_a_tool_then_a_peer(self):
        self.assertEqual(self.alpha.said("tool then peer"), "3 and beta says count")
        self.assertEqual(text_of(self.alpha.send("tool then peer")), "3 and beta says count")

    def test_a_peer_is_described_by_its_card(self):
        self.alpha.said("hello descriptions")
        tools = {
            one["function"]["name"]: one["function"]["description"]
            for one in self.model.asked("hello descriptions")[0]["body"]["tools"]
        }
        self.assertIn("Is beta.", tools["delegate_to_beta"])
        self.assertEqual(tools["delegate_to_gone"], "Asks the agent gone.")

    def test_a_loop_ends(self):
        self.assertRegex(self.alpha.said("round"), "alpha: beta: gamma: .*alpha waits for this answer already")

    def test_a_loop_is_refused_by_who_is_asked_twice(self):
        refused = self.alpha.send("x", metadata={"convoke.dev/path": ["alpha", "beta"]})["error"]
        self.assertEqual(refused["data"][0]["metadata"]["reason"], "delegation_loop")
        long = self.alpha.send("x", metadata={"convoke.dev/path": [f"a{n}" for n in range(9)]})["error"]
        self.assertEqual(long["data"][0]["metadata"]["reason"], "delegation_too_deep")
        deepest = self.alpha.send("round", metadata={"convoke.dev/path": [f"a{n}" for n in range(8)]})
        self.assertIn("passed on 8 times already", text_of(deepest))

    def test_a_peer_of_0_3(self):
        self.assertEqual(self.alpha.said("old"), "alpha: an old answer")
        self.assertEqual([one["method"] for one in self.old.seen[-2:]], ["message/send", "tasks/get"])
        self.assertEqual(self.old.seen[-2]["params"]["message"]["metadata"], {"convoke.dev/path": ["alpha"]})

    def test_what_fails_is_the_models_to_know(self):
        self.assertIn("cannot be reached", self.alpha.said("gone"))
        self.assertIn("must be a text that is not empty", self.alpha.said("empty"))
        self.assertIn("the agent beta failed: the model API refuses the agent's key", self.alpha.said("broken"))

    def test_cancel_goes_on_to_the_peer(self):
        before = self.model.model.abandoned
        task = self.alpha.send("hang", configuration={"returnImmediately": True})
        wait_until(lambda: self.model.model.hanging, "the peer asks its model")
        self.assertEqual(
            self.alpha.rpc("CancelTask", {"id": task["id"]})["result"]["status"]["state"], "TASK_STATE_CANCELED"
        )
        wait_until(lambda: self.model.model.abandoned == before + 1, "the peer's model call is given up", 5)

    def test_the_trace_goes_on(self):
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
        self.assertEqual(self.alpha.chat("old trace", headers)[0], 200)
        self.assertIn(trace, self.old.traces[-1])


if __name__ == "__main__":
    unittest.main()

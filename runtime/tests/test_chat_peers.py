"""Agents that ask agents which speak no A2A."""

import json
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support import Agent, ScriptedModel, wait_until

CARD = {
    "protocolVersion": "0.3.0",
    "name": "other",
    "description": "Another one.",
    "url": "http://localhost:1",
    "version": "1",
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text"],
    "defaultOutputModes": ["text"],
    "skills": [],
}
PROGRESS = {"type": "progress", "step": 1, "max_steps": 5, "action": "tool_call", "target": "count"}


def chunk(text, finish=None):
    return {"choices": [{"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}]}


class ChatAgent:
    """An agent of another make: chat completions, and of A2A a card at most."""

    def __init__(self, card=None, chat=True):
        outer = self
        self.asked = []
        self.refused = []
        self.left = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                found = card is not None and self.path == "/.well-known/agent.json"
                self.say(200 if found else 404, card or {})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/v1/chat/completions" and chat:
                    outer.asked.append((body, dict(self.headers)))
                    outer.answer(self, body)
                elif card is not None and self.path == "/":
                    outer.refused.append(body["method"])
                    error = {"code": -32601, "message": "Method not found"}
                    self.say(200, {"jsonrpc": "2.0", "id": body["id"], "error": error})
                else:
                    self.say(405, {"detail": "Method Not Allowed"})

            def say(self, status, value):
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def begin_stream(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream; charset=utf-8")
                self.end_headers()

            def event(self, value):
                self.wfile.write(f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode())
                self.wfile.flush()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def answer(self, handler, body):
        text = body["messages"][-1]["content"]
        if text == "whole":
            handler.say(200, {"choices": [{"message": {"content": "all at once"}, "finish_reason": "stop"}]})
            return
        if text == "down":
            handler.say(503, {"error": {"message": "secret"}})
            return
        handler.begin_stream()
        if text == "hang":
            self.wait_until_left(handler)
            return
        if text == "broken":
            handler.event({"error": {"message": "the model is gone"}})
            return
        handler.event(chunk(json.dumps(PROGRESS)))
        for word in ("you said ", text):
            handler.event(chunk(word))
        if text != "early":
            handler.event(chunk(None, "stop"))
            handler.event("[DONE]")

    def wait_until_left(self, handler):
        try:
            while True:
                # A comment, which says nothing: whoever is gone cannot take it.
                handler.wfile.write(b": still here\n\n")
                handler.wfile.flush()
                self.left.wait(0.05)
        except OSError:
            self.left.set()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class ChatPeers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.others = {"listed": ChatAgent(CARD), "bare": ChatAgent(), "mute": ChatAgent(CARD, chat=False)}
        rules = []
        for name, other in cls.others.items():
            cls.addClassCleanup(other.stop)
            for text in ("hello", "whole", "down", "broken", "early", "hang"):
                call = {"tool": f"delegate_to_{name}", "arguments": {"message": text}}
                rules.append({"prompt": f"{text} {name}", "steps": [call, {"text": "{0}"}]})
        cls.model = ScriptedModel(rules)
        cls.addClassCleanup(cls.model.stop)
        urls = {f"PEER_AGENT_{name.upper()}_CARD_URL": other.url for name, other in cls.others.items()}
        cls.agent = Agent("alpha", {"MODEL_API_URL": cls.model.url, "PEER_AGENTS": ",".join(cls.others)} | urls)
        cls.addClassCleanup(cls.agent.stop)

    def test_a_peer_that_takes_no_messages_is_asked_over_chat_completions(self):
        listed = self.others["listed"]
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        said = self.agent.said("hello listed", {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
        self.assertEqual(said, "you said hello")
        body, headers = listed.asked[-1]
        self.assertEqual((body["messages"], body["stream"]), ([{"role": "user", "content": "hello"}], True))
        self.assertIn(trace, headers["traceparent"])
        # It is not tried again with each question.
        refused = len(listed.refused)
        self.assertGreater(refused, 0)
        self.assertEqual(self.agent.said("hello listed"), "you said hello")
        self.assertEqual(len(listed.refused), refused)

    def test_a_peer_without_a_card_too(self):
        self.assertEqual(self.agent.said("hello bare"), "you said hello")
        self.assertEqual(self.agent.said("whole bare"), "all at once")

    def test_what_fails_is_the_models_to_know(self):
        for text, told in (
            ("down listed", "the agent listed failed: HTTP 503"),
            ("broken listed", "the agent listed failed: the model is gone"),
            ("early listed", "the agent listed failed: its answer ended early"),
            ("hello mute", "the agent mute speaks neither A2A nor chat completions"),
        ):
            with self.subTest(text):
                self.assertEqual(json.loads(self.agent.said(text)), {"error": told})

    def test_cancel_ends_the_connection(self):
        listed = self.others["listed"]
        task = self.agent.send("hang listed", configuration={"returnImmediately": True})
        wait_until(lambda: any(b["messages"][0]["content"] == "hang" for b, _ in listed.asked), "the peer is asked")
        self.assertEqual(
            self.agent.rpc("CancelTask", {"id": task["id"]})["result"]["status"]["state"], "TASK_STATE_CANCELED"
        )
        self.assertTrue(listed.left.wait(5), "the peer hears nothing")


if __name__ == "__main__":
    unittest.main()

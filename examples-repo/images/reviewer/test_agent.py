"""Run with: python3 -m unittest discover -s images/reviewer"""

import json
import threading
import unittest
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import agent


def serve(handler):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}"


class FakeModel(BaseHTTPRequestHandler):
    """Answers with what it was asked, in the shape of the OpenAI API."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = f"{self.path} {body['model']}: " + " | ".join(m["content"] for m in body["messages"])
        data = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


class ReviewerTest(unittest.TestCase):
    def start(self, handler):
        server, url = serve(handler)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return url

    def agent(self, **env):
        return self.start(agent.handler(agent.Config(env)))

    def get(self, url, data=None):
        try:
            with urllib.request.urlopen(url, data=data, timeout=5) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def test_asks_the_model_with_its_instructions(self):
        model = self.start(FakeModel)
        url = self.agent(MODEL_API_URL=model, MODEL_NAME="m", AGENT_INSTRUCTIONS="Be strict.")
        body = json.dumps({"messages": [{"role": "user", "content": "Hello"}]}).encode()
        status, reply = self.get(url + "/v1/chat/completions", body)
        self.assertEqual(status, 200)
        self.assertEqual(
            reply["choices"][0]["message"]["content"],
            "/v1/chat/completions m: Be strict. | Hello",
        )

    def test_without_instructions_it_has_its_rules(self):
        self.assertEqual(agent.Config({}).instructions, agent.RULES.read_text(encoding="utf-8"))
        self.assertIn("You review texts.", agent.Config({}).instructions)

    def test_is_healthy_but_not_ready_without_a_model(self):
        url = self.agent()
        self.assertEqual(self.get(url + "/health")[0], 200)
        self.assertEqual(
            self.get(url + "/ready"), (503, {"missing": ["MODEL_API_URL", "MODEL_NAME"]})
        )

    def test_a_broken_request_is_refused(self):
        url = self.agent(MODEL_API_URL="http://127.0.0.1:1", MODEL_NAME="m")
        self.assertEqual(self.get(url + "/v1/chat/completions", b"{")[0], 400)
        self.assertEqual(self.get(url + "/elsewhere", b"{}")[0], 404)

    def test_a_silent_model_is_a_bad_gateway(self):
        url = self.agent(MODEL_API_URL="http://127.0.0.1:1", MODEL_NAME="m")
        status, reply = self.get(url + "/v1/chat/completions", b'{"messages": []}')
        self.assertEqual(status, 502)
        self.assertIn("the model did not answer", reply["error"])

    def test_speaks_no_a2a(self):
        url = self.agent(MODEL_API_URL="http://127.0.0.1:1", MODEL_NAME="m")
        self.assertEqual(self.get(url + "/.well-known/agent-card.json")[0], 404)
        self.assertEqual(self.get(url + "/", b"{}")[0], 404)


if __name__ == "__main__":
    unittest.main()

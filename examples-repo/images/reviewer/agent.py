"""A complete agent in one file, standard library only.

It reviews a text: it puts its instructions in front of the conversation, asks the
model, and returns the answer. Convoke tells it everything by environment variables:

    AGENT_NAME                  who it is
    AGENT_INSTRUCTIONS          its system prompt, in place of rules.md beside this file
    MODEL_API_URL, MODEL_NAME   which model it asks (OpenAI-compatible)

It serves on port 8000:

    GET  /health                the process runs
    GET  /ready                 it is configured and takes requests
    POST /v1/chat/completions   {"messages": [{"role": "user", "content": "..."}]}

It speaks no A2A and so has no card. Peers and `convoke ask` use chat completions then.
"""

import json
import os
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

RULES = Path(__file__).with_name("rules.md")
MAX_BODY_BYTES = 1024 * 1024
MODEL_DEADLINE_SECONDS = 120


class Config:
    """What the environment says."""

    def __init__(self, env=os.environ):
        self.name = env.get("AGENT_NAME", "reviewer")
        self.instructions = env.get("AGENT_INSTRUCTIONS") or RULES.read_text(encoding="utf-8")
        self.model_url = env.get("MODEL_API_URL", "").rstrip("/")
        self.model = env.get("MODEL_NAME", "")

    def missing(self):
        """Names of the variables without which it can't answer."""
        wanted = {"MODEL_API_URL": self.model_url, "MODEL_NAME": self.model}
        return [name for name, value in wanted.items() if not value]


def ask_model(config, messages):
    """Sends the conversation to the model; returns the provider's answer as it is."""
    base = config.model_url if config.model_url.endswith("/v1") else config.model_url + "/v1"
    body = {
        "model": config.model,
        "messages": [{"role": "system", "content": config.instructions}, *messages],
    }
    request = urllib.request.Request(
        base + "/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=MODEL_DEADLINE_SECONDS) as reply:
        return json.load(reply)


def handler(config):
    """Makes the request handler for one configuration."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/health":
                self.answer(200, {"status": "ok"})
            elif self.path == "/ready":
                missing = config.missing()
                self.answer(503 if missing else 200, {"missing": missing})
            else:
                self.answer(404, {"error": "not found"})

        def do_POST(self):
            if self.path != "/v1/chat/completions":
                return self.answer(404, {"error": "not found"})
            try:
                length = int(self.headers.get("Content-Length", ""))
            except ValueError:
                return self.answer(411, {"error": "Content-Length is needed"})
            if not 0 <= length <= MAX_BODY_BYTES:
                return self.answer(413, {"error": f"at most {MAX_BODY_BYTES} bytes"})
            try:
                messages = json.loads(self.rfile.read(length))["messages"]
            except (ValueError, KeyError, TypeError):
                return self.answer(400, {"error": "the body must be JSON with `messages`"})
            if not isinstance(messages, list):
                return self.answer(400, {"error": "`messages` must be a list"})
            if config.missing():
                return self.answer(503, {"missing": config.missing()})
            try:
                self.answer(200, ask_model(config, messages))
            except (urllib.error.URLError, TimeoutError, ValueError) as error:
                self.answer(502, {"error": f"the model did not answer: {error}"})

        def answer(self, status, body):
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            """Probes come every few seconds: keep them out of the log."""

    return Handler


if __name__ == "__main__":
    settings = Config()
    print(f"{settings.name} serves on port 8000, model {settings.model or '(none)'}")
    ThreadingHTTPServer(("", 8000), handler(settings)).serve_forever()

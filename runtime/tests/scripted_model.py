"""A model API that says what a script tells it to. Standard library only.

    python scripted_model.py --port N [--script FILE]

A script is a JSON object: {"rules": [{"prompt": REGEX, "system": REGEX, "steps": [STEP, …]}, …]}. The first rule whose
patterns are found in the last text of the user and in the system's texts holds. Its steps are taken in order, one a
request: how many were taken is seen from the conversation, so that nothing is kept between requests. The last step is
taken again. Without a rule the answer is `echo: ` and the prompt. A step is one of

    {"tool": NAME, "arguments": {…}}    asks for a tool ("calls": [{"tool", "arguments"}, …] for several at once)
    {"text": TEXT}                      answers; also beside "tool"
    "reasoning": TEXT                   thinks; beside "text" or "tool"
    "finish": "length"                  says that it ends for this reason; beside "text"
    "cut": true                         ends a stream before it says so; beside "text"
    "gzip": true                        packs the answer, asked for or not; beside "text"
    {"status": 429, "headers": {…}}     fails
    {"hang": true}                      never answers
    {"garbage": true}                   answers what is no JSON
    {"huge": BYTES}                     answers this much
    {"empty": true}                     answers nothing
    "delay": SECONDS                    first waits; beside any other

A script may also have "models": STATUS, with which lists of models are answered, and "key": TEXT. Then requests under /v1
that carry another key are answered with 401.

In texts and arguments, {prompt} is the user's last text, {told} the last line of the system's texts, {results} all results of tools
since, {0} the first of them.

    POST /v1/chat/completions, /v1/embeddings    GET /v1/models
    GET /requests     what was asked: [{"path", "headers", "body"}, …]     DELETE /requests     forgets it
    GET /state        {"hanging": N, "abandoned": N}: requests that hang, and those whose asker went
    PUT /script       takes another script
"""

import argparse
import gzip
import hashlib
import json
import re
import select
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY_BYTES = 16 << 20
MAX_KEPT = 2000
DIMENSIONS = 8


def text_of(content):
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""


class Conversation:
    """What a request's messages say."""

    def __init__(self, messages):
        self.system = "\n".join(
            text_of(one.get("content")) for one in messages if one["role"] in ("system", "developer")
        )
        last = max((n for n, one in enumerate(messages) if one["role"] == "user"), default=-1)
        since = messages[last + 1 :]
        self.prompt = text_of(messages[last].get("content")) if last >= 0 else ""
        self.steps_taken = sum(1 for one in since if one["role"] == "assistant")
        self.results = [text_of(one.get("content")) for one in since if one["role"] == "tool"]

    def filled(self, value):
        if isinstance(value, dict):
            return {key: self.filled(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.filled(inner) for inner in value]
        if not isinstance(value, str):
            return value
        told = self.system.rstrip().rpartition("\n")[2]
        value = value.replace("{told}", told).replace("{prompt}", self.prompt).replace("{results}", " | ".join(self.results))
        return re.sub(r"\{(\d+)\}", lambda found: (self.results + [""] * 100)[int(found[1])], value)


class Model:
    """The script and what was asked."""

    def __init__(self, script=None):
        self.lock = threading.Lock()
        self.rules = []
        self.requests = []
        self.hanging = 0
        self.abandoned = 0
        self.load(script or {})

    def load(self, script):
        self.rules = script.get("rules", [])
        self.models_status = script.get("models", 200)
        self.key = script.get("key")

    def takes(self, headers):
        """Whether a request carries the key."""
        return self.key is None or headers.get("Authorization") == f"Bearer {self.key}"

    def step(self, conversation):
        for rule in self.rules:
            if re.search(rule.get("prompt", ""), conversation.prompt) and re.search(
                rule.get("system", ""), conversation.system
            ):
                return rule["steps"][min(conversation.steps_taken, len(rule["steps"]) - 1)]
        return {"text": "echo: {prompt}"}

    def keep(self, path, headers, body):
        with self.lock:
            self.requests.append({"path": path, "headers": {k.lower(): v for k, v in headers.items()}, "body": body})
            del self.requests[:-MAX_KEPT]


def calls_of(step, conversation):
    asked = step.get("calls") or ([step] if "tool" in step else [])
    salt = f"{conversation.prompt}{conversation.steps_taken}"
    return [
        {
            "id": "call_" + hashlib.sha256(f"{salt}{n}".encode()).hexdigest()[:16],
            "type": "function",
            "function": {
                "name": one["tool"],
                "arguments": one["raw"] if "raw" in one else json.dumps(conversation.filled(one.get("arguments", {}))),
            },
        }
        for n, one in enumerate(asked)
    ]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 120
    # An answer goes out in one piece.
    wbufsize = -1
    disable_nagle_algorithm = True
    model = Model()

    def do_GET(self):
        if self.path == "/requests":
            self.answer(200, self.model.requests)
        elif self.path == "/state":
            self.answer(200, {"hanging": self.model.hanging, "abandoned": self.model.abandoned})
        elif self.path == "/v1/models" and self.model.models_status != 200:
            # To everybody: a server that does not work does not look at keys.
            self.answer(self.model.models_status, {"error": {"message": "scripted", "type": "scripted"}})
        elif self.path == "/v1/models" and not self.model.takes(self.headers):
            self.refuse_key()
        elif self.path == "/v1/models":
            self.answer(200, {"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "tests"}]})
        elif self.path in ("/health", "/health/liveliness", "/ready", "/"):
            self.answer(200, {"status": "ok"})
        else:
            self.answer(404, {"error": {"message": "no such path"}})

    def do_DELETE(self):
        self.model.requests.clear()
        self.answer(200, {})

    def do_PUT(self):
        self.model.load(self.body())
        self.answer(200, {})

    def do_POST(self):
        body = self.body()
        self.model.keep(self.path, self.headers, body)
        if not self.model.takes(self.headers):
            self.refuse_key()
        elif self.path == "/v1/embeddings":
            self.embeddings(body)
        elif self.path == "/v1/chat/completions":
            self.chat(body)
        else:
            self.answer(404, {"error": {"message": "no such path"}})

    def refuse_key(self):
        self.answer(401, {"error": {"message": "another key", "type": "invalid_request_error"}})

    def body(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY_BYTES:
            raise ValueError("too large")
        return json.loads(self.rfile.read(length) or b"{}")

    def embeddings(self, body):
        given = body.get("input", "")
        data = []
        for n, text in enumerate(given if isinstance(given, list) else [given]):
            digest = hashlib.sha256(str(text).encode()).digest()
            data.append({"object": "embedding", "index": n, "embedding": [b / 255 for b in digest[:DIMENSIONS]]})
        self.answer(200, {"object": "list", "model": body.get("model"), "data": data, "usage": usage_of("")})

    def chat(self, body):
        conversation = Conversation(body["messages"])
        step = self.model.step(conversation)
        time.sleep(step.get("delay", 0))
        if "status" in step:
            self.answer(step["status"], {"error": {"message": "scripted", "type": "scripted"}}, step.get("headers"))
        elif "hang" in step:
            self.hang()
        elif "garbage" in step:
            self.send(200, b"<html>this is no JSON", "text/html")
        elif "huge" in step:
            self.send(200, b" " * step["huge"] + b"{}", "application/json")
        else:
            text = conversation.filled(step.get("text", "")) if "text" in step else None
            thought = {"reasoning_content": step["reasoning"]} if "reasoning" in step else {}
            self.said(body, text, thought, calls_of(step, conversation), conversation, step)

    def said(self, body, text, thought, calls, conversation, step):
        usage = usage_of(conversation.prompt)
        reason = step.get("finish") or ("tool_calls" if calls else "stop")
        head = {"id": "chatcmpl-scripted", "created": int(time.time()), "model": body.get("model")}
        if not body.get("stream"):
            message = {"role": "assistant", "content": text} | thought | ({"tool_calls": calls} if calls else {})
            choice = {"index": 0, "message": message, "finish_reason": reason}
            whole = json.dumps(head | {"object": "chat.completion", "choices": [choice], "usage": usage}).encode()
            if step.get("gzip"):
                self.send(200, gzip.compress(whole), "application/json", {"Content-Encoding": "gzip"})
            else:
                self.send(200, whole, "application/json")
            return
        deltas = [{"role": "assistant", "content": ""} | thought]
        deltas += [{"content": piece} for piece in re.findall(r"\S+\s*", text or "")]
        deltas += [{"tool_calls": [{"index": n} | call]} for n, call in enumerate(calls)]
        chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        chunks.append({"choices": [], "usage": usage})
        lines = [f"data: {json.dumps(head | {'object': 'chat.completion.chunk'} | chunk)}\n\n" for chunk in chunks]
        lines.append("data: [DONE]\n\n")
        if step.get("cut"):
            lines = lines[:-3]
        self.send(200, "".join(lines).encode(), "text/event-stream")

    def hang(self):
        """Waits until the asker goes."""
        with self.model.lock:
            self.model.hanging += 1
        try:
            while not select.select([self.connection], [], [], 1)[0]:
                pass
        finally:
            with self.model.lock:
                self.model.hanging -= 1
                self.model.abandoned += 1
        self.close_connection = True

    def answer(self, status, value, headers=None):
        self.send(status, json.dumps(value).encode(), "application/json", headers)

    def send(self, status, data, kind, headers=None):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(data)
            self.wfile.flush()
        except OSError:
            self.close_connection = True

    def log_message(self, *_):
        """Says nothing."""


def usage_of(text):
    words = len(text.split())
    return {"prompt_tokens": 10 + words, "completion_tokens": 5, "total_tokens": 15 + words}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, *_):
        """An asker that went is nothing to tell."""


def server(model, port=0, host="127.0.0.1"):
    """A server for a model, not yet running."""
    return Server((host, port), type("Scripted", (Handler,), {"model": model}))


def main():
    parser = argparse.ArgumentParser(description="A model API that says what a script tells it to.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--script", help="a JSON file")
    given = parser.parse_args()
    script = {}
    if given.script:
        with open(given.script, encoding="utf-8") as file:
            script = json.load(file)
    running = server(Model(script), given.port, given.host)
    print(f"serves on port {running.server_port}", flush=True)
    running.serve_forever()


if __name__ == "__main__":
    sys.exit(main())

"""A model provider that speaks OpenAI's API, for tests: answers at once, and remembers what it was sent."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWER = "the answer"
PROMPT_TOKENS, COMPLETION_TOKENS = 7, 3
USAGE = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS, "total_tokens": 10}
# A prompt with it is answered with this status, and an error that repeats the prompt.
FAIL = "please fail with "


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """The proxy keeps connections, and ends: that is nothing to tell."""


class Provider:
    """`requests` has (method, path, headers, body) of each request; headers are in small letters."""

    def __init__(self, key):
        self.key = key
        self.requests = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 20

            def do_GET(self):
                provider.take(self, None)

            def do_POST(self):
                provider.take(self, json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0)))))

            def log_message(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def take(self, handler, body):
        """Answers a request."""
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.requests.append((handler.command, handler.path, headers, body))
        if headers.get("authorization") != f"Bearer {self.key}":
            self.send(handler, 401, {"error": {"message": "bad key", "type": "authentication_error"}})
        elif handler.path == "/v1/models":
            self.send(handler, 200, {"object": "list", "data": [{"id": "small", "object": "model"}]})
        elif handler.path == "/v1/embeddings":
            data = [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}]
            usage = {"prompt_tokens": 5, "total_tokens": 5}
            self.send(handler, 200, {"object": "list", "model": body["model"], "data": data, "usage": usage})
        elif handler.path == "/v1/chat/completions":
            self.chat(handler, body)
        else:
            self.send(handler, 404, {"error": {"message": "no such path"}})

    def chat(self, handler, body):
        prompt = json.dumps(body["messages"])
        if FAIL in prompt:
            status = int(prompt.split(FAIL)[1][:3])
            self.send(handler, status, {"error": {"message": f"cannot answer {prompt}", "type": "server_error"}})
        elif body.get("stream"):
            self.stream(handler, body)
        else:
            message = {"role": "assistant", "content": ANSWER}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self.send(handler, 200, self.head(body, "chat.completion") | {"choices": [choice], "usage": USAGE})

    def head(self, body, kind):
        return {"id": "one", "object": kind, "created": 1, "model": body["model"]}

    def stream(self, handler, body):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        head = self.head(body, "chat.completion.chunk")
        chunks = [{"choices": [{"index": 0, "delta": {"content": word + " "}}]} for word in ANSWER.split()]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if (body.get("stream_options") or {}).get("include_usage"):
            chunks.append({"choices": [], "usage": USAGE})
        for chunk in chunks:
            handler.wfile.write(b"data: " + json.dumps(head | chunk).encode() + b"\n\n")
        handler.wfile.write(b"data: [DONE]\n\n")
        handler.close_connection = True

    def send(self, handler, status, body):
        data = json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

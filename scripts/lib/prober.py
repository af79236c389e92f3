"""Asks what pods ask, from inside the cluster: by names of Services, and with keys. Tests run it in a pod.

    POST /   {"url", "method", "headers", "body", "seconds"}   answers {"status", "body"}, or {"error"} when there is no answer

The API server's proxy leads a test here. That proxy cannot send keys, and knows no names of Services. Standard library only.
"""

import json
import sys
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BYTES = 16 << 20
# Nobody's proxy is between two pods.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(wanted):
    """What comes of one request."""
    body = wanted.get("body")
    request = urllib.request.Request(
        wanted["url"],
        data=None if body is None else body.encode(),
        headers=wanted.get("headers", {}),
        method=wanted.get("method", "GET"),
    )
    try:
        with OPENER.open(request, timeout=wanted.get("seconds", 10)) as reply:
            return {"status": reply.status, "body": reply.read(MAX_BYTES).decode(errors="replace")}
    except urllib.error.HTTPError as error:
        with error:
            return {"status": error.code, "body": error.read(MAX_BYTES).decode(errors="replace")}
    except (OSError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.say({"status": "ok"})

    def do_POST(self):
        wanted = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        self.say(ask(wanted))

    def say(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Says nothing: requests carry keys."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler)
    server.daemon_threads = True
    server.serve_forever()

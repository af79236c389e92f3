"""Serves on port 8000 until SIGTERM. Standard library only.

    GET  /health                        the process runs
    GET  /ready                         it takes requests
    GET  /.well-known/agent-card.json   who it is, for its peers (A2A 0.3)
    else                                501: it asks no model

What Convoke's operator tells it: AGENT_NAME, AGENT_DESCRIPTION. PORT is for those who run it by hand.
"""

import json
import os
import re
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DEFAULT_PORT = 8000
CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
# What a caller may say this agent is called; it goes into the card.
HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:]{2,45}\](:[0-9]{1,5})?")
SOCKET_SECONDS = 30


def card(environment, host):
    """The A2A card of this agent, as it is reached under `host`."""
    name = environment.get("AGENT_NAME") or "agent"
    return {
        "protocolVersion": "0.3.0",
        "name": name,
        "description": environment.get("AGENT_DESCRIPTION") or f"The agent {name}.",
        "url": f"http://{host}/",
        "version": "0.1.0",
        "capabilities": {"streaming": False, "pushNotifications": False},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    timeout = SOCKET_SECONDS
    environment = os.environ

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path in ("/health", "/ready"):
            self.answer(200, {"status": "ok"})
        elif path in CARD_PATHS:
            host = self.headers.get("Host", "")
            if not HOST.fullmatch(host):
                host = "localhost:%d" % self.server.server_port
            self.answer(200, card(self.environment, host))
        else:
            self.refuse()

    def do_POST(self):
        self.refuse()

    do_PUT = do_DELETE = do_PATCH = do_POST

    def refuse(self):
        # The body is not read: the connection cannot go on.
        self.close_connection = True
        self.answer(501, {"error": "this image answers probes and describes itself; it asks no model"})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Probes come every few seconds: keep them out of the log."""


def main():
    server = ThreadingHTTPServer(("", int(os.environ.get("PORT") or DEFAULT_PORT)), Handler)
    # The first process of a container ends by no signal that it doesn't handle. `shutdown` waits for the loop below.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"{os.environ.get('AGENT_NAME') or 'agent'} serves on port {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())

"""Counters by agent and model, and the listener where scrapers read them. No content, no keys, no other names."""

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKENS = "convoke_model_tokens_total"
REQUESTS = "convoke_model_requests_total"
REFUSALS = "convoke_model_refusals_total"
HELP = {
    TOKENS: "Tokens by agent, model and kind, as the provider counted them.",
    REQUESTS: "Requests for chat completions and embeddings with a good key, by class of the status.",
    REFUSALS: "Requests that were refused before a model was asked, by reason.",
}
# The label of agents that the list does not have.
UNLISTED = ""
SOCKET_SECONDS = 10
# A connection with its one request ends by then, however slowly it goes on.
CONNECTION_SECONDS = 30
MOST_CONNECTIONS = 16


class Counters:
    """Counts. Series of agents that left the list are gone, so there are never more than listed agents."""

    def __init__(self):
        self.lock = threading.Lock()
        self.values = {TOKENS: {}, REQUESTS: {}, REFUSALS: {}}
        self.agents = frozenset()

    def agents_changed(self, names):
        """Takes the names of the listed agents."""
        with self.lock:
            self.agents = names
            for name in (TOKENS, REQUESTS):
                kept = {labels: value for labels, value in self.values[name].items() if self.known(labels[0][1])}
                self.values[name] = kept

    def known(self, agent):
        return agent == UNLISTED or agent in self.agents

    def add(self, name, amount, **labels):
        with self.lock:
            if "agent" in labels and not self.known(labels["agent"]):
                labels["agent"] = UNLISTED
            key = tuple(labels.items())
            self.values[name][key] = self.values[name].get(key, 0) + amount

    def tokens(self, agent, model, usage):
        """Counts tokens of an answer: usage is {kind: number}."""
        for kind, amount in usage.items():
            if amount > 0:
                self.add(TOKENS, amount, agent=agent, model=model, kind=kind)

    def request(self, agent, model, status):
        self.add(REQUESTS, 1, agent=agent, model=model, status=f"{status // 100}xx")

    def refusal(self, reason):
        self.add(REFUSALS, 1, reason=reason)

    def text(self):
        """All of it in Prometheus's text format."""
        with self.lock:
            copies = {name: sorted(values.items()) for name, values in self.values.items()}
        lines = []
        for name, values in copies.items():
            lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} counter"]
            lines += [f"{name}{{{series(labels)}}} {value}" for labels, value in values]
        return "\n".join(lines) + "\n"


def series(labels):
    return ",".join(f'{name}="{escape(value)}"' for name, value in labels)


def escape(text):
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Listener(ThreadingHTTPServer):
    """A server on a bound socket, with a bound on its threads."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, sock, handler):
        super().__init__(sock.getsockname(), handler, bind_and_activate=False)
        # In place of the one that it made, which is of IPv4 only.
        self.socket.close()
        self.socket = sock
        self.free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.server_activate()

    def process_request(self, request, client_address):
        if self.free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request, client_address):
        timer = threading.Timer(CONNECTION_SECONDS, cut, (request,))
        timer.daemon = True
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            self.free.release()

    def handle_error(self, request, client_address):
        """A scraper that went away is nothing to tell."""


def cut(request):
    """Ends a connection, so that whoever reads or writes there goes on."""
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def listener(sock, pages):
    """A server of pages (path: function that gives status, type and text), which runs in threads of its own."""

    class Handler(BaseHTTPRequestHandler):
        timeout = SOCKET_SECONDS

        def do_GET(self):
            page = pages.get(self.path)
            status, kind, text = page() if page else (404, "text/plain", "not found\n")
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            """Scrapers come every few seconds: keep them out of the log."""

    server = Listener(sock, Handler)
    threading.Thread(target=server.serve_forever, daemon=True, name="metrics").start()
    return server

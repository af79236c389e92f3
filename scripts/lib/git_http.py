#!/usr/bin/env python3
"""Serves one bare Git repository read-only over smart HTTP on one address, by `git http-backend`.

    git_http.py REPOSITORY [--address 127.0.0.1] [--port PORT]

The repository `team.git` is at http://ADDRESS:PORT/team.git. The port is printed once the server listens; a
wanted port that is taken is replaced by a free one. Pushing goes to the repository's path, never through here.

If there is a file REPOSITORY.authorization, requests without its content as their header `Authorization` are answered with 401.

Standard library only, Python 3.11 or newer.
"""

import argparse
import hmac
import os
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

BODY_LIMIT = 16 * 1024 * 1024  # what a client wants and has; packs go the other way
SECONDS = 60


class TooLarge(Exception):
    """The request's body is beyond BODY_LIMIT."""


class Handler(BaseHTTPRequestHandler):
    """One request as a CGI call."""

    protocol_version = "HTTP/1.1"
    timeout = SECONDS
    repository: Path

    def log_message(self, format, *args):  # noqa: A002 (the name is given)
        print(format % args, file=sys.stderr, flush=True)

    def refuse(self, code):
        # The body may be unread: this connection is of no more use.
        self.close_connection = True
        self.send_response(code)
        self.send_header("Connection", "close")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def body(self):
        """The request's body, by length or in chunks (large requests of git come in chunks)."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts, size = [], 0
            while length := int(self.rfile.readline(32).split(b";")[0], 16):
                size += length
                if size > BODY_LIMIT:
                    raise TooLarge
                parts.append(self.rfile.read(length))
                self.rfile.readline(4)
            while self.rfile.readline(1024).strip():
                pass
            return b"".join(parts)
        length = int(self.headers.get("Content-Length") or 0)
        if length > BODY_LIMIT:
            raise TooLarge
        return self.rfile.read(length)

    def is_refused(self):
        """Whether it lacks the credentials that are wanted now."""
        try:
            wanted = self.repository.with_name(f"{self.repository.name}.authorization").read_text()
        except FileNotFoundError:
            return False
        return not hmac.compare_digest(self.headers.get("Authorization", "").encode(), wanted.encode())

    def handle_git(self):
        if self.is_refused():
            return self.refuse(401)
        url = urlsplit(self.path)
        name = self.repository.name
        if not url.path.startswith(f"/{name}/") or ".." in url.path or "%" in url.path:
            return self.refuse(404)
        try:
            body = self.body()
        except TooLarge:
            return self.refuse(413)
        except ValueError:
            return self.refuse(400)
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": os.environ.get("HOME", "/"),
            "GIT_PROJECT_ROOT": str(self.repository.parent),
            "GIT_HTTP_EXPORT_ALL": "1",
            # Reading only, whatever the repository's own configuration says.
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "http.receivepack",
            "GIT_CONFIG_VALUE_0": "false",
            "PATH_INFO": url.path,
            "QUERY_STRING": url.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            # git http-backend unpacks gzip itself when told so.
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": self.client_address[0],
        }
        try:
            reply = subprocess.run(
                ["git", "http-backend"], input=body, env=environment, stdout=subprocess.PIPE, timeout=SECONDS, check=False
            ).stdout
        except subprocess.TimeoutExpired:
            return self.refuse(504)
        head, _, content = reply.partition(b"\r\n\r\n")
        code, headers = 200, []
        for line in head.decode("latin-1").splitlines():
            key, _, value = line.partition(":")
            if key.lower() == "status":
                code = int(value.split()[0])
            elif key:
                headers.append((key, value.strip()))
        if not headers:
            return self.refuse(500)
        self.send_response(code)
        for key, value in headers:
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = handle_git
    do_POST = handle_git


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("repository", type=Path)
    parser.add_argument("--address", default="127.0.0.1", help="who reaches it may read the repository")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    if shutil.which("git") is None:
        sys.exit("error: git is missing")
    Handler.repository = options.repository.resolve(strict=True)
    ThreadingHTTPServer.daemon_threads = True
    try:
        server = ThreadingHTTPServer((options.address, options.port), Handler)
    except OSError:
        server = ThreadingHTTPServer((options.address, 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass

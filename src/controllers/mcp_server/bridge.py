"""Serves a program that speaks MCP over stdio as MCP over HTTP, and ends when that program ends.

    python -I -c THIS FOLDER PORT PROGRAM [ARGUMENT...]      FOLDER is where mcp-proxy is installed

The program gets the environment of this process; this process takes no module from what it names (-I). Each client's
request goes to the one program that runs, at once. Without a session of its own (--stateless), a client may be
answered by any of several pods, and need not notice that one was replaced.
"""

import contextlib
import os
import signal
import socket
import sys

# mcp-proxy would go on without its program, and say so in each answer: a container that nobody restarts. Run between the
# two, this says when the program ends. Its parent is the one that started it, or gone.
WATCH = """
import os, signal, subprocess, sys
parent = os.getppid()
try:
    code = subprocess.call(sys.argv[1:])
    print(sys.argv[1], "ended with exit code", code, file=sys.stderr, flush=True)
except OSError as error:
    print(error, file=sys.stderr, flush=True)
if os.getppid() == parent:
    os.kill(parent, signal.SIGUSR1)
"""


def bound(family, address):
    """A socket that has its port and does not listen yet."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def everywhere(port):
    """A socket for all addresses, of IPv6 and IPv4 where there are both."""
    if socket.has_dualstack_ipv6():
        # A machine may know IPv6 and have it switched off.
        with contextlib.suppress(OSError):
            return bound(socket.AF_INET6, ("::", port))
    return bound(socket.AF_INET, ("", port))


def main():
    folder, port, *program = sys.argv[1:]
    # At once, whatever else waits; and always a failure, as a server has no reason to end.
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(1))
    sys.path.insert(0, folder)
    watch = [sys.executable, "-I", "-c", WATCH, *program]
    options = ["--port", port, "--stateless", "--pass-environment", "--log-level", "WARNING"]
    sys.argv = ["mcp-proxy", *options, "--", *watch]
    import uvicorn
    from mcp_proxy.__main__ import main as run

    # mcp-proxy takes one address, of one family: it is given a socket instead.
    serve = uvicorn.Server.serve
    uvicorn.Server.serve = lambda server: serve(server, [everywhere(int(port))])
    run()


main()

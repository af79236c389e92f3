"""Serves the functions of MCP_TOOLS_STRING as tools: MCP over HTTP, on port 8000 ($PORT), path /mcp.

Their signatures and docstrings are what a model sees. No session is kept: any of several pods may answer any request.
"""

import os
import sys

import uvicorn
from convoke_agent.listener import listener
from mcp.server import MCPServer

from .functions import BadTools, public_functions

DEFAULT_PORT = 8000


def server_of(functions, name):
    """A tool server of these functions."""
    server = MCPServer(name, log_level="WARNING")
    for function in functions.values():
        server.add_tool(function)
    return server


def main():
    source = os.environ.get("MCP_TOOLS_STRING")
    if not source:
        return "error: MCP_TOOLS_STRING is empty: it is the Python source of the tools"
    try:
        functions = public_functions(source)
    except BadTools as error:
        return f"error: the tools cannot be read: {error}"
    server = server_of(functions, "tools")
    port = int(os.environ.get("PORT") or DEFAULT_PORT)
    try:
        sock = listener(port)
    except OSError as error:
        return f"error: cannot listen: {error}"
    print(f"serves {', '.join(functions)} on port {port}", flush=True)
    # Asked by any name: it is told that it serves more than this machine.
    app = server.streamable_http_app(stateless_http=True, host="::")
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])
    return None


if __name__ == "__main__":
    sys.exit(main())

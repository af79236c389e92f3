"""Headers of a tool server arrive there with each request, and nowhere else."""

import json
import os
import sys
import tempfile
import unittest

from tests.support import Agent, Program, ScriptedModel, free_port, wait_until

# Takes what carries both headers, refuses the rest, and leads to ELSEWHERE from its query `moved`. It says what came:
# taken, refused or moved, the query, HTTP's and MCP's method.
GUARDED = """
import json, os, uvicorn
try:
    from mcp.server import MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server
server = Server("guarded")
@server.tool()
def echo(text: str) -> str:
    return "the guarded tool says " + text
inner = server.streamable_http_app()
WANTED = {b"authorization": b"Bearer secret", b"x-team": b"red"}
async def app(scope, receive, send):
    if scope["type"] != "http":
        return await inner(scope, receive, send)
    headers, body, more = dict(scope["headers"]), b"", scope["method"] == "POST"
    while more:
        event = await receive()
        body, more = body + event["body"], event["more_body"]
    said = "taken" if all(headers.get(name) == value for name, value in WANTED.items()) else "refused"
    query = scope["query_string"].decode()
    more, status = [(b"content-length", b"0")], 401
    if query == "moved":
        said, more, status = "moved", [*more, (b"location", os.environ["ELSEWHERE"].encode())], 307
    print(said, query, scope["method"], json.loads(body)["method"] if body else "none", flush=True)
    if said != "taken":
        await send({"type": "http.response.start", "status": status, "headers": more})
        return await send({"type": "http.response.body", "body": b""})
    given = [{"type": "http.request", "body": body, "more_body": False}] if body else []
    async def again():
        return given.pop() if given else await receive()
    await inner(scope, again, send)
uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="error")
"""
RIGHT = [{"name": "Authorization", "env": "MCP_SERVER_T_HEADER_0"}, {"name": "X-Team", "env": "MCP_SERVER_T_HEADER_1"}]
WRONG = [{"name": "Authorization", "env": "MCP_SERVER_WRONG_HEADER_0"}, RIGHT[1]]
# The same server five times, with these headers each.
SERVERS = {"right": RIGHT, "none": [], "one": RIGHT[:1], "wrong": WRONG, "moved": RIGHT}
VALUES = {
    "MCP_SERVER_T_HEADER_0": "Bearer secret",
    "MCP_SERVER_T_HEADER_1": "red",
    "MCP_SERVER_WRONG_HEADER_0": "Bearer other",
}


class Headers(unittest.TestCase):
    """A server of today's protocol, which has no sessions."""

    python = sys.executable

    def check_methods(self, methods):
        self.assertNotIn(("POST", "initialize"), methods())

    def test_t6_tools_are_listed_and_called_with_all_of_them_only(self):
        call = {"tool": "echo", "arguments": {"text": "{prompt}"}}
        ask = {"tool": "delegate_to_other", "arguments": {"message": "hear"}}
        end = {"text": "{results}"}
        model = ScriptedModel([{"prompt": "^use", "steps": [call, end]}, {"prompt": "^ask", "steps": [ask, end]}])
        self.addCleanup(model.stop)
        port = free_port()
        server = Program(["-c", GUARDED], {"PORT": str(port), "ELSEWHERE": f"{model.url}/elsewhere"}, self.python)
        self.addCleanup(server.stop)
        url = f"http://127.0.0.1:{port}/mcp"
        servers = [{"name": name, "url": f"{url}?{name}", "headers": headers} for name, headers in SERVERS.items()]
        peers = [{"name": "other", "url": f"{model.url}/other"}]
        folder = self.enterContext(tempfile.TemporaryDirectory())
        with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
            json.dump({"mcpServers": servers, "peers": peers}, file)
        environment = {"MODEL_API_URL": model.url, "AGENT_CONFIG_FILE": f"{folder}/config.json"}
        agent = Agent("critic", environment | VALUES, wait=False)
        self.addCleanup(agent.stop)

        def told(what):
            """What came with the requests that the server took, refused or led elsewhere."""
            words = [line.split() for line in list(server.lines)]
            return [tuple(one[1:]) for one in words if one and one[0] == what]

        unlisted = ["none", "one", "wrong"]
        wait_until(lambda: {one[0] for one in told("refused")} >= set(unlisted), "all are asked")
        wait_until(lambda: told("moved"), "the one that moved is asked")
        wait_until(lambda: (agent.state()[1] or {}).get("missing") == [*unlisted, "moved"], "the tools are listed")
        self.assertEqual(agent.said("use it"), "the guarded tool says use it")
        offered = [one["function"]["name"] for one in model.asked("use it")[0]["body"]["tools"]]
        self.assertEqual(offered, ["echo", "delegate_to_other"])
        self.assertEqual({one[0] for one in told("refused")}, set(unlisted))
        self.assertEqual({one[0] for one in told("taken")}, {"right"})
        methods = lambda: {one[1:] for one in told("taken")}
        self.assertLessEqual({("POST", "tools/list"), ("POST", "tools/call")}, methods())
        self.check_methods(methods)
        # The model and a peer do not get them, and nobody follows to where the one moved.
        agent.said("ask it")
        asked = list(model.model.requests)
        self.assertEqual({one["path"].partition("/v1")[0] for one in asked}, {"", "/other"})
        self.assertNotIn("x-team", {name for one in asked for name in one["headers"]})
        self.assertNotIn("secret", json.dumps(asked))
        self.assertEqual(agent.state()[0], 503)
        self.assertNotIn("secret", f"{agent.state()} {agent.output()}")


@unittest.skipUnless(os.environ.get("OLD_MCP_PYTHON"), "OLD_MCP_PYTHON names no Python with a version of mcp below 2")
class OlderHeaders(Headers):
    """A server of the protocol's versions with sessions."""

    python = os.environ.get("OLD_MCP_PYTHON")

    def check_methods(self, methods):
        # The stream of what a server says by itself has them, too.
        wait_until(lambda: methods() >= {("POST", "initialize"), ("GET", "none")}, "the session and its stream begin")


if __name__ == "__main__":
    unittest.main()

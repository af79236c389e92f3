"""Tools of MCP servers within the loop."""

import json
import os
import subprocess
import tempfile
import unittest

from tests.support import Agent, ScriptedModel, ToolServer, ask, free_port, opens, wait_until


OTHER = """
def same(x: str) -> str:
    return 'other ' + x
def hidden() -> str:
    return ''
def careful(text: str) -> str:
    return text
"""


def use(name, arguments=None, **more):
    step = {"tool": name, "arguments": arguments or {}} | more
    return {"prompt": f"^use {name}( |$)", "steps": [step, {"text": "results: {results}"}]}


class Tools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = ScriptedModel(
            [
                use("echo", {"text": "{prompt}"}),
                use("fails", {"text": "badly"}),
                use("hangs"),
                use("long", {"characters": 200_000}),
                use("hidden"),
                use("careful", {"text": "x"}),
                use("note", raw="this is no JSON"),
                {
                    "prompt": "use two",
                    "steps": [
                        {
                            "calls": [
                                {"tool": "echo", "arguments": {"text": "a"}},
                                {"tool": "count_words", "arguments": {"text": "a b c"}},
                            ]
                        },
                        {"text": "{0} and {1}"},
                    ],
                },
            ]
        )
        cls.addClassCleanup(cls.model.stop)
        cls.server = ToolServer()
        cls.addClassCleanup(cls.server.stop)
        cls.other = ToolServer(OTHER)
        cls.addClassCleanup(cls.other.stop)
        cls.third = ToolServer("def same(x: str) -> str:\n    return 'third ' + x\n")
        cls.addClassCleanup(cls.third.stop)
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        servers = [
            {"name": "text-tools", "url": cls.server.url},
            {"name": "other", "url": cls.other.url, "tools": ["same", "careful"], "requireApproval": ["careful"]},
            {"name": "third", "url": cls.third.url, "headers": [{"name": "Authorization", "env": "THIRD"}]},
        ]
        with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
            json.dump({"mcpServers": servers, "agenticLoop": {"maxSeconds": 20}}, file)
        environment = {"MODEL_API_URL": cls.model.url, "AGENT_TOOL_TIMEOUT_SECONDS": "1", "THIRD": "Bearer t"}
        cls.agent = Agent("critic", environment | {"AGENT_CONFIG_FILE": f"{folder}/config.json"})
        cls.addClassCleanup(cls.agent.stop)

    def test_a_result_reaches_the_model(self):
        self.assertEqual(self.agent.said("use echo now"), "results: tool says use echo now")

    def test_two_at_once(self):
        self.assertEqual(self.agent.said("use two"), "tool says a and 3")

    def test_names_that_clash_get_their_servers_name(self):
        self.agent.said("hello names")
        offered = [one["function"]["name"] for one in self.model.asked("hello names")[0]["body"]["tools"]]
        self.assertEqual(
            sorted(offered),
            ["careful", "count_words", "echo", "fails", "hangs", "long", "note", "other_same", "third_same"],
        )

    def test_a_tool_that_is_not_allowed_is_not_there(self):
        said = self.agent.said("use hidden")
        self.assertIn("hidden", said)
        self.assertNotIn("results: \n", said)
        self.assertIn("Unknown tool", said)

    def test_errors_go_to_the_model(self):
        self.assertIn("Error executing tool fails", self.agent.said("use fails"))
        self.assertIn("did not answer within 1 s", self.agent.said("use hangs"))
        self.assertIn("results: ", self.agent.said("use note"))

    def test_a_long_result_is_cut(self):
        said = self.agent.said("use long")
        self.assertIn("[cut: 134464 of 200000 characters are left out]", said)
        self.assertLess(len(said), 66_000)

    def test_chat_cannot_ask_for_approval(self):
        self.assertIn("needs approval, which this interface cannot ask for", self.agent.said("use careful"))

    def test_the_card_counts_them(self):
        card = ask(self.agent.url, "/.well-known/agent-card.json")[1]
        self.assertEqual(
            card["capabilities"]["extensions"][0]["params"]["tools"], {"text-tools": 6, "other": 2, "third": 1}
        )


class Lost(unittest.TestCase):
    def test_ready_waits_for_the_tools_but_not_for_ever(self):
        model = ScriptedModel([use("echo", {"text": "{prompt}"})])
        self.addCleanup(model.stop)
        port = free_port()
        servers = {"MCP_SERVERS": "t", "MCP_SERVER_T_URL": f"http://127.0.0.1:{port}/mcp"}
        agent = Agent("critic", {"MODEL_API_URL": model.url} | servers, wait=False)
        self.addCleanup(agent.stop)
        wait_until(lambda: "tools of the server t" in str(agent.state()[1]), "the agent tells what it waits for")
        self.assertEqual(agent.state()[0], 503)
        server = ToolServer(port=port)
        agent.wait_ready()
        self.assertEqual(agent.said("use echo 1"), "results: tool says use echo 1")
        server.stop()
        said = agent.said("use echo 2")
        self.assertRegex(said, "results: .*(failed|cannot be reached)")
        self.assertEqual(agent.state()[0], 200)
        server = ToolServer(port=port)
        self.addCleanup(server.stop)
        wait_until(lambda: "tool says" in agent.said("use echo 3"), "the tools are back", 15)
        self.assertEqual(model.model.abandoned, 0)


OLD = """
import os
from mcp.server.fastmcp import FastMCP
server = FastMCP("old", host="127.0.0.1", port=int(os.environ["PORT"]), log_level="ERROR")
@server.tool()
def echo(text: str) -> str:
    return "old tool says " + text
server.run(transport="streamable-http")
"""


@unittest.skipUnless(os.environ.get("OLD_MCP_PYTHON"), "OLD_MCP_PYTHON names no Python with a version of mcp below 2")
class Older(unittest.TestCase):
    """A server of the protocol's versions with sessions."""

    def start(self, port):
        environment = {"PORT": str(port), "PATH": os.environ["PATH"]}
        process = subprocess.Popen([os.environ["OLD_MCP_PYTHON"], "-c", OLD], env=environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_its_tools_work_after_a_restart_too(self):
        model = ScriptedModel([use("echo", {"text": "{prompt}"})])
        self.addCleanup(model.stop)
        port = free_port()
        server = self.start(port)
        url = f"http://127.0.0.1:{port}/mcp"
        agent = Agent("critic", {"MODEL_API_URL": model.url, "MCP_SERVERS": "t", "MCP_SERVER_T_URL": url})
        self.addCleanup(agent.stop)
        self.assertEqual(agent.said("use echo 1"), "results: old tool says use echo 1")
        server.kill()
        server.wait()
        self.start(port)
        wait_until(lambda: opens(port), "the server serves again")
        self.assertEqual(agent.said("use echo 2"), "results: old tool says use echo 2")


if __name__ == "__main__":
    unittest.main()

"""What the quick start ends with: agents of the example repository, whose model is a script."""

import importlib.util
import json
import pathlib
import unittest

from tests.support import Agent, ScriptedModel, ToolServer, free_port, text_of

ROOT = pathlib.Path(__file__).parents[2]
PROMPTS = ROOT / "examples-repo/team/agents/prompts"
TOOLS = (ROOT / "examples-repo/team/tools/tools.py").read_text()
SCRIPT = json.loads((ROOT / "scripts/lib/scripted_model.json").read_text())
SAYS = "This is the scripted model of the quick start: "


class QuickStart(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = ScriptedModel(SCRIPT["rules"])
        cls.addClassCleanup(cls.model.stop)

    def agent(self, name, port, peer, peer_port, more=None):
        # As people change it.
        prompt = (PROMPTS / f"{name}.md").read_text() + "- Prefer sources from the last two years.\n"
        environment = {
            "MODEL_API_URL": self.model.url,
            "AGENT_INSTRUCTIONS": prompt,
            "PEER_AGENTS": peer,
            f"PEER_AGENT_{peer.upper()}_CARD_URL": f"http://127.0.0.1:{peer_port}",
        } | (more or {})
        agent = Agent(name, environment, port)
        self.addCleanup(agent.stop)
        return agent

    def test_a2_the_researcher_asks_the_writer_and_both_say_that_a_script_speaks(self):
        first, second = free_port(), free_port()
        writer = self.agent("writer", second, "researcher", first)
        tools = ToolServer(TOOLS)
        self.addCleanup(tools.stop)
        more = {"MCP_SERVERS": "text-tools", "MCP_SERVER_text-tools_URL": tools.url}
        researcher = self.agent("researcher", first, "writer", second, more)
        note = f"{SAYS}the writer has read the note."
        self.assertEqual(text_of(writer.send("A note.")), note)
        answer = text_of(researcher.send("Does it work?"))
        self.assertTrue(answer.startswith(SAYS), answer)
        self.assertIn("counted by a tool, 3, and", answer)
        self.assertTrue(answer.endswith(f"The writer answered: {note}"), answer)

    def test_a2_other_agents_hear_what_they_asked(self):
        agent = Agent("other", {"MODEL_API_URL": self.model.url, "AGENT_INSTRUCTIONS": "You are somebody."})
        self.addCleanup(agent.stop)
        answer = text_of(agent.send("Why?"))
        self.assertTrue(answer.startswith(SAYS) and answer.endswith("Why?"), answer)

    def test_the_reviewer_of_the_image_says_the_last_of_its_rules(self):
        path = ROOT / "examples-repo/images/reviewer/agent.py"
        spec = importlib.util.spec_from_file_location("reviewer", path)
        reviewer = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(reviewer)
        config = reviewer.Config({"MODEL_API_URL": self.model.url, "MODEL_NAME": "small"})
        # As people change it.
        config.instructions += "- Ask for a source of every number.\n"
        reply = reviewer.ask_model(config, [{"role": "user", "content": "Trains are fast."}])
        said = f"{SAYS}the last rule in the reviewer's image is: - Ask for a source of every number."
        self.assertEqual(reply["choices"][0]["message"]["content"], said)


if __name__ == "__main__":
    unittest.main()

"""Many conversations at once."""

import concurrent.futures
import re
import time
import unittest
from pathlib import Path

from tests.support import Agent, ScriptedModel, ToolServer, text_of

CONVERSATIONS = 200


class Many(unittest.TestCase):
    def test_no_answer_is_lost_or_mixed(self):
        rule = {
            "prompt": "words",
            "steps": [{"tool": "echo", "arguments": {"text": "{prompt}"}}, {"delay": 0.2, "text": "{0}"}],
        }
        model = ScriptedModel([rule])
        self.addCleanup(model.stop)
        tools = ToolServer()
        self.addCleanup(tools.stop)
        environment = {"MODEL_API_URL": model.url, "MCP_SERVERS": "t", "MCP_SERVER_T_URL": tools.url}
        # A busy machine is no reason to fail.
        environment["AGENT_TOOL_TIMEOUT_SECONDS"] = "200"
        agent = Agent("critic", environment)
        self.addCleanup(agent.stop)

        def talk(n):
            first = agent.said(f"words of {n:03}", {"X-Session-Id": f"s{n}"})
            second = text_of(agent.send(f"more of {n:03}", message={"contextId": f"s{n}"}))
            return first, second

        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(CONVERSATIONS) as pool:
            answers = list(pool.map(talk, range(CONVERSATIONS)))
        took = time.monotonic() - began
        for n, answer in enumerate(answers):
            self.assertEqual(answer, (f"tool says words of {n:03}", f"echo: more of {n:03}"))
            before = [one["content"] for one in model.asked(f"more of {n:03}")[0]["body"]["messages"]]
            self.assertIn(f"words of {n:03}", before)
        self.assertEqual(agent.state()[0], 200)
        memory = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{agent.process.pid}/status").read_text())
        print(f"{CONVERSATIONS} conversations: {took:.1f} s, the agent's peak {int(memory[1]) >> 10} MiB", flush=True)


if __name__ == "__main__":
    unittest.main()

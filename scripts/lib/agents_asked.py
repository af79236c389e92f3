"""Tests of test_agents.py: agents are asked on the command line. Standard library only."""

import os
import pty
import select
import subprocess
import time
import unittest
from pathlib import Path

from agents_questions import answer, only_pod, stage
from agents_team import NAMESPACE


class AgentsAreAsked(unittest.TestCase):
    """The command line as a person uses it, with the rights of the Role and no others."""

    maxDiff = 4000
    CALL = {"server": "everything", "tool": "echo", "arguments": {"message": "Read this out."}}

    def waiting(self):
        """The task of a question whose tool needs approval."""
        asked = stage.convoke_ask("clerk", self.CALL["arguments"]["message"], code=5)
        self.assertEqual((asked["state"], asked["approval"]), ("input-required", self.CALL), asked)
        return asked["taskId"]

    def on_a_terminal(self, task, typed):
        """What is shown, when this is typed as soon as the call is; and the exit code."""
        command, environment = stage.convoke("ask", "agent/clerk", "--task", task)
        ours, theirs = pty.openpty()
        asking = subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        shown, until = b"", time.monotonic() + 90
        try:
            while time.monotonic() < until:
                if not select.select([ours], [], [], 1)[0]:
                    continue
                try:
                    shown += os.read(ours, 4096)
                except OSError:
                    # Nobody has the other end any more.
                    break
                if typed and b"approve? [y/N] " in shown:
                    os.write(ours, typed.encode())
                    typed = None
            return shown.decode(), asking.wait(timeout=20)
        finally:
            os.close(ours)
            if asking.poll() is None:
                asking.kill()
                asking.wait()

    def test_d5_a_call_is_made_once_whoever_asked_agrees_and_only_once(self):
        task = self.waiting()
        shown, code = self.on_a_terminal(task, "y\n")
        self.assertIn("tool: echo", shown)
        self.assertIn("the clerk was told: Echo: Read this out.", shown)
        self.assertEqual(code, 0, shown)
        shown, code = self.on_a_terminal(task, "y\n")
        self.assertNotIn("approve?", shown)
        self.assertNotEqual(code, 0, shown)

    def test_d5_a_call_that_is_refused_is_not_made(self):
        shown, code = self.on_a_terminal(self.waiting(), "\n")
        self.assertNotIn("Echo: ", shown)
        self.assertIn("the clerk was told: ", shown)
        task = self.waiting()
        denied = stage.convoke_ask("clerk", "--task", task, "--deny")
        self.assertEqual(denied["state"], "completed", denied)
        self.assertNotIn("Echo: ", denied["answer"])

    def test_d4_a_conversation_goes_on_line_by_line(self):
        command, environment = stage.convoke("ask", "agent/plain", "-i")
        done = subprocess.run(
            command,
            env=environment,
            input="How do you answer?\nWhat else?\n/quit\n",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        first, _, second = done.stdout.partition("in prose")
        self.assertIn("echo: What else?", second, done.stdout)

    def test_d6_logs_are_followed_into_the_next_pod(self):
        before = only_pod("plain")["metadata"]["name"]
        command, environment = stage.convoke("logs", "agent/plain", "-f", "--tail", "1")
        with open(stage.state / "followed", "w+b") as out:
            following = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            try:
                lines = lambda: [line for line in Path(out.name).read_text().splitlines() if '"method"' in line]
                answer("plain", "How do you answer?")
                stage.eventually("a line of the question", lines, seconds=60)
                stage.api.delete("pods", NAMESPACE, before)
                gone = lambda: only_pod("plain")["metadata"]["name"] != before
                stage.eventually("another pod", gone)
                known = len(lines())
                stage.eventually("an answer of the next pod", lambda: answer("plain", "How do you answer?") == "in prose")
                stage.eventually("a line of the next pod", lambda: len(lines()) > known, seconds=60)
            finally:
                following.kill()
                following.wait()
        self.assertNotIn("How do you answer?", Path(out.name).read_text())

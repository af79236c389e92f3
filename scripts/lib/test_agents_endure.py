"""Agents on a node when something goes wrong: a node that begins anew, an API server that is silent, models, tools and peers that fail.

    cd scripts/lib && python3 -B -m unittest -v test_agents_endure        needs root; scripts/test runs it

They have a cluster of their own, as those in test_agents.py. CONVOKE_FULL=1 runs every drill, otherwise some are drawn
(CONVOKE_SEED). Standard library only.
"""

import os
import random
import re
import time
import unittest

import agents_team as team
import drills
import drills_all
from agents_questions import READY, answer, completed, endpoint, failure, moment, only_pod, revision, stage
from agents_stage import OPERATOR, is_ready

NAMESPACE = team.NAMESPACE
SILENT_SECONDS = 60
SEED = 20261125
# Drills of each lane that are drawn.
DRAWN = 2
# What each question gets from a model without a proxy between (docs/agent-runtime.md).
MODEL_FAILURES = {
    "status 401": "model_unauthorized",
    "status 429": "model_rate_limited",
    "status 500": "model_error",
    "nothing": "model_timeout",
    "garbage": "model_bad_answer",
    "much": "model_answer_too_large",
}


def setUpModule():
    unittest.addModuleCleanup(stage.remove)
    stage.all_ready(READY)


class AgentsEndure(unittest.TestCase):
    """What the cluster does to them: they come back as they were, and nothing is made anew."""

    maxDiff = 4000

    def pods(self):
        """Pods of the team and of the operator that stay: by name, their UID and when their first container began, or 0."""
        found = {}
        for namespace in (NAMESPACE, OPERATOR):
            pods = stage.api.list("pods", namespace)
            for pod in (pod for pod in pods if "deletionTimestamp" not in pod["metadata"]):
                running = [one["state"].get("running") for one in pod["status"].get("containerStatuses", [])]
                began = [moment(one["startedAt"]) if one else 0 for one in running]
                found[pod["metadata"]["name"]] = (pod["metadata"]["uid"], min(began, default=0))
        return found

    def assert_all_answer(self, revisions):
        for kind, names in READY.items():
            for name in names:
                stage.ready(kind, name)
        asked = stage.eventually("an answer", lambda: completed(stage.convoke_ask("coordinator", "Who is there?")))
        self.assertIn("peer: the writer and ", asked["answer"])
        self.assertEqual({name: revision(name) for name in READY["agents"]}, revisions)

    def test_a8_c1_the_same_pods_answer_after_the_node_was_restarted(self):
        for name in READY["agents"]:
            only_pod(name)
        stage.eventually("one ready operator", stage.operator)
        before, revisions = self.pods(), {name: revision(name) for name in READY["agents"]}
        reset = time.time()
        stage.restart_node()

        def begun():
            now = self.pods()
            # Kubernetes tells whole seconds.
            return all(name in now and now[name][1] >= int(reset) for name in before)

        stage.eventually("each container began again", begun)
        self.assert_all_answer(revisions)
        print(f"all agents answer {time.time() - reset:.0f} s after the node was reset", flush=True)
        stage.eventually("one ready operator", stage.operator)
        uids = lambda pods: {name: uid for name, (uid, _) in pods.items()}
        self.assertEqual(uids(self.pods()), uids(before))

    def test_c1_a_push_is_applied_after_the_api_server_was_silent_for_a_minute(self):
        for name in READY["agents"]:
            only_pod(name)
        stage.eventually("one ready operator", stage.operator)
        before, revisions = self.pods(), {name: revision(name) for name in READY["agents"]}
        address = f"{stage.get('services', 'agent-plain')['spec']['clusterIP']}:8000"
        self.assertEqual(stage.ask_on_node(address, "How do you answer?"), "in prose")
        with stage.silent_api_server():
            until = time.monotonic() + SILENT_SECONDS
            commit = stage.commit(team.late())
            while time.monotonic() < until:
                self.assertEqual(stage.ask_on_node(address, "How do you answer?"), "in prose")
                time.sleep(5)
        stage.applied(commit, seconds=120)
        stage.ready("agents", "late")
        stage.push(dict.fromkeys(team.late()))
        revisions["critic"] += 2
        stage.eventually("the critic's peer came and went", lambda: revision("critic") == revisions["critic"])
        only_pod("critic")
        self.assert_all_answer(revisions)
        # Its peer came and went, so its own pod is another one. The operator may have begun again: it lost its lease.
        replaced = ("agent-critic-", "agent-late-")
        kept = lambda pods: {name: uid for name, (uid, _) in pods.items() if not name.startswith(replaced)}
        self.assertEqual(kept(self.pods()), kept(before))


class AgentsFail(unittest.TestCase):
    """What models, tools and peers do wrong is said to whoever asks, and the agent stays Ready."""

    maxDiff = 4000

    def assert_ready(self, name):
        self.assertTrue(is_ready(stage.get("agents", name)), stage.get("agents", name)["status"])
        self.assertEqual(stage.probe(f"{endpoint(name)}/ready")[0], 200)

    def test_a2_what_a_model_does_wrong_is_said_clearly(self):
        for question, reason in MODEL_FAILURES.items():
            with self.subTest(question):
                found, message = failure("plain", question)
                self.assertEqual(found, reason, message)
                self.assertGreater(len(message), 10)
                self.assertNotIn(team.PROVIDER_KEY, message)
        self.assert_ready("plain")
        self.assertEqual(answer("plain", "How do you answer?"), "in prose")

    def test_m1_what_a_model_does_wrong_behind_the_proxy_is_said_clearly(self):
        for question in MODEL_FAILURES:
            with self.subTest(question):
                found, message = failure("critic", question)
                self.assertRegex(found, "^model_")
                self.assertGreater(len(message), 10)
        self.assert_ready("critic")
        self.assertTrue(is_ready(stage.get("modelapis", "shared")))
        self.assertEqual(answer("critic", "How do you answer?"), "in prose")

    def test_d4_a_failure_is_shown_to_whoever_asks(self):
        asked = stage.convoke_ask("plain", "status 401")
        self.assertEqual(asked["state"], "failed", asked)
        self.assertGreater(len(asked.get("message", "")), 10, asked)

    def test_a2_a_tool_that_hangs_is_told_to_the_model(self):
        began = time.monotonic()
        told = answer("coordinator", "stand still")
        self.assertLess(time.monotonic() - began, 30)
        self.assertTrue(told.startswith("told: "), told)
        self.assertNotIn("it did answer", told)
        self.assert_ready("coordinator")
        # Its server goes on, too.
        self.assertIn("the writer and ", answer("coordinator", "Who is there?"))

    def test_a2_peers_that_ask_each_other_come_to_an_end(self):
        began = time.monotonic()
        told = answer("coordinator", "round")
        self.assertLess(time.monotonic() - began, 30)
        self.assertIn("waits for this answer already", told)
        for name in ("coordinator", "writer"):
            self.assert_ready(name)


class Drills(unittest.TestCase):
    """One thing is broken at a time: the status says so, or it is undone, in time."""

    def test_a8_m4_t4_t5_what_is_broken_is_told_or_undone(self):
        lanes = drills_all.lanes(stage)
        if not os.environ.get("CONVOKE_FULL"):
            draw = random.Random(int(os.environ.get("CONVOKE_SEED", SEED)))
            for lane in lanes:
                lane.drills = drills.drawn(lane.drills, DRAWN, draw)
        wanted = os.environ.get("CONVOKE_DRILLS", "")
        for lane in lanes:
            lane.drills = [drill for drill in lane.drills if re.search(wanted, f"{drill.subject}: {drill.what}")]
        rows = drills.run(stage, lanes)
        print(drills.table(rows), flush=True)
        self.assertTrue(rows)
        self.assertEqual([row.line() for row in rows if not row.is_good], [])


if __name__ == "__main__":
    unittest.main()

"""Agents on a node, from the push to the answer: real images, a real model proxy, and a model that is a script.

    cd scripts/lib && python3 -B -m unittest -v test_agents        needs root; scripts/test runs it

All tests share one cluster with Convoke installed as users install it. What goes wrong is in test_agents_endure.py. Standard
library only.
"""

import json
import time
import unittest

import agents_team as team
from agents_asked import Asked
from agents_questions import READY, answer, completed, endpoint, failure, moment, only_pod, revision, stage, variable
from agents_stage import condition

NAMESPACE = team.NAMESPACE
# A kubelet brings a changed ConfigMap within about a minute.
HOT_SECONDS = 180
READ_NONCE = "print(open('/tmp/nonce').read())"


def setUpModule():
    unittest.addModuleCleanup(stage.remove)
    stage.all_ready(READY)


class AgentsAreAsked(Asked, unittest.TestCase):
    """The command line on the agents of this cluster."""


class AgentsAnswer(unittest.TestCase):
    """What was pushed answers, and says in its statuses what it is."""

    maxDiff = 4000

    def nonce(self, server):
        """What only the pod of a tool server knows."""
        (pod,) = stage.pods("mcpserver", server)
        command = [
            "exec",
            "-n",
            NAMESPACE,
            pod["metadata"]["name"],
            "-c",
            "mcpserver",
            "--",
            "python",
            "-c",
            READ_NONCE,
        ]
        return stage.kubectl(*command).strip()

    def test_a2_m1_t1_t2_a_question_is_answered_through_tools_and_another_agent(self):
        asked = stage.convoke_ask("coordinator", "Who is there?")
        self.assertEqual(asked["state"], "completed", asked)
        today = time.strftime("%Y-%m-%d", time.gmtime())
        self.assertIn(today, asked["answer"])
        self.assertIn(f"tool: {self.nonce('notes')}", asked["answer"])
        self.assertIn(f"peer: the writer and {self.nonce('desk')}", asked["answer"])
        # What it did meanwhile.
        done = [(one["type"], one.get("server"), one["name"]) for one in asked["events"] if one["phase"] == "start"]
        called = [("tool", "clock", "get_current_time"), ("tool", "notes", "nonce"), ("peer", None, "writer")]
        self.assertEqual(done, called)

    def test_a2_an_image_of_another_make_finds_its_model_its_tools_and_a_peer(self):
        files = team.guest(stage.images["pydantic-ai-server"])
        stage.push(files)
        stage.ready("agents", "guest")
        body = {"model": "agent", "messages": [{"role": "user", "content": "Who is there?"}]}
        url = f"{endpoint('guest')}/v1/chat/completions"
        status, reply = stage.eventually("its Service leads to it", lambda: stage.reach(url, body))
        self.assertEqual(status, 200, reply)
        told = json.dumps(reply)
        self.assertIn(f"tool: {self.nonce('notes')}", told)
        self.assertIn(f"peer: the writer and {self.nonce('desk')}", told)
        asked = stage.convoke_ask("guest", "Who is there?")
        self.assertIn(f"peer: the writer and {self.nonce('desk')}", asked["answer"])
        # It is no agent of ours: its card says nothing of its configuration.
        self.assertNotIn("configHash", stage.get("agents", "guest")["status"].get("card", {}))
        stage.push(dict.fromkeys(files))
        stage.eventually("its pod is gone", lambda: not stage.api.list("pods", NAMESPACE, "convoke.dev/name=guest"))

    def test_t5_the_tools_are_in_the_statuses_with_their_hashes(self):
        wanted = {
            "clock": ["convert_time", "get_current_time"],
            "notes": ["nonce", "stand_still"],
            "desk": ["nonce", "stand_still"],
        }
        hashes = {}
        for name, tools in wanted.items():
            found = lambda name=name: condition(stage.get("mcpservers", name), "ToolsDiscovered")[0] == "True"
            stage.eventually(f"the tools of {name}", found)
            status = stage.get("mcpservers", name)["status"]
            self.assertEqual([tool["name"] for tool in status["tools"]], tools)
            for tool in status["tools"]:
                self.assertRegex(tool["schemaHash"], "^[0-9a-f]{16}$")
            hashes[name] = status["toolsHash"]
        # One is an npm package, whose tools are not ours to list.
        found = lambda: "echo" in [tool["name"] for tool in stage.get("mcpservers", "everything")["status"].get("tools", [])]
        stage.eventually("the tools of everything", found)
        # A package may speak the older protocol; functions speak the newer one.
        versions = {name: stage.get("mcpservers", name)["status"]["serverInfo"] for name in READY["mcpservers"]}
        self.assertGreater(versions["notes"]["protocolVersion"], versions["clock"]["protocolVersion"])
        # The same functions have the same hashes, in another pod.
        self.assertEqual(hashes["notes"], hashes["desk"])
        self.assertNotEqual(hashes["notes"], hashes["clock"])

    def test_a2_an_agent_with_a_tenth_of_a_processor_starts_in_time(self):
        pod = only_pod("clerk")
        (container,) = pod["status"]["containerStatuses"]
        self.assertEqual(container["restartCount"], 0)
        (ready,) = [one for one in pod["status"]["conditions"] if one["type"] == "Ready"]
        seconds = moment(ready["lastTransitionTime"]) - moment(container["state"]["running"]["startedAt"])
        print(f"an agent with 100m of a processor is ready after {seconds} s", flush=True)

    def test_m2_the_headers_of_a_model_arrive_from_their_secret(self):
        answer("plain", "How do you answer?")
        asked = json.loads(stage.api.through("services", team.PROVIDER, "model", 8000, "/requests"))
        headers = [{name.lower(): value for name, value in one["headers"].items()} for one in asked]
        self.assertIn(team.HEADER, [one.get("x-team") for one in headers])
        secret = [one for one in headers if one.get("x-team") == team.HEADER]
        self.assertTrue(all(one["authorization"] == f"Bearer {team.PROVIDER_KEY}" for one in secret))
        self.assertNotIn(team.HEADER, json.dumps(stage.api.list("agents", NAMESPACE)))

    def test_a9_the_cards_are_in_the_statuses(self):
        for name in READY["agents"]:
            read = lambda name=name: condition(stage.get("agents", name), "CardRead")[0] == "True"
            stage.eventually(f"the card of {name}", read)
            card = stage.get("agents", name)["status"]["card"]
            self.assertEqual(card["name"], name)
            self.assertRegex(card["hash"], "^[0-9a-f]{16}$")

    def test_m3_the_proxy_reaches_its_provider(self):
        reached = lambda: condition(stage.get("modelapis", "shared"), "Reachable")[0] == "True"
        stage.eventually("the provider is reachable", reached)

    def test_m5_each_agent_has_a_key_of_its_own_that_asks_models_and_nothing_else(self):
        keys = {name: stage.secret(f"agent-{name}-model-key", "key") for name in ("coordinator", "writer", "critic")}
        self.assertEqual(len(set(keys.values())), 3)
        self.assertIsNone(stage.get("secrets", "agent-plain-model-key"))
        proxy = stage.get("modelapis", "shared")["status"]["endpoint"]
        master = stage.secret("modelapi-shared-keys", "master-key")
        name, uid, issued, mac = keys["writer"].removeprefix("sk-cvk-").split(".")
        foreign = {
            "no key": {},
            "the master key": {"Authorization": f"Bearer {master}"},
            "the provider's key": {"Authorization": f"Bearer {team.PROVIDER_KEY}"},
            "another agent's name": {"Authorization": f"Bearer sk-cvk-critic.{uid}.{issued}.{mac}"},
            "another MAC": {"Authorization": f"Bearer sk-cvk-{name}.{uid}.{issued}.{mac[::-1]}"},
        }
        for what, headers in foreign.items():
            self.assertEqual(stage.probe(f"{proxy}/v1/models", headers=headers)[0], 401, what)
        own = {"Authorization": f"Bearer {keys['writer']}"}
        self.assertEqual(stage.probe(f"{proxy}/v1/models", headers=own)[0], 200)
        for route in ("/key/generate", "/model/new", "/user/new", "/config/update", "/v1/files"):
            self.assertEqual(stage.probe(f"{proxy}{route}", {}, own)[0], 403, route)

    def test_m5_no_log_has_a_key(self):
        keys = {name: stage.secret(f"agent-{name}-model-key", "key") for name in ("coordinator", "writer", "critic")}
        keys |= {key: stage.secret("modelapi-shared-keys", key) for key in ("master-key", "signing-key")}
        keys["provider"] = team.PROVIDER_KEY
        # Each key was used, also in vain.
        stage.convoke_ask("coordinator", "Who is there?")
        failure("critic", "status 401")
        logs = stage.logs()
        self.assertGreater(len(logs), 10)
        self.assertEqual([name for name, key in keys.items() if any(key in log for log in logs)], [])

    def test_a6_all_pods_were_admitted_as_restricted(self):
        namespace = json.loads(stage.kubectl("get", "namespace", NAMESPACE, "-o", "json"))
        self.assertEqual(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted")
        kinds = {pod["metadata"]["labels"]["convoke.dev/kind"] for pod in stage.api.list("pods", NAMESPACE)}
        self.assertEqual(kinds, {"agent", "mcpserver", "modelapi"})


class AgentsChange(unittest.TestCase):
    """Pushes that change agents, and accidents meanwhile."""

    maxDiff = 4000

    def test_a5_a9_a_new_prompt_reaches_the_pod_that_runs(self):
        before = only_pod("writer")["metadata"]["uid"]
        self.assertEqual(answer("writer", "How do you answer?"), "in prose")
        commit = stage.push({"writer.md": "You are the writer.\nAnswer in verse.\n"})
        stage.eventually("the new prompt", lambda: answer("writer", "How do you answer?") == "in verse", HOT_SECONDS)
        loaded = lambda: stage.get("agents", "writer")["status"]["card"].get("configCommit") == commit
        stage.eventually("the status tells the commit that is loaded", loaded, HOT_SECONDS)
        self.assertEqual(only_pod("writer")["metadata"]["uid"], before)
        stage.push({"writer.md": "You are the writer.\n"})

    def test_a5_a_new_prompt_replaces_the_pod_once(self):
        before, revisions = only_pod("critic")["metadata"]["uid"], revision("critic")
        self.assertEqual(answer("critic", "How do you answer?"), "in prose")
        stage.push({"critic.md": "You are the critic.\nAnswer in verse.\n"})
        stage.eventually("the new prompt", lambda: answer("critic", "How do you answer?") == "in verse")
        self.assertNotEqual(only_pod("critic")["metadata"]["uid"], before)
        self.assertEqual(revision("critic"), revisions + 1)
        stage.push({"critic.md": "You are the critic.\n"})
        stage.eventually("the old prompt", lambda: answer("critic", "How do you answer?") == "in prose")

    def test_a8_a_broken_image_stays_on_the_old_one_and_says_why(self):
        before = only_pod("critic")["metadata"]["uid"]
        image = stage.get("agents", "critic")["status"]["image"]
        definition = team.agent("critic", peers=["late"], image=f"{image.partition('@')[0]}:missing")
        commit = stage.commit({"agent-critic.json": json.dumps(definition)})
        told = lambda: condition(stage.get("agents", "critic"), "Ready")[:2] == ("False", "ImagePullBackOff")
        stage.eventually(f"the image of {commit} cannot be had", told)
        status = stage.get("agents", "critic")["status"]
        self.assertIn("missing", status["message"])
        self.assertEqual(condition({"status": status}, "Available")[0], "True")
        self.assertEqual(answer("critic", "How do you answer?"), "in prose")
        self.assertIn(before, [pod["metadata"]["uid"] for pod in stage.pods("agent", "critic")])
        stage.push({"agent-critic.json": json.dumps(team.agent("critic", peers=["late"]))})
        self.assertEqual(only_pod("critic")["metadata"]["uid"], before)

    def test_a1_a5_a_late_peer_is_wired_and_a_peer_that_goes_is_let_go_once(self):
        self.assertEqual(condition(stage.get("agents", "critic"), "PeersResolved")[:2], ("False", "PeersMissing"))
        self.assertFalse(variable("critic", "PEER_AGENTS"))
        revisions = revision("critic")
        stage.push(team.late())
        stage.ready("agents", "late")
        # It says so only when the peer was asked: a pod that knows no peer has other words.
        stage.eventually("the late peer answers", lambda: answer("critic", "ask late") == "late says: echo: Who?")
        self.assertEqual(variable("critic", "PEER_AGENTS"), "late")
        self.assertEqual(condition(stage.get("agents", "critic"), "PeersResolved")[0], "True")
        self.assertEqual(revision("critic"), revisions + 1)
        only_pod("critic")
        stage.push(dict.fromkeys(team.late()))
        stage.eventually("its pod is gone", lambda: not stage.api.list("pods", NAMESPACE, "convoke.dev/name=late"))
        stage.eventually("nobody is told of it", lambda: not variable("critic", "PEER_AGENTS"))
        for kind in ("deployments", "services"):
            self.assertIsNone(stage.get(kind, "agent-late"))
        gone = lambda: stage.get("secrets", "agent-late-model-key") is None
        stage.eventually("its key is gone", gone)
        only_pod("critic")
        self.assertEqual(condition(stage.get("agents", "critic"), "PeersResolved")[:2], ("False", "PeersMissing"))
        self.assertEqual(revision("critic"), revisions + 2)

    def test_c1_a5_an_operator_that_is_killed_during_a_rollout_goes_on_with_it(self):
        stage.eventually("one ready operator", stage.operator)
        only_pod("critic")
        revisions = revision("critic")
        stage.commit({"critic.md": "You are the critic.\nAnswer in verse. Take your time.\n"})
        stage.eventually("the rollout begins", lambda: revision("critic") > revisions, seconds=60)
        killed = stage.stop_operator()
        another = lambda: (pod := stage.operator()) and pod["metadata"]["uid"] != killed
        stage.eventually("another operator", another)
        stage.eventually("the new prompt", lambda: answer("critic", "How do you answer?") == "in verse")
        only_pod("critic")
        self.assertEqual(revision("critic"), revisions + 1)
        stage.push({"critic.md": "You are the critic.\n"})
        stage.eventually("the old prompt", lambda: answer("critic", "How do you answer?") == "in prose")
        only_pod("critic")


if __name__ == "__main__":
    unittest.main()

"""What is no question gets an error of its protocol: never 500, and the agent answers as before."""

import http.client
import json
import unittest

from tests.support import Agent, ScriptedModel, ask, ask_raw, reason_of, text_of

CHAT = "/v1/chat/completions"
LEVELS = 32
BEYOND_FLOATS = 10**400
BEYOND_INT32 = 1 << 31

# What cannot be read at all: 400.
UNREADABLE = {
    "nothing": b"",
    "blank": b" " * (1 << 20),
    "no JSON": b'{"jsonrpc": "2.0"',
    "two values": b"{}{}",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": "{}".encode("utf-16"),
    "not UTF-8": b'{"method": "\xff"}',
    "a zero": b"\0",
    "too many digits": b"9" * 5000,
    "no number": b'{"id": NaN}',
    "infinite": b'{"id": -Infinity}',
    "beyond all numbers": b'{"id": 1e999}',
    "half a character": b'{"id": "\\ud800"}',
    "half a character as a name": b'{"\\uDFFF": 1}',
    "deep lists": b"[" * 10_000,
    "deep objects": b'{"a":' * 9000,
}
# JSON that is no request.
OTHER_JSON = {"null": b"null", "true": b"true", "number": b"1", "text": b'"x"', "list": b"[]", "batch": b"[{}]"}
TYPES = ("text/plain", "", "application/xml", "multipart/form-data", "application/json, text/plain")


def new(**more):
    """A message of A2A 1.0."""
    return {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": "x"}]} | more


def old(**more):
    """A message of A2A 0.3."""
    return {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "x"}]} | more


def nested(levels):
    value = 0
    for _ in range(levels):
        value = {"a": value}
    return value


def text(value):
    return {"kind": "text", "text": value}


NEW_MESSAGES = {
    "null": None,
    "text": "x",
    "list": [],
    "empty": {},
    "no parts": new(parts=[]),
    "parts of another type": new(parts="x"),
    "a part of another type": new(parts=[5]),
    "a part without content": new(parts=[{}]),
    "a part with two": new(parts=[{"text": "x", "data": 1}]),
    "a text of another type": new(parts=[{"text": 5}]),
    "a blank text": new(parts=[{"text": " \n"}]),
    "a role that is none": new(role="wizard"),
    "an id of another type": new(messageId=7),
    "a long context": new(contextId="c" * 201),
    "metadata of another type": new(metadata=[]),
    "a path of another type": new(metadata={"convoke.dev/path": 5}),
    "names of another type": new(metadata={"convoke.dev/path": [5]}),
    "a number beyond all": new(metadata={"a": BEYOND_FLOATS}),
}
OLD_MESSAGES = {
    "no parts": old(parts=[]),
    "a blank text": old(parts=[text(" ")]),
    "a long context": old(contextId="c" * 201),
    "a path of another type": old(metadata={"convoke.dev/path": 5}),
    "a number beyond all": old(metadata={"a": BEYOND_FLOATS}),
}
# What does not have the form that A2A 0.3 describes is refused as a whole: -32600.
OLD_MISSHAPEN = {
    "null": None,
    "text": "x",
    "list": [],
    "empty": {},
    "parts of another type": old(parts="x"),
    "a part without content": old(parts=[{}]),
    "a text of another type": old(parts=[text(5)]),
    "a role that is none": old(role="wizard"),
    "metadata of another type": old(metadata=[]),
}
CHATS = {
    "no messages": ({}, "empty_prompt"),
    "messages: null": ({"messages": None}, "empty_prompt"),
    "messages: text": ({"messages": "x"}, "empty_prompt"),
    "messages: object": ({"messages": {}}, "empty_prompt"),
    "a message: null": ({"messages": [None]}, "bad_request"),
    "a message: list": ({"messages": [[]]}, "bad_request"),
    "no role": ({"messages": [{"content": "x"}]}, "bad_request"),
    "a role: null": ({"messages": [{"role": None, "content": "x"}]}, "bad_request"),
    "a role: list": ({"messages": [{"role": [], "content": "x"}]}, "bad_request"),
    "a role: object": ({"messages": [{"role": {}, "content": "x"}]}, "bad_request"),
    "another role": ({"messages": [{"role": "tool", "content": "x"}]}, "bad_request"),
    "content: number": ({"messages": [{"role": "user", "content": 5}]}, "bad_request"),
    "content: object": ({"messages": [{"role": "user", "content": {"a": 1}}]}, "bad_request"),
    "content: null": ({"messages": [{"role": "user", "content": None}]}, "empty_prompt"),
    "a part: number": ({"messages": [{"role": "user", "content": [5]}]}, "bad_request"),
    "a part without a type": ({"messages": [{"role": "user", "content": [{}]}]}, "bad_request"),
    "a part without a text": ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "bad_request"),
    "a part: deep": ({"messages": [{"role": "user", "content": [nested(500)]}]}, "bad_request"),
}


class BadInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Half of a character, which is JSON but no Unicode.
        rules = [
            {"prompt": "^half a word", "steps": [{"text": "\ud83d half"}]},
            {"prompt": "^half a thought", "steps": [{"text": "whole", "reasoning": "\ud83d half"}]},
        ]
        cls.model = ScriptedModel(rules)
        cls.addClassCleanup(cls.model.stop)
        cls.agent = Agent("critic", {"MODEL_API_URL": cls.model.url, "AGENT_DEBUG_MEMORY_ENDPOINTS": "true"})
        cls.addClassCleanup(cls.agent.stop)

    def tearDown(self):
        """The agent answers over each interface, and nothing surprised it."""
        self.assertEqual(self.agent.said("good"), "echo: good")
        self.assertEqual(text_of(self.agent.send("good")), "echo: good")
        answer = self.agent.rpc("message/send", {"message": old()})["result"]
        self.assertEqual(answer["status"]["state"], "completed")
        self.assertEqual(ask(self.agent.url, "/memory/sessions")[0], 200)
        self.assertEqual([line for line in self.agent.lines if '"ERROR"' in line], [])

    def refused(self, body, status, code, headers=None):
        """Sends what A2A must refuse so. Gives the error."""
        got, content, _ = ask_raw(self.agent.url, "/", body, "POST", headers)
        # A stream tells it in its only event.
        answer = json.loads(content.removeprefix(b"data: "))
        self.assertEqual((got, answer["jsonrpc"], answer["error"]["code"]), (status, "2.0", code), answer)
        self.assertNotIn("result", answer)
        return answer["error"]

    def refused_call(self, method, params, code):
        headers = {} if "/" in method else {"A2A-Version": "1.0"}
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return self.refused(body, 200, code, headers)

    def refused_chat(self, body, status, code, headers=None):
        got, answer = ask(self.agent.url, CHAT, body, "POST", headers)
        self.assertEqual((got, answer["error"]["code"]), (status, code))

    def test_bodies_that_cannot_be_read(self):
        for name, body in UNREADABLE.items():
            with self.subTest(name):
                self.refused(body, 400, -32700)
                self.refused_chat(body, 400, "bad_request")

    def test_json_that_is_no_request(self):
        for name, body in OTHER_JSON.items():
            with self.subTest(name):
                self.refused(body, 200, -32600)
                self.refused_chat(body, 400, "bad_request")

    def test_bodies_that_are_too_large(self):
        self.refused(b" " * ((1 << 20) + 1), 413, -32600)
        self.refused_chat(b" " * ((1 << 20) + 1), 413, "request_too_large")
        # Nothing says beforehand how large this one is.
        for path in ("/", CHAT):
            connection = http.client.HTTPConnection("127.0.0.1", self.agent.port, timeout=60)
            self.addCleanup(connection.close)
            chunks = iter([b" " * (1 << 20), b"{}"])
            connection.request("POST", path, chunks, {"Content-Type": "application/json"}, encode_chunked=True)
            self.assertEqual(connection.getresponse().status, 413)

    def test_other_types_of_content(self):
        for kind in TYPES:
            with self.subTest(kind):
                self.refused(b"{}", 415, -32005, {"Content-Type": kind})
                self.refused_chat(b"{}", 415, "unsupported_media_type", {"Content-Type": kind})

    def test_calls_without_a_method_that_is_there(self):
        call = {"jsonrpc": "2.0", "id": 7, "params": {"id": "x"}}
        self.refused(call, 200, -32600)
        for method in (None, 5, [], {}, ""):
            with self.subTest(method=method):
                self.refused(call | {"method": method}, 200, -32600)
        for method in ("Dance", "sendMessage", "message/dance", "tasks/", "/"):
            with self.subTest(method=method):
                self.refused(call | {"method": method}, 200, -32601)
        for version in (None, 2.0, "1.0", "2.0 ", []):
            with self.subTest(version=version):
                self.refused(call | {"jsonrpc": version, "method": "GetTask"}, 200, -32600)
        for identifier in ([], {}, True, 1.5):
            with self.subTest(id=identifier):
                got, answer = ask(self.agent.url, "/", call | {"method": "GetTask", "id": identifier})
                self.assertEqual((got, "error" in answer), (200, True))
        self.refused(call | {"method": "GetTask"}, 200, -32009, {"A2A-Version": "9.9"})

    def test_parameters_of_other_types(self):
        for method in ("SendMessage", "SendStreamingMessage", "GetTask", "CancelTask", "SubscribeToTask"):
            with self.subTest(method):
                self.refused_call(method, "x", -32600)
                for params in (None, [], {}, [1]):
                    self.refused_call(method, params, -32602)
        for method in ("message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe"):
            with self.subTest(method):
                for params in ("x", None, [], {}, [1]):
                    self.refused_call(method, params, -32600)

    def test_messages_that_are_none(self):
        for name, message in NEW_MESSAGES.items():
            for method in ("SendMessage", "SendStreamingMessage"):
                with self.subTest(name, method=method):
                    self.refused_call(method, {"message": message}, -32602)
        for messages, code in ((OLD_MESSAGES, -32602), (OLD_MISSHAPEN, -32600)):
            for name, message in messages.items():
                for method in ("message/send", "message/stream"):
                    with self.subTest(name, method=method):
                        self.refused_call(method, {"message": message}, code)

    def test_messages_that_are_too_deep(self):
        for more in (0, 1, 16, 500):
            # The body, its parameters and the message take three levels, a part and its list two more.
            data, metadata = nested(LEVELS - 5 + more), nested(LEVELS - 3 + more)
            for method, message in (
                ("SendMessage", new(metadata=metadata)),
                ("SendStreamingMessage", new(parts=[{"text": "x"}, {"data": data}])),
                ("message/send", old(parts=[text("x"), {"kind": "data", "data": data}])),
                ("message/stream", old(metadata=metadata)),
            ):
                with self.subTest(method, more=more):
                    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"message": message}}
                    if more:
                        self.refused(body, 413, -32600)
                    else:
                        self.check_kept(body, message)

    def check_kept(self, body, message):
        message["contextId"] = context = body["method"]
        status, content, _ = ask_raw(self.agent.url, "/", body)
        self.assertEqual((status, b'"error"' in content), (200, False))
        (task,) = self.agent.rpc("ListTasks", {"contextId": context})["result"]["tasks"]
        self.assertEqual(text_of(self.agent.rpc("GetTask", {"id": task["id"]})["result"]), "echo: x")
        self.assertNotIn("error", self.agent.rpc("tasks/get", {"id": task["id"]}))

    def test_other_parameters_that_are_wrong(self):
        wrong = {"historyLength": -1}, {"historyLength": BEYOND_INT32}
        for one in (*wrong, {"historyLength": "x"}, {"returnImmediately": "x"}):
            with self.subTest(one):
                self.refused_call("SendMessage", {"message": new(), "configuration": one}, -32602)
        for one in wrong:
            with self.subTest(one, by="0.3"):
                self.refused_call("message/send", {"message": old(), "configuration": one}, -32602)
                self.refused_call("tasks/get", {"id": "x"} | one, -32602)
        more = {"pageSize": "x"}, {"status": "x"}, {"statusTimestampAfter": "x"}, {"pageToken": "x"}
        for one in ({"contextId": 5}, *({"contextId": "x"} | one for one in more)):
            with self.subTest(one):
                self.refused_call("ListTasks", one, -32602)

    def test_tasks_that_are_not_there(self):
        for method in ("GetTask", "CancelTask", "SubscribeToTask", "tasks/get", "tasks/cancel", "tasks/resubscribe"):
            for identifier in ("none", "", "x" * 100_000, "\0", "../x"):
                with self.subTest(method, id=identifier[:9]):
                    missing = -32602 if identifier == "" else -32001
                    self.refused_call(method, {"id": identifier}, missing)
            with self.subTest(method, id=5):
                self.refused_call(method, {"id": 5}, -32600 if "/" in method else -32602)
        self.refused_call("SendMessage", {"message": new(taskId="none")}, -32001)
        self.refused_call("message/send", {"message": old(taskId="none")}, -32001)

    def test_tasks_that_have_ended(self):
        task = self.agent.send("done")
        get = lambda: self.agent.rpc("GetTask", {"id": task["id"]})["result"]
        before = get()
        for method in ("CancelTask", "tasks/cancel"):
            self.refused_call(method, {"id": task["id"]}, -32002)
        for method in ("SubscribeToTask", "tasks/resubscribe"):
            self.refused_call(method, {"id": task["id"]}, -32004)
        self.refused_call("SendMessage", {"message": new(taskId=task["id"])}, -32004)
        self.refused_call("message/send", {"message": old(taskId=task["id"])}, -32004)
        self.assertEqual(get(), before)

    def test_chat_requests(self):
        for name, (body, code) in CHATS.items():
            for stream in (False, True):
                with self.subTest(name, stream=stream):
                    self.refused_chat(body | {"stream": stream}, 400, code)
        good = {"messages": [{"role": "user", "content": "x"}]}
        for session in ("", "s" * 201):
            with self.subTest(session=session[:3]):
                self.refused_chat(good, 400, "bad_request", {"X-Session-Id": session})
        # What nobody asked for is ignored.
        for more in ({"model": 5}, {"stream": "yes"}, {"temperature": "x"}, {"tools": nested(500)}):
            with self.subTest(str(more)[:20]):
                self.assertEqual(ask(self.agent.url, CHAT, good | more)[0], 200)

    def test_the_memory_endpoints(self):
        self.agent.said("kept", {"X-Session-Id": "kept"})
        for name in ("none", "", "%FF%FE", "%00", "..%2F..", "x" * 5000, "kept/", "kept%00"):
            for method in ("GET", "DELETE"):
                with self.subTest(name[:9], method=method):
                    status, body = ask(self.agent.url, f"/memory/sessions/{name}", method=method)
                    self.assertEqual((status, body["error"]["reason"]), (404, "session_not_found"))
        for path, method in (("sessions", "DELETE"), ("sessions", "POST"), ("sessions/kept", "PUT")):
            with self.subTest(path, method=method):
                status, body = ask(self.agent.url, f"/memory/{path}", b"\xff", method)
                self.assertEqual((status, body["error"]["reason"]), (405, "method_not_allowed"))
        self.assertEqual(ask(self.agent.url, "/memory")[0], 404)
        # A body is not looked at.
        self.assertEqual(ask(self.agent.url, "/memory/sessions/kept", b"\xff", "GET")[0], 200)
        self.assertEqual(ask(self.agent.url, "/memory/sessions/kept", b"\xff", "DELETE")[0], 200)

    def test_half_a_character_of_the_model(self):
        for prompt in ("half a word", "half a thought"):
            with self.subTest(prompt):
                self.check_half(prompt)

    def check_half(self, prompt):
        bad = "model_bad_answer"
        status, body = self.agent.chat(prompt, {"X-Session-Id": prompt})
        self.assertEqual((status, body["error"]["code"]), (502, bad))
        body = {"messages": [{"role": "user", "content": prompt}], "stream": True}
        _, content, _ = ask_raw(self.agent.url, CHAT, body, headers={"X-Session-Id": prompt})
        self.assertEqual(json.loads(content.split(b"data: ")[-1])["error"]["code"], bad)
        task = self.agent.send(prompt, message={"contextId": prompt})
        self.assertEqual((task["status"]["state"], reason_of(task)), ("TASK_STATE_FAILED", bad))
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage"}
        body["params"] = {"message": new(parts=[{"text": prompt}], contextId=prompt)}
        _, content, _ = ask_raw(self.agent.url, "/", body)
        self.assertIn(bad, content.decode())
        # It left no trace in its conversation.
        self.assertEqual(self.agent.said("whole", {"X-Session-Id": prompt}), "echo: whole")
        self.assertEqual(text_of(self.agent.send("whole", message={"contextId": prompt})), "echo: whole")


if __name__ == "__main__":
    unittest.main()

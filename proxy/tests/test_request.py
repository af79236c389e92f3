"""Which bodies and models pass, and what is counted; without LiteLLM."""

import json
import tracemalloc
import unittest

from convoke_proxy import gate, metrics, models, request

HELLO = {"role": "user", "content": "hello"}
# What LiteLLM would take besides OpenAI's fields, each by itself.
POWERS = """
    api_base api_key base_url api_version user_config litellm_credential_name mock_response mock_tool_calls callbacks
    success_callback failure_callback metadata litellm_metadata fallbacks context_window_fallbacks guardrails policies
    extra_headers extra_body extra_query headers model_list litellm_params custom_llm_provider num_retries max_retries
    timeout stream_timeout caching cache ttl no-log tags router_settings prompt_id prompt_variables mcp_servers
    vertex_credentials vertex_project aws_role_name aws_region_name aws_bedrock_runtime_endpoint azure_ad_token
    organization deployment_id region_name input_cost_per_token langfuse_host proxy_server_request secret_fields
    litellm_trace_id litellm_session_id litellm_call_id disable_fallbacks allowed_openai_params drop_params
    additional_drop_params web_search_interception specific_deployment priority enforce_rate_limit rust
""".split()


def chat(**body):
    return request.chat(json.dumps({"model": "small", "messages": [HELLO]} | body).encode())


def content(*parts):
    return chat(messages=[{"role": "user", "content": list(parts)}])


class Bodies(unittest.TestCase):
    def refused(self, check, *arguments, **more):
        with self.assertRaises(request.Refused) as caught:
            check(*arguments, **more)
        self.assertEqual(caught.exception.status, 400)
        return caught.exception

    def test_what_openai_documents_passes_as_it_is(self):
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}}
        body = {
            "model": "small",
            "messages": [
                {"role": "system", "content": "be kind"},
                {"role": "user", "content": [{"type": "text", "text": "hello"}, image]},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "content": "1", "tool_call_id": "1"},
            ],
            "tools": [tool],
            "tool_choice": "auto",
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.5,
            "max_tokens": 10,
            "response_format": {"type": "json_object"},
            "stop": ["x"],
            "seed": 1,
            "user": "somebody",
        }
        self.assertEqual(request.chat(json.dumps(body).encode()), body)
        embeddings = {"model": "vectors", "input": ["a", "b"], "dimensions": 2, "encoding_format": "float"}
        self.assertEqual(request.embeddings(json.dumps(embeddings).encode()), embeddings)

    def test_no_power_of_litellm_passes(self):
        for field in POWERS:
            with self.subTest(field=field):
                self.assertEqual(self.refused(chat, **{field: "x"}).parameter, field)
                body = json.dumps({"model": "vectors", "input": "x", field: "x"}).encode()
                self.assertEqual(self.refused(request.embeddings, body).parameter, field)

    def test_a_field_that_the_owner_allows_passes(self):
        body = json.dumps({"model": "small", "messages": [HELLO], "top_k": 3}).encode()
        self.assertEqual(request.chat(body, frozenset(("top_k",)))["top_k"], 3)
        self.refused(request.chat, body)

    def test_an_error_says_no_value(self):
        self.assertNotIn("canary", str(self.refused(chat, api_base="canary")))
        self.assertNotIn("canary value", str(self.refused(chat, **{"canary value": 1})))

    def test_tools_are_those_that_the_agent_calls(self):
        for tool in ({"type": "mcp", "server_url": "litellm_proxy"}, {"type": "web_search"}, {"function": {}}, "x"):
            self.refused(chat, tools=[tool])
        self.refused(chat, tools=[{"type": "function", "function": {}, "server_url": "x"}])
        self.refused(chat, tools={})

    def test_nothing_is_fetched_for_an_agent(self):
        address = "http://169.254.169.254/latest"
        self.refused(content, {"type": "image_url", "image_url": {"url": address}})
        self.refused(content, {"type": "image_url", "image_url": address})
        self.refused(content, {"type": "input_audio", "input_audio": {"data": address, "format": "wav"}})
        self.refused(content, {"type": "file", "file": {"file_data": address}})
        self.refused(content, {"type": "file", "file": {"file_id": address}})
        self.refused(content, {"type": "video_url", "video_url": {"url": address}})
        self.refused(content, {"type": "document", "source": {"type": "url", "url": address}})
        content({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}})

    def test_of_messages_only_known_fields_are_left(self):
        [made] = chat(messages=[HELLO | {"provider_specific_fields": {"api_base": "x"}, "name": "n"}])["messages"]
        self.assertEqual(made, HELLO | {"name": "n"})
        [made] = content({"type": "text", "text": "a", "source": "x"})["messages"]
        self.assertEqual(made["content"], [{"type": "text", "text": "a"}])

    def test_what_is_no_request_is_refused(self):
        for messages in ([], {}, "x", [1], [{"role": "root", "content": "x"}], [{"role": "user", "content": 1}], None):
            self.refused(chat, messages=messages)
        for data in (b"", b"[]", b"{", b"\xff", b'{"a": NaN}', b'{"a": 1e999}', b"[" * 100_000, b"9" * 10_000):
            self.refused(request.chat, data)
        for data in (b"\xef\xbb\xbf{}", json.dumps({"model": "small", "messages": [HELLO]}).encode("utf-16")):
            self.refused(request.chat, data)
        self.refused(chat, stream="yes")
        self.refused(chat, stream_options={"include_usage": True, "x": 1})

    def test_embeddings_are_made_of_texts_or_tokens(self):
        def embeddings(given):
            return request.embeddings(json.dumps({"model": "vectors", "input": given}).encode())

        for good in ("a", ["a", "b"], [1, 2], [[1, 2], [3]], ["a"] * 2048, [1] * 5000):
            self.assertEqual(embeddings(good)["input"], good)
        for bad in ("", [], None, 1, {}, [None], [1, "a"], [["a"]], [[[1]]], [True], [1.5], ["a"] * 2049, [[1]] * 2049):
            self.refused(embeddings, bad)

    def test_what_passed_is_sent_on_as_unicode(self):
        body = {"model": "small", "messages": [{"role": "user", "content": "é \u4f60 \U0001f600 \" \\ \n"}]}
        data = request.encoded(request.chat(json.dumps(body).encode()))
        self.assertEqual(json.loads(data), body)
        self.assertIn("é 你 😀".encode(), data)
        self.refused(request.encoded, chat(messages=[HELLO | {"content": "\ud800"}]))


class Weights(unittest.TestCase):
    """What a body takes is known before it is parsed."""

    def weight(self, data, most=1000):
        return request.weigh(data, most)

    def too_many(self, data, most):
        with self.assertRaises(request.Refused) as caught:
            self.weight(data, most)
        self.assertEqual(caught.exception.status, 413)

    def test_there_is_a_bound_on_values_however_they_are_written(self):
        def count(value):
            inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            return 1 + sum(map(count, inner))

        items = ([], {}, 0, "", None, True, {"a": 1}, {"a": []}, [1], "a,[{", 'b"', "\\", '\\",[[[', "\\\\", "é")
        for item in items:
            for body in ([item] * 300, {str(number): item for number in range(300)}, [[item]] * 150):
                for data in (json.dumps(body).encode(), json.dumps(body, separators=(",", ":")).encode()):
                    with self.subTest(data=data[:40]):
                        self.too_many(data, count(body) - 2)
                        self.weight(data, 4 * count(body) + 2)
        # It need not be JSON.
        for data in (b"[" * 300, b"[[]," * 150, b'"' * 600, b'{"a":' * 150, b'[""' + b',""' * 150):
            self.too_many(data, 149)

    def test_what_is_in_a_text_is_no_value(self):
        data = json.dumps({"text": '[{,"\\' * 5000}).encode()
        self.assertLess(self.weight(data, 4), 3 * len(data))

    def test_a_body_counts_as_what_it_becomes(self):
        def taken(data):
            tracemalloc.start()
            try:
                kept = json.loads(data)
                return kept and tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()

        deep = b"[" * 500 + b"]" * 500
        items = (b"[]", b"{}", b"[1]", b'{"a":1}', b'{"a":{"b":{}}}', b'"ab"', b"1.5", deep, b'{"a":[{"b":[]}]}')
        for item in items:
            data = b"[" + b",".join([item] * (60_000 // len(item))) + b"]"
            self.assertLess(taken(data), self.weight(data, 100_000), item[:20])
        # An object takes most for each item just after it has grown.
        for items in (2, 6, 11, 43_691, 87_382):
            for value in (1.5, 123456, [], {}, "ab", [1.5], {"a": 1.5}):
                data = json.dumps([{str(number): value for number in range(items)}] * max(1, 20_000 // items)).encode()
                with self.subTest(items=items, value=value):
                    self.assertLess(taken(data), self.weight(data, 10**6))
        data = json.dumps(["😀" + "x" * 100_000], ensure_ascii=False).encode()
        self.assertLess(taken(data), self.weight(data))

    def test_as_many_tokens_as_are_allowed_fit_into_the_share_of_one_caller(self):
        kind = gate.KINDS[gate.EMBEDDINGS]
        data = json.dumps({"model": "m", "input": [[100_000] * 1_000] * (kind.most_values // 1_000 - 1)}).encode()
        self.assertLess(len(data), kind.most_bytes)
        self.assertLess(kind.most_bytes - len(data) + self.weight(data, kind.most_values), gate.MOST_BYTES_OF_ONE)


class Names(unittest.TestCase):
    def test_only_listed_models_pass_by_the_name_of_their_entry(self):
        listed = models.Models(["small", "openai/*", "openai/gpt-*"])
        for model, label in (("small", "small"), ("openai/gpt-5", "openai/gpt-*"), ("openai/o9", "openai/*")):
            self.assertEqual(listed.label(model), label)
        for model in ("Small", "small ", "large", "anthropic/x", "openai", "", None, 1, ["small"], {"a": 1}):
            self.assertIsNone(listed.label(model))

    def test_no_address_is_a_model(self):
        everything = models.Models(["*"])
        self.assertEqual(everything.label("openai/gpt-5:free"), "*")
        bad = (
            "huggingface/https://evil.test",
            "http:evil",
            "a/../b",
            "a//b",
            "*",
            "openai/*",
            "a,b",
            "a b",
            "a" * 256,
            "a\n",
        )
        for model in bad:
            self.assertIsNone(everything.label(model), model)


class Counts(unittest.TestCase):
    def test_series_are_only_of_listed_agents(self):
        counters = metrics.Counters()
        counters.agents_changed(frozenset(("a", "b")))
        for agent in ("a", "b", *(f"new-{number}" for number in range(50))):
            counters.tokens(agent, "small", {"prompt": 2, "completion": 0})
            counters.request(agent, "small", 200)
        counters.agents_changed(frozenset("a"))
        counters.refusal("bad_key")
        lines = [line for line in counters.text().splitlines() if not line.startswith("#")]
        self.assertEqual(
            lines,
            [
                'convoke_model_tokens_total{agent="",model="small",kind="prompt"} 100',
                'convoke_model_tokens_total{agent="a",model="small",kind="prompt"} 2',
                'convoke_model_requests_total{agent="",model="small",status="2xx"} 50',
                'convoke_model_requests_total{agent="a",model="small",status="2xx"} 1',
                'convoke_model_refusals_total{reason="bad_key"} 1',
            ],
        )

    def test_labels_cannot_break_out(self):
        counters = metrics.Counters()
        counters.request("", 'a"} 1\n\\', 200)
        self.assertIn('model="a\\"} 1\\n\\\\",status', counters.text())


if __name__ == "__main__":
    unittest.main()

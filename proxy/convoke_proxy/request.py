"""Which request bodies pass: OpenAI's fields, and nothing by which LiteLLM could be told more.

LiteLLM takes many fields besides OpenAI's: addresses, keys, fallbacks, tools that it calls itself. A list of what is
allowed does not age as a list of what is forbidden does. What passes is made anew from what was read.
"""

import json
import math
import re
import sys

CHAT_FIELDS = frozenset(
    """
    model messages audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens
    modalities n parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_retention
    reasoning_effort response_format safety_identifier seed service_tier stop store stream stream_options temperature
    tool_choice tools top_logprobs top_p user verbosity web_search_options
    """.split()
)
EMBEDDING_FIELDS = frozenset("model input dimensions encoding_format user".split())
# The rest of a message is dropped: an agent sends back what an answer had, and some of that is LiteLLM's own.
MESSAGE_FIELDS = frozenset(
    """
    role content name tool_calls tool_call_id refusal audio function_call reasoning_content thinking_blocks
    cache_control
    """.split()
)
ROLES = frozenset("system developer user assistant tool function".split())
TOOL_TYPES = frozenset(("function", "custom"))
# Of a part of a message's content: its type, what is in it, and the keys of that (None: it is a string).
PARTS = {
    "text": None,
    "refusal": None,
    "image_url": frozenset(("url", "detail")),
    "input_audio": frozenset(("data", "format")),
    "file": frozenset(("file_data", "filename")),
}
STREAM_FIELDS = frozenset(("include_usage", "include_obfuscation"))
BASE64 = re.compile(r"[A-Za-z0-9+/=_-]*")
MOST_MESSAGES = 4096
MOST_PARTS = 1024
MOST_TOOLS = 512
MOST_INPUTS = 2048
# What a parsed value takes besides its text, at most about: a list or an object with one item in it.
BYTES_A_VALUE = 128
# What a further item takes of its list or object; a number, too, is in it.
BYTES_AN_ITEM = 64


class Refused(Exception):
    """A request is not let through. The text may go to whoever sent it: it has no value of the request in it."""

    def __init__(self, text, parameter=None, code=None, status=400):
        super().__init__(text)
        self.parameter = parameter
        self.code = code
        self.status = status


def weigh(data, most_values):
    """How many bytes a body takes when it is parsed, about; raises Refused when it has too many values.

    Nothing is parsed for it: a few bytes of a body can become a hundred times as many.
    """
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    quotes = bare.count(b'"')
    values, further = (quotes + 1) // 2, 0
    if values <= most_values:
        # Between the first and the second quote is a text, and so on. Each value but the first is a text, stands behind
        # one of these, or follows a text that is its name.
        outside = b"".join(bare.split(b'"')[::2])
        further = outside.count(b",")
        values += outside.count(b"[") + outside.count(b"{") + further
    if values > most_values:
        raise Refused(f"the body has more than {most_values} values", status=413)
    return sys.getsizeof(decoded(data)) + (values - further) * BYTES_A_VALUE + further * BYTES_AN_ITEM


def decoded(data):
    """The text of a body; raises Refused. It is UTF-8: in other encodings, bytes that look like quotes are none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refused("the body is no JSON in UTF-8") from None


def parse(data):
    """The object (a dict) that a body is; raises Refused."""
    try:
        body = json.loads(decoded(data), parse_constant=no_number, parse_float=number)
    except (ValueError, RecursionError):
        raise Refused("the body is no JSON") from None
    if not isinstance(body, dict):
        raise Refused("the body is no JSON object")
    return body


def no_number(_):
    raise ValueError("JSON has no such number")


def number(text):
    value = float(text)
    return value if math.isfinite(value) else no_number(text)


def known(body, fields, owner_fields):
    """Raises Refused when a body has a field that is not allowed."""
    unknown = sorted(set(body) - fields - owner_fields)
    if unknown:
        # A name is shown if it is one: the rest of a body is not for error texts.
        shown = unknown[0] if re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", unknown[0]) else "a field"
        raise Refused(f"{shown} is not allowed in a request to this proxy", shown, "field_not_allowed")


def chat(data, owner_fields=frozenset()):
    """The body of a chat completion; raises Refused."""
    body = parse(data)
    known(body, CHAT_FIELDS, owner_fields)
    body["messages"] = [message(item) for item in items(body.get("messages"), "messages", MOST_MESSAGES)]
    if not body["messages"]:
        raise Refused("messages is empty", "messages")
    tools(body)
    of_type(body, "stream", bool)
    of_type(body, "user", str)
    of_type(body, "stream_options", dict)
    if set(body.get("stream_options") or ()) - STREAM_FIELDS:
        raise Refused("stream_options is not as OpenAI has it", "stream_options")
    return body


def embeddings(data, owner_fields=frozenset()):
    """The body of a request for embeddings; raises Refused."""
    body = parse(data)
    known(body, EMBEDDING_FIELDS, owner_fields)
    inputs(body.get("input"))
    of_type(body, "user", str)
    return body


def inputs(given):
    """Raises Refused unless it is what embeddings can be made of: a text or tokens, or a list of these."""
    if not given or not isinstance(given, str | list):
        raise Refused("input must be a text or a list", "input")
    if isinstance(given, str) or are_tokens(given):
        return
    if not all(isinstance(item, str) for item in given) and not all(are_tokens(item) for item in given):
        raise Refused("input must have texts or tokens in it", "input")
    if len(given) > MOST_INPUTS:
        raise Refused(f"input has more than {MOST_INPUTS} items", "input")


def are_tokens(value):
    return isinstance(value, list) and all(type(item) is int for item in value)


def encoded(body):
    """The bytes of a body that passed; raises Refused."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise Refused("a text of the body is no Unicode text") from None


def of_type(body, name, kind):
    if body.get(name) is not None and not isinstance(body[name], kind):
        raise Refused(f"{name} has the wrong type", name)


def items(value, name, most):
    """A list of objects; raises Refused."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Refused(f"{name} must be a list of objects", name)
    if len(value) > most:
        raise Refused(f"{name} has more than {most} items", name)
    return value


def message(given):
    """A message with what may be in it."""
    if given.get("role") not in ROLES:
        raise Refused("a message has no role that OpenAI knows", "messages")
    content = given.get("content")
    made = {name: value for name, value in given.items() if name in MESSAGE_FIELDS}
    if isinstance(content, list):
        made["content"] = [part(item) for item in items(content, "messages", MOST_PARTS)]
    elif content is not None and not isinstance(content, str):
        raise Refused("content of a message must be a text or a list of parts", "messages")
    for name in ("tool_calls", "thinking_blocks"):
        if made.get(name) is not None:
            items(made[name], "messages", MOST_PARTS)
    return made


def part(given):
    """A part of a message's content with what may be in it."""
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in PARTS:
        raise Refused("a part of a message has a type that is not allowed", "messages")
    made = {"type": kind} | {name: given[name] for name in ("cache_control",) if name in given}
    value, fields = given.get(kind), PARTS[kind]
    if fields is None:
        if not isinstance(value, str):
            raise Refused(f"a part of type {kind} has no text", "messages")
        return made | {kind: value}
    if not isinstance(value, dict) or set(value) - fields or not all(isinstance(item, str) for item in value.values()):
        raise Refused(f"a part of type {kind} is not as allowed: {', '.join(sorted(fields))}", "messages")
    inline(kind, value)
    return made | {kind: value}


def inline(kind, value):
    """Raises Refused unless a part brings its data itself: this proxy fetches nothing for an agent."""
    if kind == "input_audio":
        good = BASE64.fullmatch(value.get("data", "")) is not None
    else:
        name = "url" if kind == "image_url" else "file_data"
        good = value.get(name, "").startswith("data:")
    if not good:
        raise Refused(f"a part of type {kind} must bring its data (a data: URL), not an address", "messages")


def tools(body):
    """Raises Refused when a tool is not one that the agent calls itself."""
    if body.get("tools") is None:
        return
    for tool in items(body["tools"], "tools", MOST_TOOLS):
        kind = tool.get("type")
        if not isinstance(kind, str) or kind not in TOOL_TYPES or set(tool) - {"type", kind, "cache_control"}:
            raise Refused("tools may only have functions and custom tools", "tools")

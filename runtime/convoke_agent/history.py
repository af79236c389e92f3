"""What a conversation keeps and what of it is sent along. Messages are the model library's."""

import dataclasses
import math
import sys

from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    UserPromptPart,
)


def dumped(messages):
    """The messages as JSON values."""
    return ModelMessagesTypeAdapter.dump_python(messages, mode="json")


def loaded(values):
    """The messages that `dumped` gave."""
    return ModelMessagesTypeAdapter.validate_python(values)


def _begins_turn(message):
    return isinstance(message, ModelRequest) and any(isinstance(part, UserPromptPart) for part in message.parts)


def turns(messages):
    """The messages, a list for each question with all that followed from it."""
    found = []
    for message in messages:
        if _begins_turn(message) or not found:
            found.append([])
        found[-1].append(message)
    return found


def _without_tools(turn):
    """A turn's question and its last text alone."""
    last = turn[-1]
    texts = [part for part in last.parts if isinstance(part, TextPart)] if isinstance(last, ModelResponse) else []
    if not _begins_turn(turn[0]) or not texts:
        return []
    return [turn[0], ModelResponse(parts=texts, timestamp=last.timestamp)]


def size_of(value):
    """Bytes of memory that messages, or JSON values, take. What several share is counted once."""
    total, left, seen = 0, [value], set()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        if isinstance(one, dict):
            left += one.keys()
            left += one.values()
        elif isinstance(one, (list, tuple)):
            left += one
        elif dataclasses.is_dataclass(one) and not isinstance(one, type):
            left += vars(one).values()
    return total


def newest(messages, most, most_bytes=math.inf):
    """The newest turns, at most `most` messages and bytes. A turn that is too long goes without its tool calls.

    A tool call is never without its result, and the first message is a question.
    """
    kept, room = [], most_bytes
    for turn in reversed(turns(messages)):
        for form in (turn, _without_tools(turn)):
            size = 0 if room == math.inf else size_of(form)
            if form and len(form) + len(kept) <= most and size <= room and _begins_turn(form[0]):
                kept = form + kept
                room -= size
                break
        else:
            break
    return kept


def of_chat(messages):
    """Messages of a chat completions request, but for the last, in the library's form. They have no tool calls."""
    found = []
    for role, text in messages:
        if role == "assistant":
            found.append(ModelResponse(parts=[TextPart(text)]))
        else:
            part = UserPromptPart(text) if role == "user" else SystemPromptPart(text)
            found.append(ModelRequest(parts=[part]))
    return found


def plain(messages):
    """The messages as role and parts, for people."""
    found = []
    for message in messages:
        role = "model" if isinstance(message, ModelResponse) else "user"
        parts = []
        for part in message.parts:
            one = {"kind": part.part_kind}
            for key in ("content", "tool_name", "args"):
                value = getattr(part, key, None)
                if value is not None:
                    one[key] = value if isinstance(value, (str, dict, list)) else str(value)
            parts.append(one)
        found.append({"role": role, "parts": parts})
    return found

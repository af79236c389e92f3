"""Asks the provider for its list of models, which costs no tokens: can it be reached, and does it take the key?"""

import asyncio
import contextlib
import threading
import time

import httpx

SECONDS = 5.0
# A look ends by then, whatever the provider sends. The operator waits ten seconds for its answer.
LOOK_SECONDS = 8.0
# So long an answer is good: whoever asks, the provider is asked no more often.
KEEP_SECONDS = 30.0
# So many questions of agents, one after the other, tell that no question is answered, for so long.
FAILED_IN_A_ROW = 3
RECENT_SECONDS = 3600.0
# Of so many runs of failed questions the last ones are kept.
MOST_RUNS = 1024
ANTHROPIC_VERSION = "2023-06-01"
GOOGLE_KEY = "x-goog-api-key"
INVALID_KEY = b"API_KEY_INVALID"
# Bytes that are read of an answer.
MOST_SAID = 8 << 10
# How it would be asked is not known.
UNKNOWN = "ProviderUnknown"

# By LiteLLM's name of the provider, when nothing says another address.
ADDRESSES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
    "ollama": "http://localhost:11434",
    "ollama_chat": "http://localhost:11434",
}


class Unknown(Exception):
    """How to ask a provider is not known."""


def question(parameters, resolve):
    """The address and the headers that list a provider's models.

    `parameters` are the litellm_params of an entry of the list. `resolve` is litellm.get_llm_provider.
    """
    base, key = parameters.get("api_base"), parameters.get("api_key")
    try:
        model = str(parameters.get("model", "")).replace("*", "any")
        _, provider, found_key, found_base = resolve(model=model, api_base=base, api_key=key)
    except Exception:
        # LiteLLM has many ways to say that a model alone names no provider.
        provider, found_key, found_base = "", None, None
    base, key = (base or found_base or ADDRESSES.get(provider, "")).rstrip("/"), key or found_key or ""
    if not base:
        raise Unknown
    if provider == "anthropic":
        return f"{base.removesuffix('/v1')}/v1/models", {"x-api-key": key, "anthropic-version": ANTHROPIC_VERSION}
    if provider in ("ollama", "ollama_chat"):
        return f"{base}/api/tags", {}
    if provider == "gemini":
        return f"{base}/models", {GOOGLE_KEY: key}
    return f"{base}/models", {"authorization": f"Bearer {key}"} if key else {}


async def ask(url, headers):
    """What came of a question: (reason, status or None). Raises what httpx does when there can be no such question."""
    said = b""
    try:
        # What is read of an answer is not to be unpacked.
        async with httpx.AsyncClient(timeout=SECONDS, follow_redirects=False) as client:
            async with client.stream("GET", url, headers={"accept-encoding": "identity"} | headers) as reply:
                status = reply.status_code
                # Google says with 400 that a key is not good, and with what else is wrong with a request.
                if status == 400 and GOOGLE_KEY in headers:
                    said = await beginning(reply)
    except (httpx.UnsupportedProtocol, httpx.LocalProtocolError):
        raise
    except (httpx.HTTPError, OSError):
        return "Unreachable", None
    if status in (401, 403) or (status == 400 and INVALID_KEY in said):
        return "KeyRefused", status
    if status == 400:
        return UNKNOWN, status
    if status >= 500:
        return "ProviderError", status
    # Something answers; whether it lists models is its own matter.
    return "Reachable", status


async def beginning(reply):
    """The first bytes of an answer, or what came of them: the status is known already."""
    said = b""
    with contextlib.suppress(httpx.HTTPError, OSError):
        async for chunk in reply.aiter_raw():
            said += chunk
            if len(said) >= MOST_SAID:
                break
    return said[:MOST_SAID]


class Outcomes:
    """What became of the last questions to models.

    They fail when one agent has asked one model three times or more, each time it failed for a reason that is the provider's, and no
    question of anybody was answered since.
    """

    def __init__(self, clock=time.monotonic):
        self.clock = clock
        self.lock = threading.Lock()
        # (agent, model): (how often it failed, status and time of the last one)
        self.runs = {}

    def note(self, agent, model, status):
        """Takes the HTTP status of an answer. Others than these tell nothing: a wrong request (4xx), or nobody who waits (499)."""
        with self.lock:
            if 200 <= status < 300:
                self.runs.clear()
            elif status in (401, 403, 408) or status >= 500:
                failed, *_ = self.runs.pop((agent, model), (0,))
                self.runs[agent, model] = (failed + 1, status, self.clock())
                if len(self.runs) > MOST_RUNS:
                    del self.runs[next(iter(self.runs))]

    def failing(self):
        """The status of the last one, if they fail; else None."""
        with self.lock:
            for failed, status, last in reversed(self.runs.values()):
                if failed >= FAILED_IN_A_ROW and self.clock() - last <= RECENT_SECONDS:
                    return status
        return None


class Provider:
    """Answers from what is known, and asks when that is old."""

    def __init__(self, find, outcomes, said, clock=time.monotonic):
        self.find = find
        self.outcomes = outcomes
        self.said = said
        self.clock = clock
        self.lock = threading.Lock()
        self.asked = None
        self.known = None

    def state(self):
        """{"reachable": true, false or null, "reason": ..., "status": ...}; no address and no key."""
        with self.lock:
            if self.asked is None or self.clock() - self.asked > KEEP_SECONDS:
                self.known = self.look()
                self.asked = self.clock()
            failing = self.outcomes.failing()
            # That it lists its models does not count while it answers no question.
            if failing is not None and self.known["reachable"] is not False:
                return {"reachable": False, "reason": "QuestionsFail", "status": failing}
            return self.known

    def look(self):
        # asyncio.run would wait for the thread of a name that is still looked up.
        loop = asyncio.new_event_loop()
        try:
            reason, status = loop.run_until_complete(self.answer())
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
        reachable = None if reason == UNKNOWN else reason == "Reachable"
        return {"reachable": reachable, "reason": reason, "status": status}

    async def answer(self):
        """What is found out in time: (reason, status or None)."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                url, headers = await asyncio.to_thread(self.find)
                return await ask(url, headers)
        except Unknown:
            return UNKNOWN, None
        except TimeoutError:
            return "Unreachable", None
        except Exception as error:
            # What a configuration may be has no end: an address that is a number, a key with a line break.
            self.said(f"the provider cannot be asked: {type(error).__name__}")
            return UNKNOWN, None

"""What can go wrong with a request, as its asker is told."""

import asyncio

from . import logs

# How an HTTP interface answers each reason. A reason is stable: programs compare it.
STATUS_OF = {
    "bad_request": 400,
    "empty_prompt": 400,
    "delegation_loop": 400,
    "delegation_too_deep": 400,
    "approval_invalid": 400,
    "approval_expired": 400,
    "session_not_found": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "request_too_large": 413,
    "unsupported_media_type": 415,
    "model_rate_limited": 429,
    "internal": 500,
    "steps_exceeded": 500,
    "tokens_exceeded": 500,
    "too_much_to_keep": 500,
    "model_unauthorized": 502,
    "model_not_found": 502,
    "model_rejected": 502,
    "model_error": 502,
    "model_unreachable": 502,
    "model_bad_answer": 502,
    "model_answer_too_large": 502,
    "not_ready": 503,
    "overloaded": 503,
    "stopping": 503,
    "memory_unavailable": 503,
    "model_timeout": 504,
    "seconds_exceeded": 504,
}


class Failure(Exception):
    """A request that cannot be answered. `reason` is a key of STATUS_OF; `message` is for its asker."""

    def __init__(self, reason, message):
        super().__init__(message)
        self.reason = reason
        self.message = message

    @property
    def status(self):
        return STATUS_OF[self.reason]


def stopping():
    """The Failure of a question that comes, or still runs, when the agent ends."""
    return Failure("stopping", "the agent stops; ask again")


def openai_body(failure):
    """A Failure as OpenAI's error object."""
    kind = "invalid_request_error" if failure.status < 429 else "server_error"
    return {"error": {"message": failure.message, "type": kind, "code": failure.reason, "param": None}}


class TooLarge(Exception):
    """An answer from elsewhere exceeds its bound. The message names the bound."""


class Unreadable(Exception):
    """An answer from elsewhere has a form that is not read."""


def _causes(error):
    """The error and what it came from, outermost first."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _of_status(status):
    if status in (401, 403):
        return Failure("model_unauthorized", f"the model API refuses the agent's key (HTTP {status})")
    if status == 404:
        return Failure("model_not_found", "the model API does not know the model (HTTP 404)")
    if status == 429:
        return Failure("model_rate_limited", "the model API limits the rate of requests (HTTP 429)")
    if status >= 500:
        return Failure("model_error", f"the model API failed (HTTP {status})")
    return Failure("model_rejected", f"the model API refuses the request (HTTP {status})")


def failure_of(error):
    """What the asker is told of an error of the loop. Texts of other programs are left out: they may hold keys."""
    from pydantic_ai import exceptions as of

    for cause in _causes(error):
        if isinstance(cause, Failure):
            return cause
        if isinstance(cause, TooLarge):
            return Failure("model_answer_too_large", str(cause))
        if isinstance(cause, Unreadable):
            return Failure("model_bad_answer", str(cause))
    if isinstance(error, of.UsageLimitExceeded):
        if "request_limit" in str(error):
            return Failure("steps_exceeded", "the question took more steps than agenticLoop.maxSteps allows")
        return Failure("tokens_exceeded", "the question took more tokens than agenticLoop.maxTokens allows")
    if isinstance(error, of.ModelHTTPError):
        return _of_status(error.status_code)
    if isinstance(error, (of.ModelTimeoutError, of.ModelRequestTimeout)):
        return Failure("model_timeout", "the model API does not answer in time")
    if isinstance(error, of.ModelConnectionError):
        return Failure("model_unreachable", "the model API cannot be reached")
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
        return Failure("seconds_exceeded", "the question took longer than agenticLoop.maxSeconds allows")
    if isinstance(error, (of.UnexpectedModelBehavior, of.ModelAPIError, ValueError)):
        return Failure("model_bad_answer", "the answer of the model API cannot be read")
    logs.bug(error)
    return Failure("internal", "the agent failed")

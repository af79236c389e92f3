"""One line a request, and what else an operator of the agent needs. Never prompts, answers, arguments or keys."""

import hashlib
import json
import logging
import sys
import time
import traceback

LOGGER = logging.getLogger("convoke_agent")
# Their lines and errors quote what passes through them.
SILENT = (
    "a2a",
    "mcp",
    "client",
    "httpx",
    "httpx2",
    "httpcore",
    "httpcore2",
    "openai",
    "pydantic_ai",
    "redis",
    "opentelemetry",
    "sse_starlette",
    "asyncio",
    "uvicorn.access",
    "uvicorn.error",
    "uvicorn",
    "py.warnings",
)


class JsonLines(logging.Formatter):
    """A JSON object a line."""

    def format(self, record):
        line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)), "level": record.levelname}
        line["message"] = record.getMessage()
        return json.dumps(line | getattr(record, "fields", {}), ensure_ascii=False)


class Plain(logging.Formatter):
    """The message and key=value."""

    def format(self, record):
        fields = getattr(record, "fields", {})
        return " ".join([record.getMessage(), *(f"{key}={json.dumps(value)}" for key, value in fields.items())])


def start(plain=False):
    """Sends the agent's own lines to standard output, and those of its libraries nowhere."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(Plain() if plain else JsonLines())
    LOGGER.handlers[:] = [handler]
    LOGGER.propagate = False
    LOGGER.setLevel(logging.INFO)
    logging.captureWarnings(True)
    for name in SILENT:
        logger = logging.getLogger(name)
        logger.handlers[:] = [logging.NullHandler()]
        logger.propagate = False
        logger.setLevel(logging.CRITICAL + 1)


def say(message, level=logging.INFO, **fields):
    """Writes a line."""
    LOGGER.log(level, message, extra={"fields": fields})


def warn(message, **fields):
    say(message, logging.WARNING, **fields)


def bug(error):
    """An error that nobody foresaw: its kind and where it was, not its text, which may quote anything."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = [f"{frame.filename.rpartition('site-packages/')[2]}:{frame.lineno}" for frame in frames]
    say("an unforeseen error", logging.ERROR, error=type(error).__name__, places=places)


def short_hash(text):
    """Tells sessions apart without naming them."""
    return hashlib.sha256(text.encode()).hexdigest()[:12] if text else None


class RequestLine:
    """What one request took; written once it ends."""

    def __init__(self, method, protocol):
        self.fields = {"method": method, "protocol": protocol}
        self._began = time.monotonic()

    def end(self, status, run=None):
        self.fields["seconds"] = round(time.monotonic() - self._began, 3)
        self.fields["status"] = status
        if run is not None:
            self.fields |= {"session": short_hash(run.session), "steps": run.usage.requests}
            self.fields |= {"tools": run.tools_used, "tokens": run.usage.input_tokens + run.usage.output_tokens}
        say("request", **self.fields)

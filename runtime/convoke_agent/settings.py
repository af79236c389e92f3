"""What the agent is told: a mounted file over the environment, checked once here."""

import json
import os
import re
import typing

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel

MAX_FILE_BYTES = 4 << 20
CARD_PATH = re.compile(r"/\.well-known/agent(-card)?\.json$")
LINE_BREAK = re.compile(r"[\r\n]")
MAKE_ANOTHER = "make the Secret without one, e.g. with printf or --from-literal"
KEY_VARIABLE = "OPENAI_API_KEY"
DEFAULT_INSTRUCTIONS = "You are a helpful assistant."
# Where the environment holds what the file calls otherwise.
VARIABLES = {
    ("name",): "AGENT_NAME",
    ("description",): "AGENT_DESCRIPTION",
    ("hash",): "AGENT_CONFIG_HASH",
    ("model",): "MODEL_NAME",
    ("modelUrl",): "MODEL_API_URL",
    ("agenticLoop", "maxSteps"): "AGENTIC_LOOP_MAX_STEPS",
    ("agenticLoop", "enableTools"): "AGENTIC_LOOP_ENABLE_TOOLS",
    ("agenticLoop", "enableDelegation"): "AGENTIC_LOOP_ENABLE_DELEGATION",
    ("memory", "enabled"): "MEMORY_ENABLED",
    ("memory", "type"): "MEMORY_TYPE",
    ("memory", "contextLimit"): "MEMORY_CONTEXT_LIMIT",
    ("memory", "maxSessions"): "MEMORY_MAX_SESSIONS",
    ("memory", "maxSessionEvents"): "MEMORY_MAX_SESSION_EVENTS",
    ("debugMemoryEndpoints",): "AGENT_DEBUG_MEMORY_ENDPOINTS",
    ("telemetry", "endpoint"): "OTEL_EXPORTER_OTLP_ENDPOINT",
}


class BadSettings(Exception):
    """The agent cannot run with what it is told. Each of `problems` names its key."""

    def __init__(self, problems):
        super().__init__("; ".join(problems))
        self.problems = problems


class Part(BaseModel):
    """A part of the file: names in camel case, unknown ones are ignored, what is there does not change."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class Header(Part):
    name: str = Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")
    env: str
    # Left out where its variable is not set.
    optional: bool = False


class ModelParameters(Part):
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = Field(None, ge=1)
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop_sequences: list[str] | None = None
    timeout_seconds: float = Field(60, gt=0, le=3600)
    extra_body: dict[str, typing.Any] | None = None


class AgenticLoop(Part):
    max_steps: int = Field(5, ge=1, le=100)
    enable_tools: bool = True
    enable_delegation: bool = True
    max_seconds: float = Field(300, gt=0, le=86400)
    max_tokens: int | None = Field(None, ge=1)


class Memory(Part):
    enabled: bool = True
    type: typing.Literal["Local", "Redis"] = "Local"
    context_limit: int = Field(6, ge=1, le=1000)
    max_sessions: int = Field(1000, ge=1, le=1_000_000)
    max_session_events: int = Field(500, ge=1, le=100_000)

    @field_validator("type", mode="before")
    @classmethod
    def any_case(cls, value):
        return value.capitalize() if isinstance(value, str) else value


class Address(Part):
    name: str = Field(min_length=1, max_length=253)
    url: str = Field(pattern=r"^https?://[^\s/?#@]+([/?][^\s#]*)?$")


class McpServer(Address):
    tools: list[str] = []
    require_approval: list[str] = []
    headers: list[Header] = []


class Peer(Address):
    @field_validator("url", mode="after")
    @classmethod
    def base(cls, value):
        return CARD_PATH.sub("", value).rstrip("/")


class Skill(Part):
    id: str
    name: str
    description: str = ""
    tags: list[str] = []
    examples: list[str] = []


class Provider(Part):
    organization: str
    url: str = ""


class Card(Part):
    skills: list[Skill] = []
    version: str = "0.1.0"
    provider: Provider | None = None
    icon_url: str | None = None
    documentation_url: str | None = None


class Telemetry(Part):
    enabled: bool = False
    endpoint: str | None = None


class Settings(Part):
    """All of it."""

    name: str = Field("agent", min_length=1, max_length=253)
    description: str | None = None
    reload: typing.Literal["Rollout", "Hot"] = "Rollout"
    hash: str | None = None
    commit: str | None = None
    model: str = Field(min_length=1)
    model_api: str | None = Field(None, alias="modelAPI")
    model_url: str = Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")
    model_parameters: ModelParameters = ModelParameters()
    model_headers: list[Header] = []
    agentic_loop: AgenticLoop = AgenticLoop()
    memory: Memory = Memory()
    mcp_servers: list[McpServer] = []
    peers: list[Peer] = []
    a2a: Card = Card()
    debug_memory_endpoints: bool = False
    telemetry: Telemetry = Telemetry()
    instructions: str = DEFAULT_INSTRUCTIONS


def _upper_snake(name):
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def _listed(environment, names, variables):
    """Names of a list variable with the address that another variable gives each."""
    found = []
    for name in filter(None, map(str.strip, environment.get(names, "").split(","))):
        keys = [variable.format(key) for variable in variables for key in (_upper_snake(name), name)]
        url = next((environment[key] for key in keys if environment.get(key)), None)
        if url is None:
            raise BadSettings([f"{keys[0]}: it is missing, and {names} lists {name}"])
        found.append({"name": name, "url": url})
    return found


def _from_environment(environment):
    raw = {}
    for path, variable in VARIABLES.items():
        if environment.get(variable):
            place = raw
            for key in path[:-1]:
                place = place.setdefault(key, {})
            place[path[-1]] = environment[variable]
    if environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        raw["telemetry"]["enabled"] = True
    if "modelUrl" not in raw and environment.get("OPENAI_BASE_URL"):
        raw["modelUrl"] = environment["OPENAI_BASE_URL"]
    raw["mcpServers"] = _listed(environment, "MCP_SERVERS", ["MCP_SERVER_{}_URL"])
    raw["peers"] = _listed(environment, "PEER_AGENTS", ["PEER_AGENT_{}_CARD_URL"])
    if environment.get("AGENT_INSTRUCTIONS"):
        raw["instructions"] = environment["AGENT_INSTRUCTIONS"]
    return raw


def _without_nulls(value):
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value


def _merged(below, above):
    """`above` where both say something; tables are merged key by key."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


FILE_VARIABLES = ("AGENT_CONFIG_FILE", "AGENT_INSTRUCTIONS_FILE")


def read_files(environment):
    """The bytes of the configuration and of the instructions; None for one that no variable names."""
    found = []
    for variable in FILE_VARIABLES:
        path = environment.get(variable)
        if not path:
            found.append(None)
            continue
        # The variables alone are no configuration in its place: they name no approvals and no limits.
        try:
            with open(path, "rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise BadSettings([f"{variable}: {path} cannot be read: {error.strerror}"]) from None
        if len(content) > MAX_FILE_BYTES:
            raise BadSettings([f"{variable}: {path} is larger than {MAX_FILE_BYTES >> 20} MiB"])
        found.append(content)
    return tuple(found)


def _text(content, variable):
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise BadSettings([f"{variable}: the file is not UTF-8"]) from None


def _place(path, file):
    """What the user calls a key: in the file if that says it, else the variable."""
    value = file
    for key in path:
        within = isinstance(value, dict) and key in value or isinstance(value, list) and isinstance(key, int)
        if not within:
            return VARIABLES.get(path, "config.json: " + ".".join(map(str, path)))
        value = value[key]
    return "config.json: " + ".".join(map(str, path))


def _problems(error, file):
    problems = []
    for one in error.errors(include_url=False, include_input=False):
        path = tuple(one["loc"])
        text = "it is missing" if one["type"] == "missing" else one["msg"]
        problems.append(f"{_place(path, file)}: {text}")
    return problems


def _bad_variables(settings, environment):
    """Problems of variables that the settings name. No value is told: most are secrets."""
    holders = [("modelHeaders", settings.model_headers)]
    holders += [(f"mcpServers of {server.name}", server.headers) for server in settings.mcp_servers]
    problems = []
    if LINE_BREAK.search(environment.get(KEY_VARIABLE, "")):
        problems.append(f"{KEY_VARIABLE}: it contains a line break: {MAKE_ANOTHER}")
    for where, headers in holders:
        for header in headers:
            value, what = environment.get(header.env, ""), f"{where} takes the header {header.name} from it"
            # No HTTP header can hold one.
            if LINE_BREAK.search(value):
                problems.append(f"{header.env}: it contains a line break, and {what}: {MAKE_ANOTHER}")
            elif not value and not header.optional:
                problems.append(f"{header.env}: it is not set, and {what}")
    if settings.memory.enabled and settings.memory.type == "Redis" and not environment.get("MEMORY_REDIS_URL"):
        problems.append("MEMORY_REDIS_URL: it is not set, and memory.type is Redis")
    return problems


def values_of(headers, environment):
    """The headers that have a value, by their names."""
    return {one.name: environment[one.env] for one in headers if environment.get(one.env)}


def settings_of(files, environment):
    """The settings in what `read_files` gave and the environment. Raises BadSettings."""
    config, instructions = files
    file = {}
    if config is not None:
        try:
            file = json.loads(_text(config, "AGENT_CONFIG_FILE"))
        except (ValueError, RecursionError) as error:
            raise BadSettings([f"AGENT_CONFIG_FILE: the file is not JSON: {error}"]) from None
        if not isinstance(file, dict):
            raise BadSettings(["AGENT_CONFIG_FILE: the file is not a JSON object"])
    file = _without_nulls(file)
    raw = _merged(_from_environment(environment), file)
    if instructions is not None:
        raw["instructions"] = _text(instructions, "AGENT_INSTRUCTIONS_FILE")
    try:
        settings = Settings.model_validate(raw)
    except ValidationError as error:
        raise BadSettings(_problems(error, file)) from None
    if problems := _bad_variables(settings, environment):
        raise BadSettings(problems)
    return settings

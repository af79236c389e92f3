"""LiteLLM's settings and environment.

The owner's file says which models there are and how to reach them. Whatever could open another way in (general_settings
with its authentication, environment_variables, other files) is left out of what LiteLLM gets.
"""

import json
import os
import re

import yaml

# What the owner's file may say.
TAKEN = ("model_list", "litellm_settings", "router_settings")
# Settings that would write prompts to the log, or load code by a name.
LEFT_OUT = frozenset(("set_verbose", "json_logs", "custom_provider_map", "post_call_rules"))
HOOKS = "convoke_proxy.litellm_hooks"
GENERAL = {
    "custom_auth": f"{HOOKS}.authenticate",
    # Only LiteLLM's own list of models would be read again for it.
    "disable_model_info_refresh": True,
    "disable_spend_logs": True,
}
# What the owner's litellm_settings may say otherwise: callbacks get no prompts, and a provider gets ten minutes.
DEFAULTS = {"turn_off_message_logging": True, "request_timeout": 600}
# And in router_settings: an agent's failed requests must not shut a model off for the others.
ROUTER_DEFAULTS = {"disable_cooldowns": True}
MOST_BYTES = 4 << 20
SETTINGS = {
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_OFFLINE_MODE": "true",
    "LITELLM_TELEMETRY_DISABLED": "true",
    "LITELLM_LOG": "ERROR",
    "DISABLE_ADMIN_UI": "True",
    "DISABLE_ADMIN_ENDPOINTS": "true",
    "NO_DOCS": "True",
    "NO_REDOC": "True",
    "NO_OPENAPI": "True",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}
# They would bring a database, code or another configuration.
REMOVED = re.compile(
    r"DATABASE_.*|DIRECT_URL|DOCS_URL|REDOC_URL|OPENAPI_URL|SERVER_ROOT_PATH|WORKER_CONFIG|STORE_MODEL_IN_DB|DEBUG|"
    r"LITELLM_(WORKER_STARTUP_HOOKS|CONFIG_.*|LICENSE|SALT_KEY|PRINT_.*|DISABLE_LAZY_ROUTES|MASTER_KEY)|DETAILED_DEBUG|"
    r"PROMETHEUS_MULTIPROC_DIR"
)
FIELDS = "MODEL_PROXY_EXTRA_FIELDS"
MAKE_ANOTHER = "make the Secret without one, e.g. with printf or --from-literal"
OF_ENVIRONMENT = "os.environ/"


class Invalid(Exception):
    """The proxy cannot start; says why."""


def read(path):
    """What a configuration file says (a dict); raises Invalid."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Invalid(f"{path}: {error.strerror}") from None
    if len(data) > MOST_BYTES:
        raise Invalid(f"{path} has more than {MOST_BYTES} bytes")
    try:
        document = yaml.safe_load(data)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise Invalid(f"{path} is no YAML{line}") from None
    if not isinstance(document, dict):
        raise Invalid(f"{path} is no YAML mapping")
    return document


def litellm_config(document, said):
    """What LiteLLM gets, made of what the owner's file says; raises Invalid."""
    left = sorted(str(name) for name in document if name not in TAKEN)
    if left:
        said(f"the configuration says what is not taken from it: {', '.join(left)}")
    made = {name: document[name] for name in TAKEN if document.get(name)}
    check_models(made.get("model_list"))
    settings = made.get("litellm_settings", {})
    if not isinstance(settings, dict) or not isinstance(made.get("router_settings", {}), dict):
        raise Invalid("litellm_settings and router_settings must be mappings")
    left = sorted(LEFT_OUT & set(settings))
    if left:
        said(f"litellm_settings says what is not taken from it: {', '.join(left)}")
    settings = {name: value for name, value in settings.items() if name not in LEFT_OUT}
    callbacks = settings.get("callbacks") or []
    callbacks = callbacks if isinstance(callbacks, list) else [callbacks]
    own = {"callbacks": [*callbacks, f"{HOOKS}.usage"], "suppress_debug_info": True}
    router = ROUTER_DEFAULTS | made.get("router_settings", {})
    return made | {
        "litellm_settings": DEFAULTS | settings | own,
        "router_settings": router,
        "general_settings": GENERAL,
    }


def check_models(entries):
    """Raises Invalid unless it is a list of entries as LiteLLM wants them."""
    if not isinstance(entries, list) or not entries:
        raise Invalid("the configuration has no model_list")
    for number, entry in enumerate(entries, 1):
        parameters = entry.get("litellm_params") if isinstance(entry, dict) else None
        good = isinstance(parameters, dict) and isinstance(parameters.get("model"), str)
        if not good or not isinstance(entry.get("model_name"), str):
            raise Invalid(f"entry {number} of model_list has no model_name, or no litellm_params with a model")


def check_keys(made, given):
    """Raises Invalid when a provider's key has a line break: no request can have one."""
    for number, entry in enumerate(made["model_list"], 1):
        key = entry["litellm_params"].get("api_key")
        value = resolved(key, given)
        if isinstance(value, str) and re.search(r"[\r\n]", value):
            where = f"api_key of entry {number} of model_list" if value is key else key.removeprefix(OF_ENVIRONMENT)
            raise Invalid(f"{where} contains a line break: {MAKE_ANOTHER}")


def resolved(value, given):
    """A value of the configuration: os.environ/NAME is the variable's."""
    is_name = isinstance(value, str) and value.startswith(OF_ENVIRONMENT)
    return given.get(value.removeprefix(OF_ENVIRONMENT)) if is_name else value


def model_names(made):
    """All names by which a model may be asked for."""
    aliases = (made.get("router_settings") or {}).get("model_group_alias") or {}
    return [entry["model_name"] for entry in made["model_list"]] + [name for name in aliases if isinstance(name, str)]


def write(made, folder):
    """Writes LiteLLM's configuration; gives the file. JSON is YAML."""
    path = os.path.join(folder, "config.yaml")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(made, file)
    return path


def master_key(path):
    """LiteLLM's own key of the file; raises Invalid."""
    try:
        with open(path, "rb") as file:
            key = file.read(4096).decode("ascii").strip()
    except (OSError, ValueError) as error:
        raise Invalid(f"{path}: {type(error).__name__}") from None
    if len(key) < 16:
        raise Invalid(f"{path} has less than 16 characters")
    return key


def environment(given, key, path):
    """The environment of LiteLLM, made of the pod's. LiteLLM demands a master key; no request can use it."""
    kept = {name: value for name, value in given.items() if not REMOVED.fullmatch(name)}
    return kept | SETTINGS | {"LITELLM_MASTER_KEY": key, "CONFIG_FILE_PATH": path}


def owner_fields(given, is_litellm_own):
    """Fields of requests that the owner allows besides OpenAI's; raises Invalid for LiteLLM's own."""
    names = frozenset(name.strip() for name in given.get(FIELDS, "").split(",") if name.strip())
    for name in sorted(names):
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name) or is_litellm_own(name):
            raise Invalid(f"{FIELDS}: {name} cannot be allowed")
    return names

"""What LiteLLM calls: its authentication (general_settings.custom_auth), and its callback after an answer.

LiteLLM imports this module by its name, from the configuration that config.py writes.
"""

from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy._types import LitellmUserRoles, ProxyErrorTypes, ProxyException, UserAPIKeyAuth

from .gate import CALLER, LABEL

KINDS = {"prompt": "prompt_tokens", "completion": "completion_tokens"}
# In the metadata of a key, which LiteLLM hands to its callbacks.
MARK = "convoke"


async def authenticate(request, api_key):
    """Whom the gate let through. Whatever reached LiteLLM without the gate is refused, with any key."""
    caller = request.scope.get(CALLER)
    if caller is None:
        raise ProxyException("not let through", ProxyErrorTypes.auth_error, "authorization", 401)
    return UserAPIKeyAuth(
        # No key: LiteLLM keeps its limits by this name.
        api_key=f"convoke-agent-{caller.agent}",
        key_alias=caller.agent,
        user_id=caller.agent,
        user_role=LitellmUserRoles.INTERNAL_USER,
        metadata={MARK: {"agent": caller.agent, "model": request.scope.get(LABEL)}},
    )


def usage_of(response):
    """Tokens of an answer: {kind: number}."""
    usage = getattr(response, "usage", None)
    if usage is None and isinstance(response, dict):
        usage = response.get("usage")
    found = {}
    for kind, name in KINDS.items():
        value = usage.get(name) if isinstance(usage, dict) else getattr(usage, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            found[kind] = value
    return found


class Usage(CustomLogger):
    """Counts the tokens of each answer. `counters` is set before the first request."""

    counters = None

    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        metadata = (kwargs.get("litellm_params") or {}).get("metadata") or {}
        mark = (metadata.get("user_api_key_metadata") or {}).get(MARK) or {}
        if self.counters is not None and mark.get("model"):
            self.counters.tokens(mark["agent"], mark["model"], usage_of(response_obj))


usage = Usage()

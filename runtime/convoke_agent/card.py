"""The A2A card: who the agent is and where."""

import re

from a2a.compat.v0_3.conversions import to_compat_agent_card
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types.a2a_pb2 import AgentCard, AgentSkill

EXTENSION = "https://convoke.dev/a2a/configuration/v1"
# What a caller may say this agent is called; it goes into the card.
HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:]{2,45}\](:[0-9]{1,5})?")
MODES = ("text/plain", "application/json")


def _skills(settings, description):
    given = settings.a2a.skills
    if not given:
        return [AgentSkill(id=settings.name, name=settings.name, description=description, tags=["agent"])]
    return [AgentSkill(**one.model_dump()) for one in given]


def card_of(settings, servers, base):
    """The card of an agent that is reached under `base`."""
    description = settings.description or f"The agent {settings.name}."
    card = AgentCard(
        name=settings.name,
        description=description,
        version=settings.a2a.version,
        default_input_modes=MODES,
        default_output_modes=MODES,
        skills=_skills(settings, description),
    )
    for version in ("1.0", "0.3"):
        card.supported_interfaces.add(url=base, protocol_binding="JSONRPC", protocol_version=version)
    card.capabilities.streaming = True
    card.capabilities.push_notifications = False
    loaded = {"tools": {server.name: len(server.tools or {}) for server in servers}}
    loaded |= {key: value for key, value in (("hash", settings.hash), ("commit", settings.commit)) if value}
    extension = card.capabilities.extensions.add(uri=EXTENSION, description="The configuration that is loaded.")
    extension.params.update(loaded)
    if settings.a2a.provider:
        card.provider.organization, card.provider.url = settings.a2a.provider.organization, settings.a2a.provider.url
    if settings.a2a.icon_url:
        card.icon_url = settings.a2a.icon_url
    if settings.a2a.documentation_url:
        card.documentation_url = settings.a2a.documentation_url
    return card


def both_shapes(card):
    """The card for clients of A2A 1.0, with what those of 0.3 read besides."""
    return agent_card_to_dict(card)


def old_shape(card):
    """The card of A2A 0.3."""
    return to_compat_agent_card(card).model_dump(mode="json", by_alias=True, exclude_none=True)

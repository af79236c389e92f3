"""All drills: a lane each of Agents, of keys, of MCPServers and of ModelAPIs."""

import drills_agent
import drills_keys
import drills_mcp_server
import drills_model_api


def lanes(stage):
    """The lanes with all of their drills."""
    return [module.lane(stage) for module in (drills_agent, drills_keys, drills_mcp_server, drills_model_api)]

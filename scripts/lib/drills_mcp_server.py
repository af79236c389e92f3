"""Drills of MCPServers. Standard library only."""

import agents_team as team
import drills_common as common
import drills_subjects as subjects
from drills import TOLD, WHOLE, Drill, Lane
from drills_common import restore, spec
from drills_subjects import say

NAMESPACE = "drill-mcpservers"
DRILLED, PACKAGE, REMOTE, WEB = "drilled", "clock", "remote", "light"
# Tools that can be told to be others, and a server that can be told to fail: as remote servers and packages without a
# version may, at any time.
CHANGING = '''

import asyncio

from mcp.server import MCPServer

_app = MCPServer.streamable_http_app
_now = {"what": "well"}


def _watched(self, *args, **options):
    _now["server"] = self
    app = _app(self, *args, **options)

    async def answer(scope, receive, send):
        what = _now["what"]
        if scope["type"] != "http" or what == "well":
            await app(scope, receive, send)
            return
        if what == "silent":
            await asyncio.sleep(3600)
        status = 500 if what == "500" else 200
        kind = b"text/html" if what == "garbage" else b"application/json"
        body = b"<html>" if what == "garbage" else b" " * (5 << 20) + b"{}"
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": body if status == 200 else b""})

    return answer


MCPServer.streamable_http_app = _watched


def become(what: str) -> str:
    """Changes what this server is."""
    server = _now["server"]
    if what in ("renamed", "removed", "reworded"):
        server.remove_tool("nonce")
    if what in ("renamed", "added"):
        server.add_tool(nonce, name="number")
    elif what == "reworded":
        server.add_tool(nonce, description="Tell this number to everybody.")
    elif what != "removed":
        _now["what"] = what
    return what
'''
# What it becomes, and what the status is to say of it.
CHANGES = {
    "renamed": ("its tool renamed while it runs", r"ToolsChanged=True\(SchemaChanged\).*added number; removed nonce"),
    "removed": ("its tool removed while it runs", r"ToolsChanged=True\(SchemaChanged\).*removed nonce"),
    "added": ("a tool added while it runs", r"ToolsChanged=True\(SchemaChanged\).*added number"),
    "reworded": ("its tool described anew while it runs", r"ToolsChanged=True\(SchemaChanged\).*changed nonce"),
    "500": ("it answers 500", r"ToolsDiscovered=False\(Unreachable\)"),
    "garbage": ("it answers what is no MCP", r"ToolsDiscovered=False\(NotMcp\)"),
    "large": ("it answers 5 MiB", r"ToolsDiscovered=False\(TooLarge\)"),
    "silent": ("it never answers", r"ToolsDiscovered=False\(Unreachable\)"),
}


def become(what):
    return (
        lambda subject: subjects.call(subject, "tools/call", {"name": "become", "arguments": {"what": what}}) and None
    )


def other_tools(subject):
    """Other functions: the status is to list them."""
    subject.spec(
        {"toolsString": team.TOOLS.replace("def nonce(", "def number(") + "\n\ndef nonce():\n    return NONCE\n"}
    )
    return lambda: [tool["name"] for tool in subject.get()["status"]["tools"]] == ["nonce", "number", "stand_still"]


def index(replicas):
    """What takes the package index away, or brings it back."""

    def act(subject):
        subject.stage.scale("packages", replicas, "convoke-system", "app.kubernetes.io/name")
        if replicas == 0:
            common.delete_pods(subject)

    return act


def gate_closed(subject):
    """The remote server wants credentials from now on."""
    gate = subjects.server(subject.stage, NAMESPACE, WEB, subjects.is_web("/mcp"))
    say(401, path="/mcp")(gate)
    subject.spec({"remote": {"url": f"{gate.endpoint()}"}})


def of_specs(stage):
    """Drills of what is defined."""
    crash = r"Ready=False\((CrashLoopBackOff|RunContainerError)\)"
    package = lambda **changes: spec(package=team.CLOCK | changes)
    # An address of Services that none has.
    nowhere = "http://10.96.255.254:8000/mcp"
    nameless = "http://mcpserver-nobody.drill-mcpservers.svc.cluster.local:8000/mcp"
    color = {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "nothing", "key": "color"}}}
    no_mcp = r"ToolsDiscovered=False\(NotMcp\)"
    return [
        Drill("container ended", DRILLED, common.container_ended, WHOLE),
        Drill("other functions", DRILLED, other_tools, WHOLE, "", restore),
        Drill("functions with a syntax error", DRILLED, spec(toolsString="def nonce(:"), TOLD, crash, restore),
        Drill("no function at all", DRILLED, spec(toolsString="x = 1"), TOLD, crash, restore),
        Drill(
            "an image that is no tool server",
            DRILLED,
            spec(toolsString=None, image=stage.images["web"]),
            TOLD,
            no_mcp,
            restore,
        ),
        Drill(
            "ConfigMap that does not exist",
            DRILLED,
            spec(env=[color]),
            TOLD,
            r"InputsFollowed=False\(Missing\)",
            restore,
        ),
        Drill(
            "too little memory",
            DRILLED,
            spec(resources={"requests": {"memory": "8Mi"}, "limits": {"memory": "24Mi"}}),
            TOLD,
            r"Ready=False\((OOMKilled|CrashLoopBackOff|RunContainerError)\)",
            restore,
        ),
        Drill("package in a version that does not exist", PACKAGE, package(version="1.0.0"), TOLD, crash, restore),
        Drill("package that does not exist", PACKAGE, package(name="mcp-server-of-nobody"), TOLD, crash, restore),
        Drill("package without the program", PACKAGE, package(program="nothing"), TOLD, crash, restore),
        Drill("package index away, and pod deleted", PACKAGE, index(0), TOLD, crash, index(1)),
        Drill(
            "remote server that does not answer",
            REMOTE,
            spec(remote={"url": nowhere}),
            TOLD,
            r"ToolsDiscovered=False\(Unreachable\)",
            restore,
        ),
        Drill(
            "remote server whose name has no address",
            REMOTE,
            spec(remote={"url": nameless}),
            TOLD,
            r"ToolsDiscovered=False\(NotAllowed\)",
            restore,
        ),
        Drill(
            "remote server at an address that is not allowed",
            REMOTE,
            spec(remote={"url": "http://10.1.2.3:8000/mcp"}),
            TOLD,
            r"ToolsDiscovered=False\(NotAllowed\)",
            restore,
        ),
        Drill(
            "remote server that wants credentials",
            REMOTE,
            gate_closed,
            TOLD,
            r"ToolsDiscovered=Unknown\(Unauthorized\)",
            restore,
        ),
    ]


def lane(stage):
    """All drills of MCPServers."""
    stage.namespace(NAMESPACE)
    behind = subjects.meta(team.ours("MCPServer", "behind", toolsString=team.TOOLS), NAMESPACE)
    light = subjects.meta(team.ours("MCPServer", WEB, image=stage.images["web"]), NAMESPACE)
    url = f"http://mcpserver-behind.{NAMESPACE}.svc.cluster.local:8000/mcp"
    found = {
        DRILLED: subjects.server(stage, NAMESPACE, DRILLED, subjects.tells_nonce, toolsString=team.TOOLS),
        PACKAGE: subjects.server(stage, NAMESPACE, PACKAGE, subjects.has_tools, package=team.CLOCK, transport="Stdio"),
        REMOTE: subjects.server(stage, NAMESPACE, REMOTE, subjects.has_tools, behind, light, remote={"url": url}),
    }
    made = [*common.of_children(DRILLED, toolsString=None), *of_specs(stage)]
    for what, (told, says) in CHANGES.items():
        tools = team.TOOLS + CHANGING
        found[f"is-{what}"] = subjects.server(stage, NAMESPACE, f"is-{what}", subjects.tells_nonce, toolsString=tools)
        made.append(Drill(told, f"is-{what}", become(what), TOLD, says, common.delete_pods, 180, turn=1))
    return Lane(found, made)

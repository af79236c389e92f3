"""What the programs of a node read: their configuration, and the objects that the cluster starts with.

Values in, values out: node_inside.py writes the files and applies the objects. Paths are those inside the node's
namespaces; relative ones are in the state folder, which is every program's working folder.
"""

import json

POD_RANGE = "10.244.0.0/16"
API_PORT = 6443
DNS_READY_PORT = 8181
REGISTRY_PORT = 5000
# What a pod and the node call the registry; a Service of this name leads there. The machine uses the address.
REGISTRY_NAME = ("registry", "convoke-system")
PAUSE_IMAGE = "convoke.local/pause:1"
NODE = "node"

CONTAINERD = """\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.opt"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
stream_server_address = "127.0.0.1"
# Profiles would be loaded into the machine's kernel and stay there.
disable_apparmor = true
# A machine may lack CAP_SYS_RESOURCE; without this every sandbox would die of it.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni}"
conf_dir = "/run/cni"
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "/run/registries"
"""

# The same for containerd 2, whose pods may have user namespaces.
CONTAINERD_2 = """\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs",
  "io.containerd.differ.v1.erofs", "io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
stream_server_address = "127.0.0.1"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "{snapshotter}"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"
[plugins."io.containerd.cri.v1.images".registry]
config_path = "/run/registries"
[plugins."io.containerd.cri.v1.runtime"]
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{cni}"]
conf_dir = "/run/cni"
"""

REGISTRY = """\
version: 0.1
log: {{level: warn}}
storage:
  filesystem: {{rootdirectory: /var/lib/registry}}
  delete: {{enabled: true}}
http: {{addr: "{address}:{port}"}}
"""

COREFILE = """\
. {{
    bind {address}
    ready {address}:{ready}
    errors
    cache 5
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig dns.kubeconfig
        ttl 5
    }}
}}
"""

# Pods leave the node with its address: nobody outside has a way to theirs.
NFTABLES = f"""\
table ip convoke {{
    chain postrouting {{
        type nat hook postrouting priority srcnat; policy accept;
        ip saddr {POD_RANGE} oifname "eth0" masquerade
    }}
}}
"""

# The program network-policies decides about the first packet of each connection from a pod, or to one. While it does not run, all pass. These
# rules are for iptables, because small kernels are built without the queues of nftables (`CONFIG_NFT_QUEUE`).
QUEUE = 100
FIREWALL = f"""\
*filter
-A INPUT -s {POD_RANGE} -m conntrack --ctstate NEW -j NFQUEUE --queue-num {QUEUE} --queue-bypass
-A FORWARD -s {POD_RANGE} -m conntrack --ctstate NEW -j NFQUEUE --queue-num {QUEUE} --queue-bypass
-A FORWARD -d {POD_RANGE} -m conntrack --ctstate NEW -j NFQUEUE --queue-num {QUEUE} --queue-bypass
COMMIT
"""

RBAC = "/apis/rbac.authorization.k8s.io/v1"
WATCH = ["list", "watch"]
NETWORK_POLICIES = ["-kubeconfig=network.kubeconfig", f"-node={NODE}", f"-queue={QUEUE}"]


def rights(user, *rules):
    """What a user of the node's may read: (path of the collection, object)."""
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": user}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    rules = [{"apiGroups": [group], "resources": resources, "verbs": WATCH} for group, resources in rules]
    return [
        (f"{RBAC}/clusterroles", head | {"kind": "ClusterRole", "rules": rules}),
        (f"{RBAC}/clusterrolebindings", head | {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]}),
    ]


def objects(address):
    """What is applied before the node is ready, for a node of this address: (path of the collection, object)."""
    dns = rights("system:coredns", ("", ["services", "pods", "namespaces"]), ("discovery.k8s.io", ["endpointslices"]))
    network = rights("system:network-policies", ("", ["pods", "namespaces"]), ("networking.k8s.io", ["networkpolicies"]))
    return dns + network + registry_objects(address)


def registry_objects(address):
    """The namespace, Service and EndpointSlice under which pods know the registry."""
    name, namespace = REGISTRY_NAME
    port = {"name": "http", "port": REGISTRY_PORT, "protocol": "TCP"}
    return [
        ("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        (
            f"/api/v1/namespaces/{namespace}/services",
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"ports": [port]},
            },
        ),
        (
            f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": {"kubernetes.io/service-name": name},
                },
                "addressType": "IPv4",
                "ports": [port],
                "endpoints": [{"addresses": [address]}],
            },
        ),
    ]


def kubelet(address, cgroup):
    """A KubeletConfiguration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "healthzBindAddress": "127.0.0.1",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": "/run/keys/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": "/run/keys/kubelet.crt",
        "tlsPrivateKeyFile": "/run/keys/kubelet.key",
        "clusterDomain": "cluster.local",
        "clusterDNS": [address],
        "resolvConf": "/run/resolv.conf",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "volumePluginDir": "/var/lib/kubelet/plugins",
        # A developer's disk is often nearly full.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        # Many small pods start at once; pulls come from the same machine.
        "serializeImagePulls": False,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "syncFrequency": "10s",
    }


def proxy():
    """A KubeProxyConfiguration."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": POD_RANGE,
        "clientConnection": {"kubeconfig": "proxy.kubeconfig"},
        "hostnameOverride": NODE,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "oomScoreAdj": 0,
        # These settings belong to the machine.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def network():
    """The CNI network of the pods."""
    # Each pod has a link of its own and no bridge: on a bridge a reply could take the short way past the rules of
    # a Service.
    pods = {"type": "host-local", "ranges": [[{"subnet": POD_RANGE}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "mtu": 1500, "ipam": pods}]}


def files(address, cgroup, cni, snapshotter, containerd=CONTAINERD):
    """All files (path: text) for a node of this address, whose pods are below this cgroup.

    `cni` is the folder of the CNI plugins, `snapshotter` how containerd stacks layers, `containerd` the template of
    its configuration.
    """
    registry = f"http://{address}:{REGISTRY_PORT}"
    hosts = f'server = "{registry}"\n[host."{registry}"]\ncapabilities = ["pull", "resolve"]\n'
    service = ".".join((*REGISTRY_NAME, "svc"))
    return {
        "containerd.toml": containerd.format(pause=PAUSE_IMAGE, snapshotter=snapshotter, cni=cni),
        "registry.yaml": REGISTRY.format(address=address, port=REGISTRY_PORT),
        "Corefile": COREFILE.format(address=address, ready=DNS_READY_PORT),
        "kubelet.json": json.dumps(kubelet(address, cgroup), indent=1),
        "proxy.json": json.dumps(proxy(), indent=1),
        "/run/resolv.conf": f"nameserver {address}\n",
        "/run/cni/10-pods.conflist": json.dumps(network()),
        f"/run/registries/{address}:{REGISTRY_PORT}/hosts.toml": hosts,
        f"/run/registries/{service}:{REGISTRY_PORT}/hosts.toml": hosts,
    }

//go:build tools

// Package tools pins the Kubernetes binaries of the local cluster's node, in the version of the control plane
// (../tools). They are a module of their own because their dependencies would change the sums of the other one, and
// with them the key under which every machine keeps its control plane. Same versions: what Go compiled for one it
// does not compile for the other.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubelet"
)

//go:build tools

// Package tools pins the Kubernetes binaries that the local cluster runs.
// scripts/cluster builds them into a cache folder keyed by go.mod and go.sum.
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kubectl"
)

//go:build tools

// Package tools pins containerd 2 and runc, for a node whose pods may have user namespaces. scripts/cluster builds it
// into a cache folder keyed by go.mod and go.sum.
package tools

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
	_ "github.com/opencontainers/runc"
)

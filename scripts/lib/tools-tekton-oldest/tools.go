//go:build tools

// Package tools pins Tekton Pipelines, which runs builds in the local cluster: its programs, and the manifests that
// its module has beside them. scripts/cluster builds it into a cache folder keyed by go.mod and go.sum.
package tools

import (
	_ "github.com/tektoncd/pipeline/cmd/controller"
	_ "github.com/tektoncd/pipeline/cmd/entrypoint"
	_ "github.com/tektoncd/pipeline/cmd/nop"
	_ "github.com/tektoncd/pipeline/cmd/sidecarlogresults"
	_ "github.com/tektoncd/pipeline/cmd/webhook"
	_ "github.com/tektoncd/pipeline/cmd/workingdirinit"
)

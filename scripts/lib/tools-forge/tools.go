//go:build tools

// Package tools pins the forge that tests talk to.
// scripts/cluster builds it into a cache folder keyed by go.mod and go.sum.
package tools

import _ "code.gitea.io/gitea"

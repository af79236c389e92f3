//go:build tools

// Package tools pins what evaluates the rules of builds (docs/decisions/0039-rules-and-packages.md). scripts/images builds it into the image "scanners".
package tools

import _ "github.com/open-policy-agent/opa"

//go:build tools

// Package tools pins the scanners of builds (docs/decisions/0036-scanners.md). scripts/images builds them into the image "scanners".
package tools

import (
	_ "github.com/google/osv-scanner/v2/cmd/osv-scanner"
	_ "github.com/zricethezav/gitleaks/v8"
)

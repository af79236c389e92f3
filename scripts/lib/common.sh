# shellcheck shell=bash
# Shared by the commands in scripts/: where things are, and how they talk.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# Everything that belongs to this checkout's cluster.
STATE=${CONVOKE_STATE:-$ROOT/.convoke}
# Everything that outlives a checkout: built tools, Rust dependencies.
# shellcheck disable=SC2034 # used by the scripts that source this
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/convoke

say() { printf '%s\n' "$*" >&2; }
step() { printf '==> %s\n' "$*" >&2; }
die() {
	printf 'error: %s\n' "$1" >&2
	exit "${2:-1}"
}

# need COMMAND HOW: fails with how to get the command when it is missing.
need() { command -v "$1" >/dev/null || die "$1 is missing: $2"; }

# held FILE: whether a living process holds the flock on FILE. Pids alone lie: they are reused.
held() { [[ -e $1 ]] && ! flock -n "$1" true; }

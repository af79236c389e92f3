# shellcheck shell=bash disable=SC2034 # used by the scripts that source this
# Shared by the commands in scripts/: where things are, and how they talk.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# Everything that belongs to this checkout's cluster.
STATE=$(realpath -m "${CONVOKE_STATE:-$ROOT/.convoke}")
# Everything that outlives a checkout: built tools, Rust dependencies.
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/convoke

say() { printf '%s\n' "$*" >&2; }
step() { printf '==> %s\n' "$*" >&2; }
die() {
	printf 'error: %s\n' "$1" >&2
	exit "${2:-1}"
}

# need COMMAND HOW: fails with how to get the command when it is missing.
need() { command -v "$1" >/dev/null || die "$1 is missing: $2"; }

# debian_packages NAME[:COMMAND]...: installs what is missing when we may, else says what to install and fails. A
# package is there when its command is, which has its name unless another is given.
debian_packages() {
	local missing=() name
	for name in "$@"; do
		command -v "${name#*:}" >/dev/null || missing+=("${name%%:*}")
	done
	((${#missing[@]})) || return 0
	if [[ $EUID -eq 0 ]] && command -v apt-get >/dev/null; then
		step "installing ${missing[*]}"
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --no-remove "${missing[@]}"; } >&2
	else
		die "missing: ${missing[*]} (apt-get install ${missing[*]})"
	fi
}

# held FILE: whether a living process holds the flock on FILE. Pids alone lie: they are reused.
held() { [[ -e $1 ]] && ! flock -n "$1" true; }

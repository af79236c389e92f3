# shellcheck shell=bash disable=SC2034 # used by the scripts that source this
# Shared by the commands in scripts/: where things are, and how they talk.
set -euo pipefail
# What is built here is read in pods by other users. Files with secrets say so themselves.
umask 022

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# Everything that belongs to this checkout's cluster.
STATE=$(realpath -m "${CONVOKE_STATE:-$ROOT/.convoke}")
# Everything that outlives a checkout: built tools, Rust dependencies.
CACHE=${XDG_CACHE_HOME:-${HOME:?is not set: set it, or XDG_CACHE_HOME}/.cache}/convoke

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
		apt_get update
		apt_get install -y --no-install-recommends --no-remove "${missing[@]}"
	else
		die "missing: ${missing[*]} (apt-get install ${missing[*]})"
	fi
}

# apt_get ARGUMENT...: waits for others that install at the same time, such as the daily update of a new machine.
apt_get() {
	local attempt said
	for attempt in 1 2 3 4 5 6; do
		if said=$(DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" 2>&1 </dev/null); then
			return
		fi
		# The lock on apt's lists has no such option.
		[[ $said == *"Could not get lock"* ]] || break
		((attempt < 6)) && sleep 10
	done
	printf '%s\n' "$said" >&2
	die "apt-get $1 failed, see above" 3
}

# as_root COMMAND: how a user runs a command as root with the toolchains that the user has.
as_root() {
	local rustup=${RUSTUP_HOME:-$HOME/.rustup}
	# shellcheck disable=SC2016 # that shell's PATH
	printf 'sudo env "PATH=$PATH" %s%s' "$([[ ! -d $rustup ]] || printf '"RUSTUP_HOME=%s" ' "$rustup")" "$1"
}

# held FILE: whether a living process holds the flock on FILE. Pids alone lie: they are reused.
held() { [[ -e $1 ]] && ! flock -n "$1" true; }

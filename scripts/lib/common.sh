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

# run_beside NAME COMMAND...: runs it while this script goes on, in a process group of its own; its output is shown as it comes.
# The script waits for it with `wait_beside`, and ends what still runs with `end_beside` (for a trap on EXIT).
declare -A beside=()
run_beside() {
	local name=$1
	shift
	# A process group: what it starts, Go's and Rust's compilers, ends with it. And Ctrl-C is not ignored in it.
	set -m
	"$@" </dev/null >&2 &
	beside[$name]=$!
	set +m
}

# wait_beside NAME: gives its exit code. Asked again, it is 0.
wait_beside() {
	local pid=${beside[$1]:-} status=0
	[[ -n $pid ]] || return 0
	# It stays known while it runs: a signal ends this wait.
	wait "$pid" || status=$?
	unset "beside[$1]"
	return "$status"
}

# wait_for NAME: waits for it from what runs beside it, which is no parent of it. Its exit code is lost.
wait_for() { [[ -z ${beside[$1]:-} ]] || tail --pid="${beside[$1]}" -f /dev/null; }

end_beside() {
	local pid
	for pid in "${beside[@]}"; do
		kill -TERM -- "-$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	beside=()
}

# python_with LOCK [OPTION...]: makes a virtual environment in the cache with the packages of a lock file (pip's format, with
# hashes), and prints its Python. Options are pip's.
python_with() {
	local lock=$1 key folder new
	shift
	python3 -m pip --version >/dev/null 2>&1 || debian_packages python3-pip:pip3
	key=$({ cat "$lock" && python3 -c 'import sys, sysconfig; print(sys.version, sys.base_prefix, sysconfig.get_platform())'; } |
		sha256sum | cut -c1-12)
	folder=$CACHE/packages/python-$key
	if [[ ! -d $folder ]]; then
		mkdir -p "$CACHE/packages"
		new=$(mktemp -d "$CACHE/packages/new.XXXXXX")
		# Debian's Python may lack what installs pip there; the machine's pip installs into it.
		{ python3 -m venv --without-pip "$new" &&
			python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --require-hashes --only-binary=:all: "$@" \
				--target "$("$new/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" --requirement "$lock"; } >&2 || {
			rm -rf "$new"
			return 1
		}
		chmod 755 "$new"
		# Who made it at the same time has made the same.
		mv --no-target-directory "$new" "$folder" 2>/dev/null || rm -rf "$new"
	fi
	printf '%s\n' "$folder/bin/python"
}

# Where Cargo builds, in CARGO_TARGET_DIR: one folder for the quick start, the tests and the images of tests, so that nothing is
# compiled twice. Dependencies are compiled once for all checkouts that have the same ones, unless this checkout has a
# target/ in which its developer builds.
choose_target() {
	local key old
	if [[ -n ${CARGO_TARGET_DIR:-} ]]; then
		CARGO_TARGET_DIR=$(realpath -m "$CARGO_TARGET_DIR")
		export CARGO_TARGET_DIR
		return
	fi
	if [[ -d $ROOT/target/debug/deps ]]; then
		export CARGO_TARGET_DIR=$ROOT/target
		return
	fi
	key=$(cd "$ROOT" && { cat Cargo.lock && sed -n '/^\[profile/,$p' Cargo.toml && cat .cargo/config.toml && rustc --version; } |
		sha256sum | cut -c1-12)
	export CARGO_TARGET_DIR=$CACHE/target/$key
	# Incremental files would pile up there: they belong to one checkout.
	export CARGO_INCREMENTAL=0
	mkdir -p "$CARGO_TARGET_DIR"
	touch "$CARGO_TARGET_DIR"
	# The newest two stay. Names are hashes: no spaces, no newlines.
	# shellcheck disable=SC2012
	ls -1t "$CACHE/target" | tail -n +3 | while read -r old; do rm -rf "${CACHE:?}/target/$old"; done
}

# build_convoke: compiles Convoke as the tests do (docs/decisions/0014), unless target/release/convoke is newer than all that it
# is made from. Needs choose_target.
build_convoke() {
	if is_fresh "$ROOT/target/release/convoke"; then
		step "target/release/convoke is up to date"
		return
	fi
	local began=$EPOCHSECONDS
	step "compiling convoke (a few minutes the first time)"
	# Features that only tests need come along with any test: without them, the tests would compile most dependencies again.
	(cd "$ROOT" && cargo build --locked --bin convoke --test node) >&2
	install_convoke "$began"
}

# Whether a program is newer than Convoke's sources.
is_fresh() {
	[[ -x $1 && -z $(find "$ROOT/src" "$ROOT/core" "$ROOT/Cargo.toml" "$ROOT/Cargo.lock" "$ROOT/.cargo" -newer "$1" -print -quit) ]]
}

# install_convoke BEGAN: the program that was compiled since then, as target/release/convoke: the place that people and other scripts know. In place of a release
# build that is older than the sources; `cargo build --release` makes that again (scripts/bench).
install_convoke() {
	local to=$ROOT/target/release/convoke
	mkdir -p "$(dirname "$to")"
	# Under a new name first: the old file may be running. And Cargo has other names for the old one.
	strip -o "$to.new" "$CARGO_TARGET_DIR/debug/convoke" || cp "$CARGO_TARGET_DIR/debug/convoke" "$to.new"
	# A source that was changed meanwhile is newer.
	touch -d "@$1" "$to.new"
	mv "$to.new" "$to"
	# Who calls sudo goes on building as before.
	if [[ $EUID -eq 0 && ${SUDO_UID:-0} -ne 0 ]]; then chown -R --reference="$ROOT" "$ROOT/target"; fi
}

# held FILE: whether a living process holds the flock on FILE. Pids alone lie: they are reused.
held() { [[ -e $1 ]] && ! flock -n "$1" true; }

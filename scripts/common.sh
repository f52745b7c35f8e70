# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts beside it: installs what is missing, configures and builds.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
build=${IMBREX_BUILD_DIR:-build}
results=$root/$build/results
# What ccache needs to work with precompiled headers, and to take headers that a fresh clone has just written.
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime

library_packages=(g++ cmake ninja-build ccache libfmt-dev nlohmann-json3-dev libcli11-dev libhwy-dev libzstd-dev liblz4-dev)
packages=("${library_packages[@]}" libgtest-dev libgmock-dev libbenchmark-dev)
test_packages=("${packages[@]}" clang-format python3 python3-dev python3-venv chromium)  # the pages are tested in a browser

# Ends a part of scripts/test that this machine cannot run: skip_part "what it needs" "what provides it".
skip_part() {
  echo "SKIPPED: needs $1: $2"
  [ -z "${IMBREX_PART:-}" ] || echo "needs $1: $2" >"$results/$IMBREX_PART.skip"
  exit 77
}

# Ends a part that cross-compiles for aarch64 where what that needs is not here: needs_aarch64 [LIBRARY ...]
needs_aarch64() {
  local needs="dpkg --add-architecture arm64, then apt-get install crossbuild-essential-arm64 qemu-user" tool library
  needs+=" libfmt-dev:arm64 libhwy-dev:arm64 libzstd-dev:arm64 liblz4-dev:arm64 libgtest-dev:arm64 libgmock-dev:arm64 libpython3-dev:arm64"
  for tool in aarch64-linux-gnu-g++ qemu-aarch64; do command -v $tool >/dev/null || skip_part "$tool" "$needs"; done
  for library in fmt hwy zstd lz4 "$@"; do
    compgen -G "/usr/lib/aarch64-linux-gnu/lib$library.*" >/dev/null || skip_part "lib$library for aarch64" "$needs"
  done
}

install_packages() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
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

# run_ctest STEP BUILD_DIR [CTEST ARGUMENT ...]: runs tests, shows what fails and ctest's closing lines. All output goes to
# $results/STEP.log, the results to $results/STEP.xml, from which scripts/report makes its tables.
run_ctest() {
  local step=$1 dir=$2 status=0 live=0
  shift 2
  [ ! -t 1 ] || live=1
  mkdir -p "$results"
  rm -f "$results/$step".*
  echo "$dir" >"$results/$step.dir"
  # One more at a time than there are cores: some wait for processes that say nothing.
  ctest --test-dir "$dir" -j"$(($(nproc) + 1))" --no-tests=error --output-on-failure --test-output-size-passed 100000 \
    --output-junit "$results/$step.xml" "$@" 2>&1 | tee "$results/$step.log" |
    awk -v live=$live '
      /^ *[0-9]+\/[0-9]+ Test +#/ { if (live) printf "\r%s tests\033[K", $1; fflush() }
      /^[0-9]+% tests passed/ { if (live) printf "\r\033[K"; closing = 1 }
      /^The following tests did not run|^Label Time Summary/ { closing = 0 }
      /^Total Test time|^The following tests FAILED|^No tests were found/ { closing = 1 }
      closing && NF { print; fflush() }' || status=1
  scripts/report failures "$step" || status=1
  return $status
}

# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of the command: runs it and looks at its output and exit code.
failures=0
needs=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/needs.def
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export IMBREX_CACHE_DIR="$scratch/cache"

# expect NAME EXIT_CODE PATTERN ... -- COMMAND ...: every pattern (extended regular expression) occurs in the output.
expect() {
  local name=$1 code=$2 patterns=() output status
  shift 2
  while [ "$1" != "--" ]; do patterns+=("$1"); shift; done
  shift
  output=$("$@" 2>&1)
  status=$?
  [ "$status" -eq "$code" ] || { echo "FAILED $name: exit code $status, expected $code"; echo "$output" | head -20; failures=$((failures + 1)); }
  for pattern in "${patterns[@]}"; do
    grep -qE -- "$pattern" <<<"$output" || { echo "FAILED $name: no '$pattern' in:"; echo "$output" | head -20; failures=$((failures + 1)); }
  done
}

# skip NEED ...: ends the test as skipped, by a row of tests/needs.def.
skip() {
  echo "SKIPPED: needs $(sed -nE "s/^NEED\($1, \"(.*)\", \"(.*)\"\)\$/\1: \2/p" "$needs")"
  exit 77
}

finish() {
  [ "$failures" -eq 0 ] && echo "all passed"
  exit $((failures > 0))
}

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the .cu files of this folder to the .ptx files beside them. Needs nvcc 13.
set -euo pipefail
data=$(cd "$(dirname "$0")" && pwd)
work=/tmp/ptx_data  # debug sections hold the folder's name
mkdir -p "$work" && cp "$data"/*.cu "$work" && cd "$work"
compile() { nvcc -std=c++17 -ptx -arch="$2" "$1.cu" -o "$1.${3:-$2}.ptx" "${@:4}"; }
for target in sm_80 sm_90a sm_100a; do
  compile vector_add "$target"
  compile reduce "$target"
done
compile atomics sm_90a
compile calls sm_80
compile calls sm_100a
compile calls sm_90a sm_90a.debug -G
compile reduce sm_90a sm_90a.lineinfo -lineinfo
compile numbers sm_80
compile numbers sm_100a
compile globals sm_90a
compile ampere sm_80
compile hopper sm_90a
compile hopper sm_90a sm_90a.lineinfo -lineinfo
compile blackwell sm_100a
# No paths of the machine that compiled them.
sed -i -E 's#"[^"]*/([^"/]+\.(cu|h|hpp|cuh))"#"\1"#' ./*.ptx
cp ./*.ptx "$data"

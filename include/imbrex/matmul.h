// SPDX-License-Identifier: Apache-2.0
// Matrix products by the kernel library: which kernel and which tiles is its business. Programs that call it
// link imbrex_kernels.
#pragma once

#include <string>

#include "imbrex/device_tensor.h"
#include "imbrex/runtime.h"

namespace imbrex {

/// C = A B^T: a [m, k], b [n, k], c [m, n], row-major, all float16 or all bfloat16, sums in float32. Any m
/// and n, k a multiple of 8 (16 bytes: rows must begin where TMA reads). For now on devices that run sm_90a.
/// On a CUDA GPU it returns without waiting. The first product of each n and k compiles its kernel, which
/// takes up to seconds; later ones, of any m for which the same tiles are best, find it ready. Threads may
/// call it at once. LaunchError says which of these a call does not meet.
LaunchReport matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c);

/// What matmul() runs for a product of this size: "hopper_matmul_h7 block_m=128 ...". `multiprocessors` is
/// the device's number of them.
std::string matmul_choice(int64_t m, int64_t n, int64_t k, int multiprocessors);

}  // namespace imbrex

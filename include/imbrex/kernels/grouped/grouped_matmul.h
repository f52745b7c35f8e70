// SPDX-License-Identifier: Apache-2.0
// Products of groups whose sizes only device memory knows, as the experts of a mixture have. (kernels/grouped_matmul.h is
// the simplest kernel for them.)
#pragma once

#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// How the rows of groups lie.
struct Groups {
  /// int32, dense. Contiguous: [groups + 1], group g has the rows first_row[g] ... first_row[g + 1] - 1; the numbers do not
  /// decrease, and groups may be empty. What is beyond the last group is not read, nor written. Masked: [groups], group g
  /// has the first count[g] of the `room` rows that each group has.
  DeviceTensor rows;
  bool masked = false;

  /// Groups that follow each other.
  static Groups contiguous(DeviceTensor first_row) { return {std::move(first_row), false}; }
  /// Groups with room for equally many rows, of which the first are used.
  static Groups with_counts(DeviceTensor count) { return {std::move(count), true}; }
};

struct GroupedMatmulOptions {
  /// float32, dense: scales of float8 operands. Either one per row of a, [m], and per column of a group's result,
  /// [groups, n]; or blocks of 128 of k: scale_a [k / 128, m], rows of which begin any distance apart (what
  /// quantise_float8() writes to scale_a.transpose()), and scale_b [groups, n / 128, k / 128], quotients rounded up. Sums of
  /// 128 products each are then scaled and added up in float32. Both or none.
  DeviceTensor scale_a, scale_b;
  Stream stream;
};

/// c[i, :] = a[i, :] b[g]^T for each row i of each group g: a [m, k], b [groups, n, k], c [m, n]; masked: a
/// [groups, room, k] and c [groups, room, n]. a and b both float16, both bfloat16 or both float8_e4m3; c float16 or
/// bfloat16, dense, of 16-bit operands their type, and of memory of its own. n is a multiple of 8; at most 1024 groups. Rows
/// that belong to no group keep what they had. Sums are float32. Devices that run sm_90a. Where a or b is not dense, or its rows do not begin
/// and end at multiples of 16 bytes, all of it is copied first, in the stream's order: weights of such a k are better padded once,
/// with zeros.
///
/// The sizes of the groups are read on the device, in the stream's order: a captured call serves other sizes at each
/// replay. On a CUDA GPU it returns without waiting; the first call of a set of types compiles, for all sizes. Which tiles it
/// takes depends on the mean number of rows per group. LaunchError names the condition that a call does not meet.
LaunchReport grouped_matmul(const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c,
                            const Groups& groups, const GroupedMatmulOptions& options = {},
                            SourceLocation where = SourceLocation::current());

/// The gradient of the weights: c[g] = a[rows of g, :]^T b[rows of g, :], a [m, p], b [m, q], c [groups, p, q], dense; masked:
/// a [groups, room, p], b [groups, room, q]. All float16 or all bfloat16; p and q multiples of 8. Groups without rows get
/// zeros. Otherwise as grouped_matmul().
LaunchReport grouped_matmul_weight_gradient(const DeviceTensor& a, const DeviceTensor& b,
                                            const DeviceTensor& c, const Groups& groups,
                                            const Stream& stream = {},
                                            SourceLocation where = SourceLocation::current());

}  // namespace imbrex

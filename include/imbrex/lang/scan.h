// SPDX-License-Identifier: Apache-2.0
// Prefix scans, and the order of a row: sort and top-k. Whole warps execute them.
#pragma once

#include "imbrex/lang/tensor.h"

namespace imbrex {

/// What a scan combines by. kAnd, kOr and kXor take integers.
enum class Combine : uint8_t { kSum, kProduct, kMin, kMax, kAnd, kOr, kXor };

struct ScanOptions {
  int axis = -1;  ///< negative counts from the end
  bool exclusive =
      false;  ///< without the element itself; the first becomes 0, 1, an infinity or what else changes nothing
};
/// Element i becomes the combination of elements 0, ..., i along the axis. float16 and bfloat16 are combined in float32
/// and rounded once each. Sums of floats are not associative: the result does not depend on the launch, but on the
/// layout. [PTX: shfl.sync]
RegisterValue scan(const TileArg& a, Combine by, const ScanOptions& options = {});
/// Running sums and products: `cumsum(x, {.axis = 0})`.
RegisterValue cumsum(const TileArg& a, const ScanOptions& options = {});
RegisterValue cumprod(const TileArg& a, const ScanOptions& options = {});

struct SortOptions {
  int axis = -1;            ///< negative counts from the end; its extent is a power of two
  bool descending = false;  ///< the largest first
};
/// The elements along the axis in order, by a bitonic network: (log2 n)(log2 n + 1) / 2 steps, each of which compares every
/// element with one other. Numbers of 8 to 64 bits. To sort fewer elements than a power of two, load the rest as the
/// largest number, or the smallest where it is descending. Where a row has a NaN, its elements are all there, in no order.
RegisterValue sort(const TileArg& a, const SortOptions& options = {});

/// Elements and, as int32, where along the axis they were.
struct Sorted {
  RegisterValue values, indices;
};
/// sort(), with the places. Equal elements keep their order, whichever way they are sorted.
Sorted sort_with_indices(const TileArg& a, const SortOptions& options = {});

struct TopKOptions {
  int axis = -1;
};
/// The k largest elements along the axis, the largest first, of equal ones the first; k divides the extent.
Sorted top_k(const TileArg& a, int64_t k, const TopKOptions& options = {});

/// Element i becomes element i xor mask along the axis; the extent and the mask are powers of two. Whole warps execute
/// it, a power of two of them. [PTX: shfl.sync.bfly]
RegisterValue exchange(const TileArg& a, int axis, int64_t mask);

}  // namespace imbrex

// SPDX-License-Identifier: Apache-2.0
// Copies to the memory of other ranks that copy engines make while kernels run, each followed by its signal: a copy of 4 bytes, the
// call's number, which begins when the one before has ended.
#pragma once

#include <cstdint>
#include <optional>

#include "imbrex/kernels/ranks/rank_call.h"
#include "imbrex/parallel/communicator.h"
#include "imbrex/parallel/copies_beside.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/stream.h"
#include "matmul/matmul_launch.h"

namespace imbrex::parallel {

/// Tells the others that this rank's call has begun, waits until theirs have, and leaves the call's number to copies: behind this
/// kernel, they may overwrite what the last call has read.
struct BeginCopies {
  static constexpr const char* target = "sm_80";
  void operator()(kernels::RankSignals signals) const {
    grid(1);
    warps(1);
    kernels::RankCall call(signals);
    call.begin();
    call.leave_number();
    call.wait_for_all_to_begin();
  }
};

/// What stands for a copy and its signal on virtual GPUs, where it is checked as whatever kernels do.
struct CopyToRank {
  static constexpr const char* target = "sm_80";
  int block = 1024;

  void operator()(kernels::RankSignals signals, DataType dtype, Int32 n, Ptr<> from_ptr, Int32 from_first,
                  Ptr<> to_ptr, Int32 to_first, Int32 to, Int32 part) const {
    grid(1);
    warps(4);
    auto g_from = global_view(from_ptr, dtype, {from_first + n});
    auto g_to = symmetric_view(to_ptr, dtype, signals.rank_stride_bytes, signals.ranks, {to_first + n});
    kernels::RankCall call(signals);
    for (Int32 offset : range(0, n, block))
      store_global(g_to[to], load_global(g_from, {from_first + offset}, {block}), {to_first + offset});
    call.stored(to, part);
  }
};

/// Elements of a tensor: its address, of a symmetric one that on rank 0, and the first of them.
struct ElementsFrom {
  uint64_t address;
  int64_t first = 0;
};

/// The copies of a product's calls.
class RankCopies {
 public:
  explicit RankCopies(const Communicator& ranks);

  /// Launches BeginCopies. `until`: as of the product.
  LaunchReport begin(Until until, const kernels::RankSignalsArguments& signals, const Stream& stream);
  /// What is copied from here on comes behind what is on the stream now. Nothing is, until kCompiled.
  void fork(Until until, const Stream& stream);
  /// Copies `n` elements of this rank's memory to that of rank `to`, and tells it of the part. Returns what a virtual GPU has
  /// found.
  LaunchReport copy(Until until, const kernels::RankSignalsArguments& signals, DataType dtype, int64_t n,
                    ElementsFrom from, ElementsFrom place, int to, int64_t part, const Stream& stream,
                    SourceLocation where);
  /// What follows on the stream comes behind the copies.
  void join(Until until, const Stream& stream);

 private:
  std::optional<CopiesBeside> copies_;  // on CUDA GPUs
  Kernel<BeginCopies> begin_;
  Kernel<CopyToRank> stand_in_;
};

/// Whether copies of so many bytes are made in less time than the GPU takes for so many operations, and the tiles among which these
/// are divided keep all multiprocessors busy.
bool are_copies_hidden(const Device& device, double bytes, double operations, int64_t tiles);

}  // namespace imbrex::parallel

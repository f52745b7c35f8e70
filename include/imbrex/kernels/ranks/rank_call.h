// SPDX-License-Identifier: Apache-2.0
// The signals of a kernel whose tiles travel between ranks while others are computed.
//
// Who stores into a peer's memory must know that the peer is done with what was there: that it has begun the same call
// and so ended the one before. Who reads what peers have stored waits for the signal of that part. Signals are set to the
// number of the call, and calls are counted in memory, so that nothing is reset and a launch can be replayed from a
// CUDA graph.
#pragma once

#include <tuple>

#include "imbrex/lang.h"
#include "imbrex/parallel/signal.h"

namespace imbrex::kernels {

/// What a kernel needs to know of the ranks; a parameter of it.
struct RankSignals {
  using Parameters = ParameterList<int, int64_t, Int32, Int32, Ptr<int32>, Ptr<int32>>;
  int ranks;
  int64_t rank_stride_bytes;
  Int32 rank;
  Int32 parts;            ///< signals of each rank for each other
  Ptr<int32> signal_ptr;  ///< symmetric, [ranks, 1 + parts], zero at first
  Ptr<int32>
      progress_ptr;  ///< in the rank's own memory, [3], zero at first: calls that have ended, CTAs of this one that
                     ///< have, and the number of the call, for copies that follow others as their signals
};
/// What a launch passes for RankSignals.
struct RankSignalsArguments {
  int ranks;
  int64_t rank_stride_bytes;
  int rank;
  int64_t parts;
  uint64_t signals, progress;  ///< addresses, of `signals` that of rank 0
  auto arguments() const { return std::tie(ranks, rank_stride_bytes, rank, parts, signals, progress); }
};

/// A kernel's tiles, for a step that deals them out.
struct RankTileShape {
  int block_m;       // rows of A that a CTA loads for a tile
  int cluster_m;     // CTAs of a cluster, one below the other
  int cluster_ctas;  // all of a cluster
  int consumers;     // warp groups, each of which stores a part of a tile
  DataType dtype;    // of the operands
};

/// One launch of such a kernel, as its CTAs see it.
class RankCall {
 public:
  /// The whole CTA executes it, behind whatever waits for the launch before.
  explicit RankCall(const RankSignals& to)
      : ranks_(to.ranks),
        rank_(to.rank),
        signals_(
            symmetric_view(to.signal_ptr, int32, to.rank_stride_bytes, to.ranks, {to.ranks, to.parts + 1})),
        progress_(global_view(to.progress_ptr, {3})),
        call_(progress_[0].item() + 1) {}

  /// Tells the others that they may store here. The whole CTA executes it; one CTA of the grid does it.
  void begin() {
    if (auto first = when(block_idx.x == 0))
      for (int i = 1; i < ranks_; ++i) signal::set(signals_[peer(i)][rank_][0], call_);
  }
  /// Leaves the number of the call to copies behind the kernel. The whole CTA executes it; one CTA of the grid does it.
  void leave_number() {
    if (auto first = when(block_idx.x == 0)) store_global(progress_, full(int32, {1}, call_), {2});
  }
  /// Waits until all others have begun this call. The threads of a group execute it.
  void wait_for_all_to_begin() const {
    for (int i = 1; i < ranks_; ++i) wait_for_begin(peer(i));
  }
  /// Waits until `peer` has begun this call: what its last one read may be overwritten.
  void wait_for_begin(const ScalarArg& peer, SourceLocation where = SourceLocation::current()) const {
    signal::wait(signals_[rank_][peer][0], call_, where);
  }
  /// Tells `peer` that its `part` has been stored. The threads of a group execute it, behind their stores.
  void stored(const ScalarArg& peer, const ScalarArg& part,
              SourceLocation where = SourceLocation::current()) const {
    signal::set(signals_[peer][rank_][part + 1], call_, where);
  }
  /// Waits until `peer` has stored `part` here.
  void wait_for(const ScalarArg& peer, const ScalarArg& part,
                SourceLocation where = SourceLocation::current()) const {
    signal::wait(signals_[rank_][peer][part + 1], call_, where);
  }
  /// The next launch is another call. The whole CTA executes it, when it has read and waited for everything.
  void end() {
    sync();
    Int32 ended = atomic::add(progress_[1], 1, {.sem = Sem::kAcqRel});
    if (auto last = when(ended == grid_dim.x - 1)) {
      atomic::exch(progress_[1], 0);
      atomic::add(progress_[0], 1);
    }
  }

  int ranks() const { return ranks_; }
  const Int32& rank() const { return rank_; }
  /// The rank `i` places behind this one.
  Expr peer(const ScalarArg& i) const { return (rank_ + i) % ranks_; }

 private:
  int ranks_;
  Int32 rank_;
  GlobalTensor signals_, progress_;
  Int32 call_;
};

}  // namespace imbrex::kernels

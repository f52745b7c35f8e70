// SPDX-License-Identifier: Apache-2.0
// All-reduce by kernels that read each other's memory: every rank gets the sum of all ranks' tensors, added in float32 in
// the order of the ranks, so that all get the same bits.
//
// Low-latency: every rank stores its own to all others, in words that carry their signal (small_collectives.h). One way over the
// links, twice the bytes: for what is small.
// One-shot: every rank reads the whole of all others. Less waiting, (ranks - 1) times the traffic: where the words of the first
// cannot carry what is small.
// Two-shot: every rank adds up a part and stores the sum to all. Least traffic: for what is large.
//
// CTA i of every rank does the same parts of the tensor, so that it needs to wait for CTA i of the others only: in the latter two
// twice in each call, before it reads what they hold and after the last of them has read (or stored). Each CTA counts its calls in
// memory, so that a launch can be replayed from a CUDA graph.
#pragma once

#include <algorithm>

#include "imbrex/lang.h"
#include "imbrex/parallel/communicator.h"
#include "imbrex/parallel/overlapping_kernel.h"
#include "imbrex/parallel/signal.h"
#include "imbrex/parallel/small_collectives.h"

namespace imbrex::parallel {

/// The meetings of CTAs of the same number on all ranks, for a kernel with a grid of one dimension.
class MeetingsOfCtas {
 public:
  /// Signals that a kernel with so many meetings and a grid of at most so many CTAs needs; Communicator::signals() makes
  /// them.
  static int64_t signals(int meetings, int64_t most_ctas, int ranks) { return meetings * ranks * most_ctas; }

  /// `call_ptr`: int32 in this rank's own memory, one for each of `most_ctas`, which begin as 0: the number of the call.
  MeetingsOfCtas(Ptr<int32> signal_ptr, Ptr<int32> call_ptr, int most_ctas, int meetings, int ranks,
                 int64_t rank_stride_bytes, const Int32& rank)
      : ranks_(ranks),
        rank_(rank),
        signals_(symmetric_view(signal_ptr, int32, rank_stride_bytes, ranks, {meetings * ranks, most_ctas})),
        calls_(global_view(call_ptr, {most_ctas})[block_idx.x]),
        call_(calls_.item() + 1) {}
  /// This CTA and those of the same number on all ranks wait for one another. What each did before, all see behind.
  void meet(int meeting) {
    for (int i = 1; i < ranks_; ++i)
      signal::set(signals_[(rank_ + i) % ranks_][meeting * ranks_ + rank_][block_idx.x], call_);
    for (int i = 1; i < ranks_; ++i)
      signal::wait(signals_[rank_][meeting * ranks_ + (rank_ + i) % ranks_][block_idx.x], call_);
  }
  /// Behind the last meeting: the next launch is another call.
  void end() {
    sync();
    atomic::add(calls_, 1);
  }

 private:
  int ranks_;
  Int32 rank_;
  GlobalTensor signals_, calls_;
  Int32 call_;
};

/// The sum of what `load(rank)` gives for each rank, in float32 in the order of the ranks.
template <class Load>
RegisterTensor sum_of_ranks(int ranks, Load load) {
  RegisterTensor sum = load(0).to(float32);
  for (int peer = 1; peer < ranks; ++peer) sum += load(peer).to(float32);
  return sum;
}

/// y = the sum of all ranks' x; y is this rank's own, [n].
template <bool kOverlaps>
struct OneShotAllReduce {
  static constexpr const char* target = kOverlaps ? "sm_90" : "sm_80";
  int block = 2048;
  int num_warps = 8;

  void operator()(Int32 n, Int32 ctas, int most_ctas, int ranks, int64_t rank_stride_bytes, Int32 rank,
                  DataType dtype, Ptr<> x_ptr, Ptr<> y_ptr, Ptr<int32> signal_ptr,
                  Ptr<int32> call_ptr) const {
    grid(ctas);
    warps(num_warps);
    wait_for_kernel_before(kOverlaps);
    auto g_x = symmetric_view(x_ptr, dtype, rank_stride_bytes, ranks, {n});
    auto g_y = global_view(y_ptr, dtype, {n});
    MeetingsOfCtas ctas_of_ranks(signal_ptr, call_ptr, most_ctas, 2, ranks, rank_stride_bytes, rank);

    ctas_of_ranks.meet(0);  // their x is there
    for (Int32 offset : range(block_idx.x * block, n, ctas * block)) {
      RegisterTensor sum =
          sum_of_ranks(ranks, [&](int peer) { return load_global(g_x[peer], {offset}, {block}); });
      store_global(g_y, sum.to(dtype), {offset});
    }
    ctas_of_ranks.meet(1);  // they have read mine, which may be overwritten
    ctas_of_ranks.end();
  }
};

/// y = the sum of all ranks' x; y is symmetric too, since others store to it.
template <bool kOverlaps>
struct TwoShotAllReduce {
  static constexpr const char* target = kOverlaps ? "sm_90" : "sm_80";
  int block = 2048;
  int num_warps = 8;

  void operator()(Int32 n, Int32 ctas, int most_ctas, int ranks, int64_t rank_stride_bytes, Int32 rank,
                  DataType dtype, Ptr<> x_ptr, Ptr<> y_ptr, Ptr<int32> signal_ptr,
                  Ptr<int32> call_ptr) const {
    grid(ctas);
    warps(num_warps);
    wait_for_kernel_before(kOverlaps);
    auto g_x = symmetric_view(x_ptr, dtype, rank_stride_bytes, ranks, {n});
    auto g_y = symmetric_view(y_ptr, dtype, rank_stride_bytes, ranks, {n});
    MeetingsOfCtas ctas_of_ranks(signal_ptr, call_ptr, most_ctas, 2, ranks, rank_stride_bytes, rank);

    ctas_of_ranks.meet(0);
    // Blocks are dealt out to CTAs, and among those of the same number to ranks.
    for (Int32 offset : range((block_idx.x * ranks + rank) * block, n, ctas * ranks * block)) {
      RegisterTensor sum =
          sum_of_ranks(ranks, [&](int peer) { return load_global(g_x[peer], {offset}, {block}); });
      RegisterTensor y = sum.to(dtype);
      for (int i = 0; i < ranks; ++i)
        store_global(g_y[(rank + i) % ranks], y, {offset});  // not all to one at once
    }
    ctas_of_ranks.meet(1);  // their sums have been stored here
    ctas_of_ranks.end();
  }
};

/// All-reduce among the ranks of a communicator. Made and used by every rank alike.
class AllReduce {
 public:
  enum class Kind : uint8_t { kAuto, kOneShot, kTwoShot, kLowLatency };

  /// At most `ctas` of each rank take part, fewer for small tensors; a GPU must hold them all at once.
  /// Tensors of at most `low_latency_bytes` go the low-latency way (SmallCollectiveCall::fastest_bytes()).
  explicit AllReduce(Communicator ranks, int ctas = 128, std::optional<int64_t> low_latency_bytes = {},
                     SourceLocation where = SourceLocation::current())
      : ranks_(std::move(ranks)),
        ctas_(ctas),
        signals_(ranks_.signals(MeetingsOfCtas::signals(2, ctas, ranks_.size()), where)),
        calls_(DeviceTensor::from_host(ranks_.device(), HostTensor(int32, {ctas}))),
        small_(ranks_, SmallCollective::kAllReduce, ctas, low_latency_bytes),
        one_shot_(ranks_.device(), {.block = kBlock}),
        large_one_shot_(ranks_.device(), {.block = kLargeBlock}),
        two_shot_(ranks_.device(), {.block = kBlock}),
        large_two_shot_(ranks_.device(), {.block = kLargeBlock}) {}

  /// What is taken for tensors of n elements.
  Kind choose(DataType dtype, int64_t n) const {
    if (small_.takes(dtype, n)) return Kind::kLowLatency;
    return n * dtype.bits() / 8 <= int64_t{64} << 10 ? Kind::kOneShot : Kind::kTwoShot;
  }

  /// y.mine() = the sum of x.mine() of all ranks, on a stream of the rank's device; does not wait for the end. x may be
  /// overwritten by what follows on the stream. All ranks make the same calls in the same order, one at a time. Calls
  /// that were prepared can be captured into a CUDA graph. LaunchError for tensors of different types or shapes, and for
  /// kLowLatency with what its words cannot carry: more bytes than that, or no whole words of 4 bytes.
  LaunchReport operator()(const SymmetricTensor& x, const SymmetricTensor& y, Kind kind = Kind::kAuto,
                          const Stream& stream = {}, SourceLocation where = SourceLocation::current()) {
    LaunchReport report;
    with_kernel(x, y, kind, where, [&](auto& kernel, const auto&... arguments) {
      report = kernel.on(stream, where)(arguments...);
    });
    if (!ranks_.reaches_peers()) ranks_.all_reduce_by_nccl(x.mine(), y.mine(), stream, where);
    return report;
  }
  /// Compiles and loads what such a call launches, and launches nothing. A rank that compiles in its first call keeps the
  /// others' kernels waiting.
  void prepare(const SymmetricTensor& x, const SymmetricTensor& y, Kind kind = Kind::kAuto,
               SourceLocation where = SourceLocation::current()) {
    with_kernel(x, y, kind, where,
                [](auto& kernel, const auto&... arguments) { kernel.prepare(arguments...); });
  }

 private:
  static constexpr int kBlock = 2048, kLargeBlock = 8192;

  static const char* name(Kind kind) {
    return kind == Kind::kLowLatency ? "low-latency AllReduce"
           : kind == Kind::kOneShot  ? "one-shot AllReduce"
                                     : "two-shot AllReduce";
  }
  template <class Body>
  void with_kernel(const SymmetricTensor& x, const SymmetricTensor& y, Kind kind, SourceLocation where,
                   Body&& body) {
    if (x.dtype() != y.dtype() || x.shape() != y.shape())
      throw LaunchError(
          Diagnostic{where, "AllReduce: x and y differ in type or shape", {}, "make both alike"});
    const int64_t n = x.mine().bytes() * 8 / x.dtype().bits();
    if (kind == Kind::kAuto) kind = choose(x.dtype(), n);
    ranks_.agree(name(kind), x.dtype(), {n}, where);
    if (!ranks_.reaches_peers()) return;  // NCCL's kernels do it
    if (kind == Kind::kLowLatency) {
      if (!small_.takes(x.dtype(), n))
        throw LaunchError(Diagnostic{where,
                                     "AllReduce: the low-latency kernel carries at most " +
                                         std::to_string(small_.most_bytes()) +
                                         " bytes here, in whole words of 4",
                                     {},
                                     "leave the choice to Kind::kAuto"});
      return small_.with_kernel(ranks_, x.dtype(), n, x.mine().address(), y.mine().address(), where, body);
    }
    const bool is_one_shot = kind == Kind::kOneShot;
    const int64_t parts = is_one_shot ? 1 : ranks_.size();
    // More loads in flight per thread, where there is work for all CTAs all the same.
    const bool is_large = n >= int64_t{kLargeBlock} * ctas_ * parts;
    const int64_t blocks = cdiv(n, parts * (is_large ? kLargeBlock : kBlock));
    const int64_t ctas = std::clamp<int64_t>(blocks, 1, ctas_);
    const auto call = [&](auto& kernel) {
      body(kernel, n, ctas, ctas_, ranks_.size(), x.rank_stride_bytes(), ranks_.rank(), x.dtype(),
           x.all().address(), is_one_shot ? y.mine().address() : y.all().address(), signals_.all().address(),
           calls_);
    };
    if (is_one_shot)
      (is_large ? large_one_shot_ : one_shot_).with(call);
    else
      (is_large ? large_two_shot_ : two_shot_).with(call);
  }

  Communicator ranks_;
  int ctas_;
  SymmetricTensor signals_;
  DeviceTensor calls_;
  SmallCollectiveCall small_;
  OverlappingKernel<OneShotAllReduce> one_shot_, large_one_shot_;
  OverlappingKernel<TwoShotAllReduce> two_shot_, large_two_shot_;
};

}  // namespace imbrex::parallel

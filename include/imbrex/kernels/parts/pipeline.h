// SPDX-License-Identifier: Apache-2.0
// A ring of stages between a producer and a consumer that run asynchronously.
#pragma once

#include <vector>

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// Barriers, stages and phases of the ring. Each side acquires its stage, works on it, has its barrier
/// signalled (by bytes, a commit or arrivals), and advances:
///
///   pipe.producer_acquire();  ... fill stage pipe.producer_stage, signalling pipe.producer_barrier() ...
///   pipe.producer_advance();
///
/// and the same with consumer. Where several groups of threads take part in a side, each of them advances, on
/// its own copy of the variables.
///
/// Checkers and traces report its waits at the line of the kernel that calls acquire.
struct Pipeline {
  /// The arrivals that make a stage full (the producer's) and empty (the consumer's). Scope::kCluster where
  /// threads of other CTAs arrive. The whole CTA executes it; the barriers may be used after the next sync(), and
  /// are known by the name of the variable declared at `where`: `pipe.full_barriers[0]`.
  explicit Pipeline(int num_stages, int64_t producer_arrivals = 1, int64_t consumer_arrivals = 1,
                    Scope scope = Scope::kDefault, SourceLocation where = SourceLocation::current())
      : num_stages(num_stages),
        scope(scope),
        full_barriers(mbarrier::alloc(each(num_stages, producer_arrivals), "full_barriers", where)),
        empty_barriers(mbarrier::alloc(each(num_stages, consumer_arrivals), "empty_barriers", where)) {}

  /// Waits until the consumer has released the producer's stage.
  void producer_acquire(SourceLocation where = SourceLocation::current()) {
    mbarrier::wait(empty_barriers[producer_stage], producer_phase, {.scope = scope}, where);
  }
  /// What to signal when the stage is full.
  Barrier producer_barrier() { return full_barriers[producer_stage]; }
  void producer_advance() {
    producer_stage = next(producer_stage);
    producer_phase ^= producer_stage == 0;
  }

  /// Waits until the consumers have released every stage. Behind the last fill: no other CTA of the cluster will write to this one
  /// or signal it, so that it may exit. Costs less than a cluster_sync() at the end, which waits for stores to global memory.
  void producer_drain(SourceLocation where = SourceLocation::current()) {
    for ([[maybe_unused]] auto stage : range(num_stages)) {
      mbarrier::wait(empty_barriers[producer_stage], producer_phase, {.scope = Scope::kCluster}, where);
      producer_advance();
    }
  }

  /// Waits until the producer has filled the consumer's stage.
  void consumer_acquire(SourceLocation where = SourceLocation::current()) {
    mbarrier::wait(full_barriers[consumer_stage], consumer_phase, {.scope = scope}, where);
  }
  /// What to signal when the stage may be filled again.
  Barrier consumer_barrier() { return empty_barriers[consumer_stage]; }
  void consumer_advance() {
    consumer_stage = next(consumer_stage);
    consumer_phase ^= consumer_stage == 0;
  }
  /// Skips `count` stages that another consumer takes.
  void consumer_skip(int64_t count) {
    if (count / num_stages % 2 == 1) consumer_phase ^= 1;
    if (const int64_t rest = count % num_stages; rest > 0) {
      consumer_stage += rest;
      consumer_phase ^= consumer_stage >= num_stages;
      consumer_stage = select(consumer_stage >= num_stages, consumer_stage - num_stages, consumer_stage);
    }
  }

  int num_stages;
  Scope scope;
  BarrierArray full_barriers, empty_barriers;
  Int32 producer_stage = 0, consumer_stage = 0;
  UInt32 producer_phase = mbarrier::producer_initial_phase;  // every stage is empty at first
  UInt32 consumer_phase = mbarrier::consumer_initial_phase;

 private:
  static std::vector<int64_t> each(int stages, int64_t arrivals) {
    return std::vector<int64_t>(static_cast<size_t>(stages), arrivals);
  }
  /// The next stage of the ring, without the division of a remainder.
  Expr next(const ScalarArg& stage) const { return select(stage == num_stages - 1, 0, stage + 1); }
};

/// One thread of each of the group's `warps` warps arrives: `warps` arrivals. For a barrier that must not
/// complete before every warp has got here: where one thread arrives for all, a warp that is late for its own
/// wait can miss a phase. Reported at the line of the call, as Pipeline's waits are.
inline void arrive_each_warp(const Barrier& barrier, int warps,
                             SourceLocation where = SourceLocation::current()) {
  for (int i = 0; i < warps; ++i)
    if (auto warp = single_warp(i, where))
      if (auto thread = single_thread(0, where)) mbarrier::arrive(barrier, {}, where);
}

}  // namespace imbrex::kernels

// SPDX-License-Identifier: Apache-2.0
// mbarrier: barriers in shared memory that count arrivals and bytes.
//
// A phase of a barrier completes when its expected arrivals and bytes are in; then the next phase begins.
// wait(barrier, p) returns once the phase of parity p has completed. So a consumer starts with parity 0 and
// flips it after each wait, and a producer that waits for empty slots starts with 1: the phase "before the
// first" counts as completed.
//
//   current phase     0          1          2          3
//   wait(barrier, 0)  blocks     returns    blocks     returns
//   wait(barrier, 1)  returns    blocks     returns    blocks
//
// sm_80; bytes, and barriers of other CTAs of a cluster, sm_90.
// [PTX: Parallel Synchronization and Communication Instructions: mbarrier]
#pragma once

#include <string_view>

#include "imbrex/lang/memory_order.h"
#include "imbrex/lang/tensor.h"

namespace imbrex {

/// One barrier, 8 bytes of shared memory.
class Barrier {
 public:
  explicit Barrier(detail::Handle handle) : handle_(handle) {}
  detail::Handle handle() const { return handle_; }

 private:
  detail::Handle handle_;
};

/// The barriers of one mbarrier::alloc().
class BarrierArray {
 public:
  BarrierArray(detail::Handle handle, int64_t size) : handle_(handle), size_(size) {}
  Barrier operator[](const ScalarArg& i) const;
  int64_t size() const { return size_; }
  detail::Handle handle() const { return handle_; }

 private:
  detail::Handle handle_;
  int64_t size_;
};

namespace mbarrier {

/// First parities to wait for: see the head of this file.
inline constexpr uint32_t consumer_initial_phase = 0;
inline constexpr uint32_t producer_initial_phase = 1;

/// Barriers that expect counts[i] arrivals per phase: `alloc({1, 1})`, or one per stage,
/// `alloc(std::vector<int64_t>(stages, 1))`. The whole CTA executes it; usable after the next sync(), by
/// other CTAs after the next cluster_sync(). [PTX: mbarrier.init]
BarrierArray alloc(const std::vector<int64_t>& counts, SourceLocation where = SourceLocation::current());
BarrierArray alloc(std::initializer_list<int64_t> counts, SourceLocation where = SourceLocation::current());
/// For an object that owns barriers, whose constructor hands on the line of the user who declares it: findings, deadlocks and
/// timelines then say `pipe.full[0]`, with `pipe` from that line and `member` = "full".
BarrierArray alloc(const std::vector<int64_t>& counts, std::string_view member, SourceLocation where);
/// A single barrier that expects `count` arrivals per phase: `alloc(1)`.
Barrier alloc(int64_t count, SourceLocation where = SourceLocation::current());

/// kDefault: acquire for waits and release for arrivals; the CTA. Scopes are the CTA and the cluster.
struct Options {
  Sem sem = Sem::kDefault;
  Scope scope = Scope::kDefault;
};
/// As Options.
struct ArriveOptions {
  int64_t count = 1;  ///< arrivals per executing thread
  Sem sem = Sem::kDefault;
  Scope scope = Scope::kDefault;
};

/// As Options.
struct ExpectOptions {
  Sem sem = Sem::kDefault;
  Scope scope = Scope::kDefault;
  bool each_thread = false;  ///< every thread of the group announces the bytes, and arrives
};

/// Every executing thread arrives, `count` times. Any thread. [PTX: mbarrier.arrive]
void arrive(const Barrier& barrier, const ArriveOptions& options = {},
            SourceLocation where = SourceLocation::current());
/// Adds `bytes` to those that the current phase expects, and arrives. One thread, or with each_thread any group, each of
/// whose threads does so; sm_90. [PTX: mbarrier.arrive.expect_tx]
void arrive_and_expect_tx(const Barrier& barrier, const ScalarArg& bytes, const ExpectOptions& options = {},
                          SourceLocation where = SourceLocation::current());
/// Adds to the expected bytes without arriving. One thread; sm_90. [PTX: mbarrier.expect_tx]
void expect_tx(const Barrier& barrier, const ScalarArg& bytes,
               SourceLocation where = SourceLocation::current());
/// Every executing thread waits until the phase of this parity (0 or 1) has completed. Any thread; the
/// barrier is one of this CTA. [PTX: mbarrier.try_wait]
void wait(const Barrier& barrier, const ScalarArg& phase, const Options& options = {},
          SourceLocation where = SourceLocation::current());

}  // namespace mbarrier
}  // namespace imbrex

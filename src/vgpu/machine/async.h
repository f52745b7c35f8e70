// SPDX-License-Identifier: Apache-2.0
// Work that goes on without a thread: copies, tensor-core instructions, deliveries to barriers. An
// instruction submits an operation and goes on; the seeded scheduler carries it out some time later.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "vgpu/checks/findings.h"
#include "vgpu/checks/happens_before.h"
#include "vgpu/timeline/recording.h"

namespace imbrex::vgpu {

class Adversary;
class Cluster;
class Cta;

/// One asynchronous operation. `who` names the thread that started it and the unit that carries it out.
class AsyncOp {
 public:
  explicit AsyncOp(Who who) : who(who) {}
  virtual ~AsyncOp() = default;
  /// May it be carried out now? Must not change anything. Operations that must follow others of the same
  /// queue need not say so here: a queue's operations run in order.
  virtual bool ready(Cluster&) { return true; }
  /// Carries it out, completely or the next part of it. True when nothing is left.
  virtual bool run(Cluster& cluster) = 0;
  /// True when the next part updates what other clusters may be updating (a reduction in global memory): it
  /// happens in the cluster's turn, as the threads' atomics do.
  virtual bool takes_turn() const { return false; }
  /// True when the CTA that started it may exit now without harm.
  virtual bool may_outlive_cta() const { return false; }
  /// Whether the byte of the CTA's shared memory is among those that it writes.
  virtual bool fills(const Cta&, uint32_t) const { return false; }
  /// How others learn that it is done.
  virtual Completion completion() const = 0;
  /// "load of 128x64 tile at {0, 64}", for deadlock pictures and findings about work in flight.
  virtual std::string describe() const = 0;
  /// What carrying it out asks of the chip, for predicted times.
  virtual WorkDemand demand() const { return {}; }
  /// The 128-byte lines of global memory it reads, where demand() names no block.
  virtual std::vector<uint64_t> lines() const { return {}; }

  Who who;
  int32_t recorded_as = -1;  // its number in the cluster's Recording
  AsyncOrigin origin;        // filled in when it is issued
};

/// What came of running one operation.
enum class AsyncStep : uint8_t {
  kNone,  // none is ready
  kRan,
  kTurn,  // nothing was done: the chosen one has to wait for the cluster's turn
};

/// Operations in one queue run in the order of submission; different queues are independent of each other.
using QueueId = int32_t;
inline constexpr QueueId kUnordered = -1;  // every operation on its own

/// The asynchronous operations of one cluster that are not done yet.
class AsyncAgents {
 public:
  explicit AsyncAgents(Cluster& cluster) : cluster_(&cluster) {}
  /// A new in-order queue.
  QueueId make_queue();
  void submit(std::unique_ptr<AsyncOp> op, QueueId queue = kUnordered);
  bool empty() const { return pending_ == 0; }
  int64_t pending() const { return pending_; }

  /// Runs (a part of) one ready operation, the choice-th of those (modulo their number) that `adversary`, if
  /// there is one, does not hold back.
  AsyncStep run_one(uint64_t choice, Adversary* adversary);
  /// Calls body(const AsyncOp&) for everything in flight.
  template <class Body>
  void for_each(Body&& body) const {
    for (const std::unique_ptr<AsyncOp>& op : unordered_) body(*op);
    for (const std::unique_ptr<Queue>& queue : queues_)
      for (const std::unique_ptr<AsyncOp>& op : *queue) body(*op);
  }

 private:
  using Queue = std::deque<std::unique_ptr<AsyncOp>>;
  Queue unordered_;
  std::vector<std::unique_ptr<Queue>> queues_;
  int64_t pending_ = 0;
  Cluster* cluster_;
  struct Candidate {
    Queue* queue;
    size_t index;
  };
  std::vector<Candidate> ready_;  // scratch of run_one
};

}  // namespace imbrex::vgpu

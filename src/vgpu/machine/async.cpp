// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/async.h"

#include "vgpu/machine/cluster.h"

namespace imbrex::vgpu {

QueueId AsyncAgents::make_queue() {
  queues_.push_back(std::make_unique<Queue>());
  return static_cast<QueueId>(queues_.size() - 1);
}

void AsyncAgents::submit(std::unique_ptr<AsyncOp> op, QueueId queue) {
  ++pending_;
  cluster_->observe().issued(*op, queue);
  (queue == kUnordered ? unordered_ : *queues_[static_cast<size_t>(queue)]).push_back(std::move(op));
}

AsyncStep AsyncAgents::run_one(uint64_t choice, Adversary* adversary) {
  Cluster& cluster = *cluster_;
  if (pending_ == 0) return AsyncStep::kNone;
  // Candidates: every unordered operation and the head of every queue.
  const auto may_run = [&](AsyncOp& op) {
    return op.ready(cluster) && (adversary == nullptr || !adversary->holds_back(op, cluster.clock()));
  };
  ready_.clear();
  for (size_t i = 0; i < unordered_.size(); ++i)
    if (may_run(*unordered_[i])) ready_.push_back({&unordered_, i});
  for (const std::unique_ptr<Queue>& queue : queues_)
    if (!queue->empty() && may_run(*queue->front())) ready_.push_back({queue.get(), 0});
  if (ready_.empty()) return AsyncStep::kNone;
  const Candidate chosen = ready_[choice % ready_.size()];
  Queue& queue = *chosen.queue;
  // Running may submit further operations, which moves the queue's elements: hold the operation itself.
  AsyncOp& op = *queue[chosen.index];
  if (op.takes_turn() && !cluster.has_turn()) return AsyncStep::kTurn;
  if (adversary != nullptr) adversary->has_run(op, cluster.clock());
  cluster.observe().carries_out(&op);
  const bool done = op.run(cluster);
  cluster.observe().carries_out(nullptr);
  if (done) {
    for (size_t i = chosen.index; i < queue.size(); ++i) {
      if (queue[i].get() != &op) continue;
      queue.erase(queue.begin() + static_cast<ptrdiff_t>(i));
      break;
    }
    --pending_;
    ++cluster.statistics().async_operations;
  }
  cluster.note_progress();
  return AsyncStep::kRan;
}

}  // namespace imbrex::vgpu

// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of this process.
#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/device/machine.h"
#include "runtime/parallel/rank_link.h"

namespace imbrex::runtime {

namespace {

class ThreadLink;

struct Threads {
  Threads(int ranks, std::shared_ptr<vgpu::VirtualNode> node, double patience)
      : meeting(ranks, std::move(node), patience) {}
  Meeting meeting;
  std::mutex mutex;
  std::vector<ThreadLink*> links;  // that are alive, by rank
};

class ThreadLink : public RankLink {
 public:
  ThreadLink(std::shared_ptr<Threads> threads, int rank, int size, Device device, double patience)
      : RankLink(rank, size, std::move(device), patience), threads_(std::move(threads)) {
    const std::lock_guard lock(threads_->mutex);
    threads_->links.push_back(this);
  }
  ~ThreadLink() override {
    const std::lock_guard lock(threads_->mutex);
    threads_->links[static_cast<size_t>(rank)] = nullptr;
  }
  void end(const std::string& why) override {
    threads_->meeting.end(rank, why);
    if (why.empty()) return;
    // The others' kernels may wait for this rank's.
    const std::lock_guard lock(threads_->mutex);
    const std::string told = fmt::format("rank {} has failed: {}", rank, why);
    for (ThreadLink* other : threads_->links) {
      if (other == nullptr) continue;
      try {
        other->end_waits(told, &device);
        continue;
      } catch (const Error&) {
        // This rank's GPU may be what has failed.
      }
      try {
        other->end_waits(told);
      } catch (const Error&) {
        // That GPU has failed, and waits for nothing.
      }
    }
  }

 private:
  std::vector<Brought> meet_others(const std::string& call, Brought brought, SourceLocation where) override {
    return threads_->meeting.meet(rank, call, std::move(brought), where);
  }
  std::vector<std::string> others() override { return threads_->meeting.others(rank); }

  std::shared_ptr<Threads> threads_;
};

}  // namespace

std::vector<std::shared_ptr<RankLink>> link_threads(const parallel::Ranks& ranks) {
  std::vector<std::shared_ptr<RankLink>> links;
  const int count = ranks.count();
  if (!ranks.is_virtual()) {
    const int devices = parallel::Ranks::cuda_devices();
    if (count < 1 || count > devices)
      throw LaunchError(
          Diagnostic{{},
                     fmt::format("{} ranks on CUDA devices, of which there are {}", count, devices),
                     {},
                     "Ranks::virtual_node() runs any number up to 16 without a GPU"});
    auto threads = std::make_shared<Threads>(count, nullptr, ranks.patience());
    std::vector<Device> of_ranks;
    for (int rank = 0; rank < count; ++rank) of_ranks.push_back(Device::cuda(rank));
    const auto memory = can_reach_all(of_ranks) ? cuda_memory(of_ranks) : nullptr;
    for (int rank = 0; rank < count; ++rank) {
      const Device& device = of_ranks[static_cast<size_t>(rank)];
      links.push_back(std::make_shared<ThreadLink>(threads, rank, count, device, ranks.patience()));
      links.back()->memory = memory == nullptr ? memory_without_peers(device)
                                               : symmetric_memory_of(memory, memory->rank_stride_bytes());
      device.backend().add_wait_bound(links.back());
    }
    return links;
  }
  auto node = std::make_shared<vgpu::VirtualNode>(count, ranks.options());
  auto threads = std::make_shared<Threads>(count, node, ranks.patience());
  auto turn = std::make_shared<std::mutex>();
  const auto memory = virtual_node_memory(node, turn);
  for (int rank = 0; rank < count; ++rank) {
    const auto launch = [threads, rank](const vgpu::Function& function, const vgpu::Launch& call) {
      return threads->meeting.launch(rank, function, call);
    };
    const Device device(make_virtual_device(make_rank_machine(node, rank, launch), turn));
    links.push_back(std::make_shared<ThreadLink>(threads, rank, count, device, ranks.patience()));
    links.back()->memory = symmetric_memory_of(memory, memory->rank_stride_bytes());
    part_if_wished(*links.back());
  }
  return links;
}

}  // namespace imbrex::runtime

// SPDX-License-Identifier: Apache-2.0
#include "imbrex/vgpu/virtual_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "imbrex/core/error.h"
#include "imbrex/inspect/gpu_model.h"
#include "vgpu/gpu_data.h"
#include "vgpu/timeline/node_replay.h"
#include "vgpu/timeline/signal_board.h"

namespace imbrex::vgpu {

namespace {

[[noreturn]] void fail(std::string message, std::string help = "") {
  throw LaunchError({{}, "virtual node: " + std::move(message), {}, std::move(help)});
}

/// GPUs differ in the order in which they do things, too.
uint64_t seed_of(uint64_t seed, int rank) {
  return seed == 0 ? 0 : seed * 0x9E37'79B9'7F4A'7C15u + static_cast<uint64_t>(rank) + 1;
}

}  // namespace

struct VirtualNode::Data {
  std::vector<VirtualGpu> gpus;
  std::optional<GlobalRaces> races;  // since the last barrier

  using Preparations = std::vector<std::unique_ptr<VirtualGpu::Prepared>>;
  void predict(std::span<const RankLaunch> launches, const Preparations& prepared, Grid& grid,
               const SignalBoard& signals, std::vector<Report>& reports);
};

/// The times of launches that ran together, where all of them ask for theirs.
void VirtualNode::Data::predict(std::span<const RankLaunch> launches, const Preparations& prepared,
                                Grid& grid, const SignalBoard& signals, std::vector<Report>& reports) {
  const detail::GpuData& first = *gpus.front().data_;
  const TimelineOptions& wanted = first.options.timeline;
  const LinkRates links =
      link_rates(wanted.gpu != nullptr ? *wanted.gpu : gpu_model_for(first.options.target));
  if (links.bytes_per_second == 0) return;
  std::vector<RankRecordings> recordings;
  for (size_t i = 0; i < launches.size(); ++i) {
    if (!reports[i].completed) return;
    ReplayContext context =
        replay_context(*first.target, prepared[i]->context, prepared[i]->predicted_ctas_per_sm);
    context.explain = false;  // the critical path would lead through several GPUs
    recordings.push_back({launches[i].rank, std::move(context), grid.take_recordings(i)});
  }
  std::vector<Timeline> timelines =
      NodeReplay(recordings, static_cast<int>(gpus.size()), links, signals.told()).run();
  for (size_t i = 0; i < launches.size(); ++i) {
    timelines[i].target = first.options.target;
    reports[i].timeline = std::make_shared<const Timeline>(std::move(timelines[i]));
  }
}

VirtualNode::VirtualNode(int ranks, Options options) : data_(std::make_unique<Data>()) {
  if (ranks < 1 || ranks > kMaxGpus)
    fail(fmt::format("{} GPUs are asked for, 1 to {} are possible", ranks, kMaxGpus));
  if (options.memory_bytes <= 0) fail(fmt::format("memory_bytes is {}", options.memory_bytes));
  memory_ = std::make_shared<GlobalMemory>(options.memory_bytes, ranks);
  for (int rank = 0; rank < ranks; ++rank) data_->gpus.push_back(VirtualGpu(options, *this, rank));
  set_seed(options.seed);
}
VirtualNode::~VirtualNode() = default;

int VirtualNode::size() const { return static_cast<int>(data_->gpus.size()); }

VirtualGpu& VirtualNode::gpu(int rank) {
  if (rank < 0 || rank >= size()) fail(fmt::format("rank {} of {} is asked for", rank, size()));
  return data_->gpus[static_cast<size_t>(rank)];
}

void VirtualNode::set_seed(uint64_t seed) {
  for (int rank = 0; rank < size(); ++rank) gpu(rank).data_->options.seed = seed_of(seed, rank);
}

DeviceAddress VirtualNode::allocate_symmetric(int64_t bytes) {
  if (bytes < 0) fail(fmt::format("allocate_symmetric: {} bytes are asked for", bytes));
  return memory_->allocate_on_all(static_cast<uint64_t>(bytes), "symmetric allocation");
}

void VirtualNode::free_symmetric(DeviceAddress address, SourceLocation where) {
  for (int rank = 0; rank < size(); ++rank)
    gpu(rank).free(address + static_cast<uint64_t>(rank) * memory_->stretch_bytes(), where);
}

int64_t VirtualNode::rank_stride() const { return static_cast<int64_t>(memory_->stretch_bytes()); }

void VirtualNode::barrier() { data_->races.reset(); }

std::vector<Report> VirtualNode::launch(std::span<const RankLaunch> launches) {
  std::vector<std::unique_ptr<VirtualGpu::Prepared>> prepared;
  std::vector<bool> is_taken(static_cast<size_t>(size()));
  int64_t clusters = 0;
  int threads = 1;
  bool checks_races = !launches.empty(), predicts = launches.size() > 1;
  for (const RankLaunch& one : launches) {
    VirtualGpu& device = gpu(one.rank);
    if (is_taken[static_cast<size_t>(one.rank)])
      fail(fmt::format("two launches at once on rank {}", one.rank));
    is_taken[static_cast<size_t>(one.rank)] = true;
    const Options& options = device.data_->options;
    checks_races &= options.checks.races && options.checks.global_races;
    predicts &= options.timeline.record;
    threads = std::max(threads, host_threads(options));
    prepared.push_back(device.prepare(one.function, one.launch));
    clusters += prepared.back()->context.clusters().count();
  }
  std::optional<GlobalRaces>& races = data_->races;
  // When numbers run out, what happened before is forgotten.
  if (!checks_races || (races && races->next_cluster() + clusters > kMaxTrackedClusters)) races.reset();
  checks_races &= clusters <= kMaxTrackedClusters;
  if (checks_races && !races) races.emplace(memory_->size(), true);
  SignalBoard signals;
  std::vector<ResidentLaunch> resident;
  for (const std::unique_ptr<VirtualGpu::Prepared>& one : prepared) {
    LaunchContext& context = one->context;
    if (predicts) context.signals = &signals;
    if (checks_races) {
      context.global_races = &*races;
      context.first_cluster = races->next_cluster();
      races->add_launch({context.first_cluster, static_cast<uint32_t>(context.clusters().count()),
                         context.rank, one->program, context.grid, context.cluster,
                         static_cast<size_t>(context.warps())});
    }
    resident.push_back({&context, one->slots});
  }
  Grid grid(resident);
  std::vector<Report> reports = grid.run(threads);
  if (checks_races) races->launches_finished();
  for (size_t i = 0; i < launches.size(); ++i)
    gpu(launches[i].rank).finish(*prepared[i], grid, i, reports[i]);
  if (predicts) data_->predict(launches, prepared, grid, signals, reports);
  return reports;
}

}  // namespace imbrex::vgpu

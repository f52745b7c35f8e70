// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/what_if.h"

namespace imbrex::vgpu {

namespace {

constexpr double kEndless = 1e30;  // bytes per clock
/// Resources with less of the critical path are not looked at: freeing them cannot gain more.
constexpr double kLeastShare = 0.003;

}  // namespace

const char* name(Resource resource) {
  switch (resource) {
    case Resource::kStart:
      return "CTA start";
    case Resource::kInstructions:
      return "instructions";
    case Resource::kSharedMemory:
      return "shared memory";
    case Resource::kTensorCore:
      return "tensor core";
    case Resource::kTma:
      return "TMA";
    case Resource::kL2Bandwidth:
      return "L2 bandwidth";
    case Resource::kL2Latency:
      return "L2 latency";
    case Resource::kMemoryBandwidth:
      return "memory bandwidth";
    case Resource::kMemoryLatency:
      return "memory latency";
    case Resource::kSynchronisation:
      return "barriers";
    case Resource::kTensorMemory:
      return "tensor memory";
    case Resource::kLaunchControl:
      return "launch control";
  }
  return "";
}

CostModel without(CostModel m, Resource resource) {
  switch (resource) {
    case Resource::kStart:
      m.cta_launch = 0;
      break;
    case Resource::kTma:
      m.tma_latency = m.tma_issue = m.store_read = 0;
      m.tma_bytes = kEndless;
      break;
    case Resource::kL2Bandwidth:
      m.l2_bytes = m.l2_port_bytes = kEndless;
      break;
    case Resource::kL2Latency:
      m.hbm_latency -= m.l2_latency;
      m.l2_latency = m.store_latency = 0;
      break;
    case Resource::kMemoryBandwidth:
      m.hbm_bytes = kEndless;
      break;
    case Resource::kMemoryLatency:
      m.hbm_latency = m.l2_latency;
      break;
    case Resource::kTensorCore:
      m.tensor_latency = 0;
      break;
    case Resource::kSynchronisation:
      m.mbarrier_wake = m.barrier_latency = m.cluster_latency = 0;
      break;
    case Resource::kTensorMemory:
      m.tensor_memory_latency = 0;
      m.tensor_memory_bytes = kEndless;
      break;
    case Resource::kLaunchControl:
      m.cancel_latency = 0;
      break;
    case Resource::kInstructions:
    case Resource::kSharedMemory:
      break;  // see demand_of()
  }
  return m;
}

void explain_by_replays(const ReplayContext& context, const std::vector<Recording>& recordings,
                        Timeline& timeline) {
  auto why = std::make_shared<TimelineExplanation>(*timeline.why);
  for (size_t i = 0; i < kResources; ++i) {
    if (why->path[i] < kLeastShare * static_cast<double>(timeline.cycles)) continue;
    const auto resource = static_cast<Resource>(i);
    ReplayContext changed = context;
    changed.model = without(context.model, resource);
    changed.rates = without(context.rates, resource);
    changed.free = resource;
    changed.explain = false;
    changed.drawn_cta = -1;
    why->what_if.push_back({resource, replay(changed, recordings).cycles});
  }
  std::stable_sort(why->what_if.begin(), why->what_if.end(),
                   [](const auto& a, const auto& b) { return a.cycles < b.cycles; });
  timeline.why = std::move(why);
}

}  // namespace imbrex::vgpu

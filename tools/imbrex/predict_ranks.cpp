// SPDX-License-Identifier: Apache-2.0
#include "predict_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "imbrex/core/error.h"
#include "imbrex/parallel/rank_registry.h"
#include "imbrex/vgpu/timeline.h"
#include "svg.h"
#include "timeline_text.h"
#include "timeline_view.h"

namespace imbrex::command {

namespace {

using Timelines = std::vector<std::shared_ptr<const vgpu::Timeline>>;  // by rank

Timelines predicted(const parallel::RegisteredRanks& call, const std::map<std::string, int64_t>& sizes,
                    const GpuModel& gpu, int ranks, int sms, double clock_ghz, bool draws) {
  vgpu::Options machine;
  machine.target = gpu.target;
  machine.num_sms = sms > 0 ? sms : gpu.sms;
  machine.checks = vgpu::CheckSet::none();
  machine.tensor_math = vgpu::TensorMath::kNone;
  machine.timeline = {.record = true,
                      .cta = draws ? 0 : -1,
                      .clock_ghz = clock_ghz,
                      .gpu = std::make_shared<const GpuModel>(gpu)};
  Timelines timelines(static_cast<size_t>(ranks));
  constexpr double kPatience = 3600;  // ranks run on this machine's cores, and large products take a while
  run_ranks(parallel::Ranks::virtual_node(ranks, machine).patience(kPatience),
            [&](parallel::Communicator& communicator) {
              const vgpu::Report report = call.launch(communicator, sizes).virtual_report;
              if (report.timeline == nullptr)
                throw LaunchError(
                    Diagnostic{{},
                               fmt::format("no time is predicted on {}", gpu.title),
                               {report.format()},
                               "of GPUs with NVLink something is known: A100, H100, H200, B200, ..."});
              timelines[static_cast<size_t>(communicator.rank())] = report.timeline;
            });
  return timelines;
}

nlohmann::ordered_json as_json(const vgpu::Timeline& t) {
  return {{"rank", t.rank},
          {"cycles", t.cycles},
          {"microseconds", t.microseconds()},
          {"complete", t.complete},
          {"l2_bytes", t.l2_bytes},
          {"hbm_bytes", t.hbm_bytes},
          {"link_bytes_out", t.link_bytes_out},
          {"link_bytes_in", t.link_bytes_in},
          {"busy",
           {{"tensor_core", t.use.tensor_core},
            {"tma", t.use.tma},
            {"l2", t.use.l2},
            {"memory", t.use.hbm},
            {"issue", t.use.issue},
            {"links_out", t.use.links_out},
            {"links_in", t.use.links_in}}}};
}

}  // namespace

int predict_ranks(const KernelChoice& choice, const GpuModel& gpu, int ranks, int sms, double clock_ghz,
                  const std::string& trace, bool json) {
  const parallel::RegisteredRanks& call = parallel::registered_ranks(choice.name());
  const std::map<std::string, int64_t> sizes = choice.sizes_of(call.description);
  const auto begin = std::chrono::steady_clock::now();
  const Timelines timelines = predicted(call, sizes, gpu, ranks, sms, clock_ghz, !trace.empty());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const auto slowest =
      *std::max_element(timelines.begin(), timelines.end(),
                        [](const auto& a, const auto& b) { return a->microseconds() < b->microseconds(); });
  std::string title = fmt::format("{} on {} GPUs", choice.name(), ranks);
  for (const auto& [name, size] : sizes) title += fmt::format("  {}={}", name, size);
  if (!trace.empty()) {
    std::vector<TimelineView> views;
    for (const auto& timeline : timelines) {
      views.push_back(view_of(*timeline, {}));
      views.back().title = title;
    }
    write_file(trace, timeline_json(views));
  }
  if (json) {
    nlohmann::ordered_json out = {{"call", choice.name()},
                                  {"sizes", sizes},
                                  {"chip", slowest->chip},
                                  {"clock_ghz", slowest->clock_ghz},
                                  {"microseconds", slowest->microseconds()},
                                  {"seconds", took.count()}};
    for (const auto& timeline : timelines) out["ranks"].push_back(as_json(*timeline));
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  fmt::print("{}: {}, the slowest\n", title, duration(slowest->microseconds()));
  for (const auto& timeline : timelines)
    fmt::print("rank {}\n{}", timeline->rank, prediction_text(*timeline));
  return 0;
}

}  // namespace imbrex::command

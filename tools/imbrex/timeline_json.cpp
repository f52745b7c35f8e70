// SPDX-License-Identifier: Apache-2.0
// Timelines for Perfetto (ui.perfetto.dev) and chrome://tracing: one process per CTA, one thread per lane; work of a
// unit that overlaps takes several threads.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "timeline_view.h"

namespace imbrex::command {

namespace {

using Json = nlohmann::ordered_json;

Json metadata(const char* what, int64_t process, int64_t thread, const Json& arguments) {
  return {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", arguments}};
}

}  // namespace

namespace {

/// CTAs of several GPUs are told apart.
constexpr int64_t kMostCtas = 1'000'000'000;

void add_lanes(const TimelineView& view, Json& events, int64_t& thread) {
  const vgpu::Timeline& timeline = *view.timeline;
  int64_t process = -1;
  for (const LaneView& lane : view.lanes) {
    const int64_t cta = lane.lane->cta + std::max(timeline.rank, 0) * kMostCtas;
    if (cta != process) {
      const std::string gpu = timeline.rank < 0 ? "" : fmt::format("rank {}, ", timeline.rank);
      events.push_back(
          metadata("process_name", cta, 0, {{"name", fmt::format("{}CTA {}", gpu, lane.lane->cta)}}));
      process = cta;
    }
    for (int row = 0; row < lane.rows; ++row) {
      std::string name = lane.name;
      if (lane.rows > 1) name += fmt::format(" {}", row + 1);
      if (!lane.detail.empty()) name += fmt::format(" ({})", lane.detail);
      events.push_back(metadata("thread_name", cta, thread + row, {{"name", name}}));
      events.push_back(metadata("thread_sort_index", cta, thread + row, {{"sort_index", thread + row}}));
    }
    for (size_t i = 0; i < lane.lane->spans.size(); ++i) {
      const vgpu::TimelineSpan& span = lane.lane->spans[i];
      Json arguments = {{"cycles", span.end - span.begin}};
      std::string name = vgpu::name(span.kind);
      if (span.place >= 0) {
        const vgpu::TimelinePlace& place = timeline.places[static_cast<size_t>(span.place)];
        if (!place.file.empty()) {
          arguments["source"] = fmt::format("{}:{}", place.file, place.line);
          arguments["line"] = trimmed_line(place.file, place.line);
        }
        arguments["ptx"] = place.ptx;
      }
      if (span.text >= 0) arguments["what"] = view.text_of(span);
      const auto microseconds = [&](int64_t cycles) {
        return static_cast<double>(cycles) / (timeline.clock_ghz * 1e3);
      };
      events.push_back({{"ph", "X"},
                        {"name", name},
                        {"cat", vgpu::name(span.kind)},
                        {"pid", cta},
                        {"tid", thread + lane.row[i]},
                        {"ts", microseconds(span.begin)},
                        {"dur", microseconds(span.end - span.begin)},
                        {"args", arguments}});
    }
    thread += lane.rows;
  }
}

}  // namespace

std::string timeline_json(const TimelineView& view) { return timeline_json(std::span(&view, 1)); }

std::string timeline_json(std::span<const TimelineView> views) {
  Json events = Json::array();
  int64_t thread = 0;
  for (const TimelineView& view : views) add_lanes(view, events, thread);
  const TimelineView& view = views.front();
  const vgpu::Timeline& timeline = *view.timeline;
  const Json out = {{"displayTimeUnit", "ns"},
                    {"otherData",
                     {{"kernel", view.title},
                      {"model", timeline.chip},
                      {"clock_ghz", timeline.clock_ghz},
                      {"cycles", timeline.cycles},
                      {"predicted_us", timeline.microseconds()},
                      {"overlap", timeline.overlap}}},
                    {"traceEvents", events}};
  return out.dump(1);
}

}  // namespace imbrex::command

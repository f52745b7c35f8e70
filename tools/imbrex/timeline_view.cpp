// SPDX-License-Identifier: Apache-2.0
#include "timeline_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace imbrex::command {

namespace {

using vgpu::LaneKind;
using vgpu::TimelineLane;
using vgpu::TimelineSpan;

/// Rows that overlapping work of a unit is spread over; more lies over each other.
constexpr int kMostRows = 8;
constexpr int kBarrierBytes = 8;

/// The base name, for people.
std::string file_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

/// Spreads spans over rows so that those of a row do not overlap.
void spread(LaneView& view) {
  std::vector<int64_t> end;
  for (const TimelineSpan& span : view.lane->spans) {
    size_t row = 0;
    while (row < end.size() && end[row] > span.begin) ++row;
    if (row == end.size() && row < kMostRows) end.push_back(0);
    row = std::min(row, end.size() - 1);
    end[row] = std::max(end[row], span.end);
    view.row.push_back(static_cast<int>(row));
  }
  view.rows = std::max<int>(1, static_cast<int>(end.size()));
}

/// The groups a warp belongs to, by index.
std::vector<size_t> groups_of(int warp, const std::vector<ThreadGroup>& groups) {
  std::vector<size_t> found;
  for (size_t i = 0; i < groups.size(); ++i)
    if (warp * 32 < groups[i].first_thread + groups[i].threads && groups[i].first_thread < warp * 32 + 32)
      found.push_back(i);
  return found;
}

/// Names that say no more than the function's.
bool is_telling(const std::string& name) {
  static const std::set<std::string> kPlain{"", "warp", "thread", "group", "guard", "warps", "threads", "_"};
  return !kPlain.contains(name);
}

void name_warps(std::vector<LaneView>& lanes, const std::vector<ThreadGroup>& groups) {
  // Warps of the same groups do the same.
  std::map<std::pair<int, std::vector<size_t>>, std::vector<LaneView*>> alike;
  for (LaneView& view : lanes)
    if (view.lane->kind == LaneKind::kWarp)
      alike[{view.lane->rank, groups_of(view.lane->index, groups)}].push_back(&view);
  for (auto& [key, views] : alike) {
    std::string name;
    for (size_t group : key.second) {
      const SourceLocation& where = groups[group].where;
      const std::string variable = declared_variable(where.file, static_cast<int>(where.line));
      if (name.empty() && is_telling(variable)) name = variable;
    }
    const int first = views.front()->lane->index, last = views.back()->lane->index;
    const std::string which =
        views.size() == 1 ? fmt::format("warp {}", first) : fmt::format("warps {}–{}", first, last);
    for (size_t i = 0; i < views.size(); ++i) {
      views[i]->name = name.empty() ? fmt::format("warp {}", views[i]->lane->index) : name;
      views[i]->detail = name.empty() && views.size() == 1 ? "" : which;
      views[i]->is_repeated = i > 0;
    }
  }
}

/// "tma_warp", "epilogue", "warp 0": who a barrier's arrivals or waits come from.
std::string names_of(const std::vector<int>& warps, int rank, const std::vector<LaneView>& lanes) {
  std::vector<std::string> names;
  for (int warp : warps)
    for (const LaneView& view : lanes)
      if (view.lane->kind == LaneKind::kWarp && view.lane->rank == rank && view.lane->index == warp &&
          std::find(names.begin(), names.end(), view.name) == names.end())
        names.push_back(view.name);
  if (names.size() > 3) return "all";
  return fmt::format("{}", fmt::join(names, ", "));
}

void name_barriers(std::vector<LaneView>& lanes, const vgpu::Timeline& timeline) {
  // Barriers of one declaration that lie side by side are an array.
  for (size_t i = 0; i < lanes.size();) {
    if (lanes[i].lane->kind != LaneKind::kBarrier) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    const auto declared = [&](size_t at) {
      const int32_t place = lanes[at].lane->place;
      return place < 0 ? nullptr : &timeline.places[static_cast<size_t>(place)];
    };
    const auto are_declared_together = [&](size_t a, size_t b) {
      return declared(a) != nullptr && declared(b) != nullptr && declared(a)->file == declared(b)->file &&
             declared(a)->line == declared(b)->line && lanes[a].lane->variable == lanes[b].lane->variable;
    };
    while (end < lanes.size() && lanes[end].lane->kind == LaneKind::kBarrier &&
           are_declared_together(end, i) &&
           lanes[end].lane->index == lanes[end - 1].lane->index + kBarrierBytes)
      ++end;
    std::string name = lanes[i].lane->variable;
    if (const vgpu::TimelinePlace* place = declared(i); place != nullptr && name.empty())
      name = declared_variable(place->file, place->line);
    for (size_t at = i; at < end; ++at) {
      LaneView& view = lanes[at];
      if (!name.empty()) view.name = end - i == 1 ? name : fmt::format("{}[{}]", name, at - i);
      const std::string from = names_of(view.lane->arrivals, view.lane->rank, lanes),
                        to = names_of(view.lane->waits, view.lane->rank, lanes);
      view.detail = from.empty() && to.empty() ? "" : fmt::format("{} → {}", from, to);
    }
    i = end;
  }
}

}  // namespace

std::string TimelineView::text_of(const TimelineSpan& span) const {
  if (span.text < 0) return "";
  std::string text = timeline->texts[static_cast<size_t>(span.text)];
  const size_t at = text.find("mbarrier 0x");
  if (at == std::string::npos) return text;
  const size_t end = std::min(text.find(',', at), text.size());
  const auto named = barriers.find(text.substr(at, end - at));
  return named == barriers.end() ? text : text.replace(at, end - at, named->second);
}

std::string TimelineView::describe(const TimelineSpan& span) const {
  std::string text = text_of(span);
  if (text.empty()) text = name(span.kind);
  if (span.place >= 0) {
    const vgpu::TimelinePlace& place = timeline->places[static_cast<size_t>(span.place)];
    if (!place.file.empty())
      text +=
          fmt::format("\n{}:{}: {}", file_name(place.file), place.line, trimmed_line(place.file, place.line));
    text += fmt::format("\n{}", place.ptx);
  }
  const int64_t cycles = span.end - span.begin;
  return text + fmt::format("\n{} to {}: {} cycles, {:.2f} µs", span.begin, span.end, cycles,
                            static_cast<double>(cycles) / (timeline->clock_ghz * 1e3));
}

TimelineView view_of(const vgpu::Timeline& timeline, const std::vector<ThreadGroup>& groups) {
  TimelineView view;
  view.timeline = &timeline;
  for (const TimelineLane& lane : timeline.lanes) {
    LaneView lane_view;
    lane_view.lane = &lane;
    lane_view.name = lane.name;
    spread(lane_view);
    view.lanes.push_back(std::move(lane_view));
  }
  name_warps(view.lanes, groups);
  name_barriers(view.lanes, timeline);
  for (const LaneView& lane : view.lanes)
    if (lane.lane->kind == LaneKind::kBarrier) view.barriers.try_emplace(lane.lane->name, lane.name);
  return view;
}

}  // namespace imbrex::command

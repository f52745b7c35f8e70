// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/timeline_lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace imbrex::vgpu {

namespace {

void add_once(std::vector<int>& list, int value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

}  // namespace

const char* name(SpanKind kind) {
  static constexpr const char* kNames[] = {"run",    "wait", "load",    "store",
                                           "matrix", "move", "control", "phase"};
  return kNames[static_cast<size_t>(kind)];
}

TimelineLanes::TimelineLanes(const Program& program, const Recording& recording)
    : program_(&program), recording_(&recording) {
  for (size_t warp = 0; warp < recording.warps.size(); ++warp) {
    const auto per_cta = static_cast<size_t>(recording.warps_per_cta);
    lane(LaneKind::kWarp, static_cast<int>(warp / per_cta), static_cast<int>(warp % per_cta), "warp");
  }
}

namespace {

/// What a warp waits for that waits for work of this kind.
const char* name_of(WorkDemand::Kind kind) {
  using Kind = WorkDemand::Kind;
  switch (kind) {
    case Kind::kThreadLoad:
      return "a load";
    case Kind::kTmaLoad:
      return "a TMA load";
    case Kind::kTmaStore:
      return "a TMA store";
    case Kind::kMatrix:
      return "a product";
    case Kind::kTensorLoad:
      return "a load from tensor memory";
    case Kind::kTensorStore:
      return "a store to tensor memory";
    default:
      return "asynchronous work";
  }
}

}  // namespace

const TimelineLanes::Unit* TimelineLanes::unit_of(WorkDemand::Kind kind) {
  using Kind = WorkDemand::Kind;
  static constexpr Unit kThreads{LaneKind::kCopies, SpanKind::kLoad, "loads by threads"},
      kTmaLoad{LaneKind::kTma, SpanKind::kLoad, "TMA"}, kTmaStore{LaneKind::kTma, SpanKind::kStore, "TMA"},
      kMatrix{LaneKind::kTensorCore, SpanKind::kMatrix, "tensor core"},
      kMove{LaneKind::kTensorMemory, SpanKind::kMove, "tensor memory"},
      kControl{LaneKind::kLaunchControl, SpanKind::kControl, "launch control"},
      kRemote{LaneKind::kTma, SpanKind::kStore, "TMA"};
  switch (kind) {
    case Kind::kThreadLoad:
      return &kThreads;
    case Kind::kTmaLoad:
      return &kTmaLoad;
    case Kind::kTmaStore:
      return &kTmaStore;
    case Kind::kMatrix:
      return &kMatrix;
    case Kind::kTensorLoad:
    case Kind::kTensorStore:
    case Kind::kTensorCopy:
      return &kMove;
    case Kind::kCancel:
      return &kControl;
    case Kind::kRemote:
      return &kRemote;
    default:
      return nullptr;
  }
}

TimelineLane& TimelineLanes::lane(LaneKind kind, int rank, int index, const char* name) {
  const auto [at, is_new] = lanes_.try_emplace({rank, kind, index});
  TimelineLane& lane = at->second;
  if (is_new) {
    lane.kind = kind;
    lane.cta = recording_->ctas[static_cast<size_t>(rank)];
    lane.rank = rank;
    lane.index = index;
    lane.name = kind == LaneKind::kWarp      ? fmt::format("{} {}", name, index)
                : kind == LaneKind::kBarrier ? fmt::format("{} {:#x}", name, index)
                                             : name;
  }
  return lane;
}

int32_t TimelineLanes::place(uint32_t insn) {
  const auto [at, is_new] = place_of_.try_emplace(insn, static_cast<int32_t>(places_.size()));
  if (is_new) {
    const CodePlace code = program_->place(insn);
    places_.push_back({code.file, code.line, code.ptx_line, code.ptx});
  }
  return at->second;
}

void TimelineLanes::add(TimelineLane& lane, TimelineSpan span) {
  // Runs that follow each other are one box of the picture.
  if (!lane.spans.empty() && lane.kind == LaneKind::kWarp && lane.spans.back().kind == span.kind &&
      lane.spans.back().end == span.begin && span.kind == SpanKind::kRun) {
    lane.spans.back().end = span.end;
    return;
  }
  lane.spans.push_back(span);
}

TimelineLane& TimelineLanes::warp_lane(size_t warp) {
  const auto per_cta = static_cast<size_t>(recording_->warps_per_cta);
  return lane(LaneKind::kWarp, static_cast<int>(warp / per_cta), static_cast<int>(warp % per_cta), "warp");
}

void TimelineLanes::run(size_t warp, double begin, double end, uint32_t insn) {
  const int64_t from = std::llround(begin), to = std::llround(end);
  if (to > from) add(warp_lane(warp), {from, to, SpanKind::kRun, place(insn), -1});
}

std::string TimelineLanes::awaited(const RecordedStep& step, bool with_phase) const {
  if (step.kind == RecordedStep::Kind::kAllocate) return "tensor memory";
  if (step.kind == RecordedStep::Kind::kWaitSignal) return "a signal";
  if (step.kind == RecordedStep::Kind::kDrain) return "its stores to be seen";
  if (step.kind == RecordedStep::Kind::kFlag) return "what another CTA stores";
  if (step.kind == RecordedStep::Kind::kWait) {
    const RecordedObject& object = recording_->objects[static_cast<size_t>(step.id)];
    if (object.kind == RecordedObject::Kind::kNamed) return fmt::format("barrier {}", object.which);
    if (object.kind == RecordedObject::Kind::kCluster) return "the cluster barrier";
    return with_phase ? fmt::format("mbarrier {:#x}, phase {}", object.which, step.phase)
                      : fmt::format("mbarrier {:#x}", object.which);
  }
  const RecordedWork& work = recording_->works[static_cast<size_t>(step.id)];
  const std::string what = work.text >= 0 ? recording_->texts[static_cast<size_t>(work.text)] : "a load";
  return step.kind == RecordedStep::Kind::kWaitRead ? "the source of the " + what + " to be read" : what;
}

void TimelineLanes::wait(size_t warp, double begin, double end, const RecordedStep& step) {
  const int64_t from = std::llround(begin), to = std::llround(end);
  if (to <= from) return;
  add(warp_lane(warp),
      {from, to, SpanKind::kWait, place(step.insn), text("waits for " + awaited(step, true))});
}

void TimelineLanes::waited(size_t warp, double begin, double end, const RecordedStep& step,
                           const TimelineExplanation::Shares& because) {
  // Works differ by their coordinates: one entry for all of an instruction.
  const bool is_work =
      step.kind == RecordedStep::Kind::kWaitWork || step.kind == RecordedStep::Kind::kWaitRead;
  const std::string what =
      is_work ? std::string(name_of(recording_->works[static_cast<size_t>(step.id)].demand.kind))
              : awaited(step, false);
  TimelineExplanation::Wait& wait = waits_[{warp, step.insn, what}];
  const auto per_cta = static_cast<size_t>(recording_->warps_per_cta);
  wait.rank = static_cast<int>(warp / per_cta);
  wait.warp = static_cast<int>(warp % per_cta);
  wait.place = place(step.insn);
  wait.what = what;
  wait.cycles += end - begin;
  for (size_t i = 0; i < because.size(); ++i) wait.because[i] += because[i];
}

void TimelineLanes::ended(size_t warp, double lived) {
  lived_.resize(recording_->warps.size());
  lived_[warp] = lived;
}

void TimelineLanes::explain(TimelineExplanation& why) {
  why.lived = lived_;
  for (const auto& [key, wait] : waits_) why.waits.push_back(wait);
  std::stable_sort(why.waits.begin(), why.waits.end(),
                   [](const auto& a, const auto& b) { return a.cycles > b.cycles; });
}

int32_t TimelineLanes::text(std::string text) {
  texts_.push_back(std::move(text));
  return static_cast<int32_t>(recording_->texts.size() + texts_.size() - 1);
}

void TimelineLanes::work(int32_t id, double begin, double end) {
  const RecordedWork& work = recording_->works[static_cast<size_t>(id)];
  const Unit* unit = unit_of(work.demand.kind);
  if (unit == nullptr) return;
  const TimelineSpan span{std::llround(begin), std::llround(end), unit->span, place(work.insn), work.text};
  add(lane(unit->lane, work.rank, 0, unit->name), span);
  // A pair's product occupies both tensor cores.
  if (work.demand.pair) add(lane(unit->lane, work.rank ^ 1, 0, unit->name), span);
}

void TimelineLanes::phase(int32_t id, int64_t, double begin, double end) {
  const RecordedObject& object = recording_->objects[static_cast<size_t>(id)];
  if (object.kind != RecordedObject::Kind::kMbarrier) return;
  TimelineLane& barrier = lane(LaneKind::kBarrier, object.rank, static_cast<int>(object.which), "mbarrier");
  if (object.init >= 0) {
    barrier.place = place(static_cast<uint32_t>(object.init));
    barrier.variable = program_->info[static_cast<size_t>(object.init)].object;
  }
  add(barrier, {std::llround(begin), std::llround(end), SpanKind::kPhase, barrier.place, -1});
}

void TimelineLanes::describe_barriers() {
  const auto barrier_of = [&](int32_t id) -> TimelineLane* {
    const RecordedObject& object = recording_->objects[static_cast<size_t>(id)];
    const auto at = lanes_.find({object.rank, LaneKind::kBarrier, static_cast<int>(object.which)});
    return object.kind != RecordedObject::Kind::kMbarrier || at == lanes_.end() ? nullptr : &at->second;
  };
  for (size_t warp = 0; warp < recording_->warps.size(); ++warp)
    for (const RecordedStep& step : recording_->warps[warp]) {
      const int index = static_cast<int>(warp % static_cast<size_t>(recording_->warps_per_cta));
      const bool arrives = step.kind == RecordedStep::Kind::kArrive;
      if (!arrives && step.kind != RecordedStep::Kind::kWait) continue;
      if (TimelineLane* barrier = barrier_of(step.id))
        add_once(arrives ? barrier->arrivals : barrier->waits, index);
    }
  for (const RecordedArrival& arrival : recording_->arrivals)
    if (TimelineLane* barrier = barrier_of(arrival.object))
      add_once(barrier->arrivals, recording_->works[static_cast<size_t>(arrival.work)].warp);
}

void TimelineLanes::finish(Timeline& timeline) {
  describe_barriers();
  for (auto& [key, lane] : lanes_) {
    std::stable_sort(lane.spans.begin(), lane.spans.end(),
                     [](const TimelineSpan& a, const TimelineSpan& b) { return a.begin < b.begin; });
    timeline.lanes.push_back(std::move(lane));
  }
  timeline.places = std::move(places_);
  timeline.texts = recording_->texts;
  for (std::string& text : texts_) timeline.texts.push_back(std::move(text));
}

}  // namespace imbrex::vgpu

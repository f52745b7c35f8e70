// SPDX-License-Identifier: Apache-2.0
// The picture of one cluster, filled while its time is simulated.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "imbrex/vgpu/timeline.h"
#include "vgpu/program/program.h"
#include "vgpu/timeline/recording.h"

namespace imbrex::vgpu {

class TimelineLanes {
 public:
  TimelineLanes(const Program& program, const Recording& recording);

  /// A warp (by rank * warps_per_cta + index) runs; the instruction it begins with.
  void run(size_t warp, double begin, double end, uint32_t insn);
  /// A warp waits in a step.
  void wait(size_t warp, double begin, double end, const RecordedStep& step);
  /// A unit carries out work.
  void work(int32_t id, double begin, double end);
  /// A phase of an object, from its first arrival to its completion.
  void phase(int32_t object, int64_t phase, double begin, double end);

  /// A warp has waited in a step; what the clocks went to meanwhile.
  void waited(size_t warp, double begin, double end, const RecordedStep& step,
              const TimelineExplanation::Shares& because);
  /// A warp has ended after so many clocks.
  void ended(size_t warp, double lived);
  /// Adds who waited for what.
  void explain(TimelineExplanation& why);
  /// The number of an instruction's place in the timeline.
  int32_t place(uint32_t insn);

  /// Moves lanes, places and texts into `timeline`.
  void finish(Timeline& timeline);

 private:
  struct Unit {
    LaneKind lane;
    SpanKind span;
    const char* name;
  };
  static const Unit* unit_of(WorkDemand::Kind kind);
  TimelineLane& lane(LaneKind kind, int rank, int index, const char* name);
  void add(TimelineLane& lane, TimelineSpan span);
  TimelineLane& warp_lane(size_t warp);
  std::string awaited(const RecordedStep& step, bool with_phase) const;
  int32_t text(std::string text);
  void describe_barriers();

  const Program* program_;
  const Recording* recording_;
  std::map<std::tuple<int, LaneKind, int>, TimelineLane> lanes_;  // by rank, kind, index
  std::map<uint32_t, int32_t> place_of_;
  std::vector<TimelinePlace> places_;
  std::map<std::tuple<size_t, uint32_t, std::string>, TimelineExplanation::Wait> waits_;  // warp, insn, what
  std::vector<double> lived_;
  std::vector<std::string> texts_;  // behind those of the recording
};

}  // namespace imbrex::vgpu

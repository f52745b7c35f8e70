// SPDX-License-Identifier: Apache-2.0
// A predicted timeline made readable: lanes named after the kernel's own variables, warps that do the same
// drawn once, overlapping work of a unit spread over rows.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "imbrex/core/source_text.h"
#include "imbrex/runtime/compile.h"
#include "imbrex/vgpu/timeline.h"

namespace imbrex::command {

/// One lane of the picture.
struct LaneView {
  const vgpu::TimelineLane* lane = nullptr;
  std::string name;    // "tma_warp", "full_barriers[1]", "TMA"
  std::string detail;  // "warp 0", "tma_warp -> mma_warp"
  int rows = 1;
  std::vector<int> row;      // of every span
  bool is_repeated = false;  // a warp that does what the warp drawn before it does
};

/// All of a timeline.
struct TimelineView {
  std::string title, subtitle;
  const vgpu::Timeline* timeline = nullptr;
  std::vector<LaneView> lanes;
  std::map<std::string, std::string> barriers;  // "mbarrier 0x408" -> "full_barriers[1]"
  /// What a span does, barriers by name; "" when nothing more is known than its kind.
  std::string text_of(const vgpu::TimelineSpan& span) const;
  /// "load of a box ..., matmul_v1.h:51: tma::global_to_shared(...)", for tooltips.
  std::string describe(const vgpu::TimelineSpan& span) const;
};

TimelineView view_of(const vgpu::Timeline& timeline, const std::vector<ThreadGroup>& groups);

/// The timeline in the format of Chrome's tracing, which Perfetto reads.
std::string timeline_json(const TimelineView& view);
/// Of several GPUs, one below the other.
std::string timeline_json(std::span<const TimelineView> views);

/// What of the timeline the picture shows, in cycles; end 0: to the end.
struct SvgOptions {
  int64_t begin = 0, end = 0;
  bool with_barriers = true;
};
std::string timeline_svg(const TimelineView& view, const SvgOptions& options);

}  // namespace imbrex::command

// SPDX-License-Identifier: Apache-2.0
// Why a launch takes its time, made readable: resources by share, waits by the roles that the kernel's source
// names, and neighbouring configurations that were tried.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "imbrex/vgpu/timeline.h"
#include "timeline_view.h"

namespace imbrex::command {

/// A configuration beside the one that is explained, and what it is predicted to take.
struct Trial {
  std::string change;  ///< "stages=5 (now 4)"
  double microseconds = 0;
  std::string refused;  ///< why it cannot be launched with these sizes; ""
};
struct Trials {
  std::vector<Trial> tried;  ///< the fastest first, then those refused
  size_t left_out = 0;       ///< for want of time
};

/// What warps of one role wait for at one place, all warps and phases together.
struct RoleWait {
  std::string role;                             ///< "consumer", "warps 0–3"
  std::string what;                             ///< "full_barriers", "a load"
  std::string source;                           ///< "matmul_h2.h:50", "" when unknown
  double share = 0;                             ///< of the time of these warps
  vgpu::TimelineExplanation::Shares because{};  ///< shares of that wait
  vgpu::Resource main_cause() const;
};

struct WhyView {
  std::string kernel, sizes, configuration;
  const vgpu::Timeline* timeline = nullptr;
  std::vector<RoleWait> waits;  ///< the greatest share first
  Trials trials;
  double share(vgpu::Resource resource) const;  ///< of the critical path
  /// The resource that gains most if it cost nothing; none when all gain less than 3 %.
  std::optional<vgpu::TimelineExplanation::WhatIf> limit() const;
  /// What the launch would gain, as a part of its time.
  double gain(const vgpu::TimelineExplanation::WhatIf& what_if) const;
};

/// Of a timeline that was explained; `lanes` is its view.
WhyView why_view(const TimelineView& lanes);
/// What limits the launch, in one or two sentences.
std::string verdict(const WhyView& view);
std::string why_text(const WhyView& view);
nlohmann::ordered_json why_json(const WhyView& view);
std::string why_svg(const WhyView& view);

}  // namespace imbrex::command

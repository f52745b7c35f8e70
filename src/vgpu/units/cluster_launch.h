// SPDX-License-Identifier: Apache-2.0
// What only launches with a cluster attribute may do.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "vgpu/machine/cluster.h"

namespace imbrex::vgpu {

/// Copies from shared memory to .shared::cluster, st.async and red.async are illegal instructions on an H200 in a launch
/// without a cluster attribute, wherever they lead; all else of clusters is not
/// (docs/measurements/2026-11-23-without-a-cluster.md). False after a finding.
inline bool expect_cluster_launch(Cluster& cluster, const Who& who, std::string_view what) {
  constexpr int kMeasured = 90;
  const LaunchContext& launch = cluster.launch();
  if (launch.explicit_cluster || launch.target.sm != kMeasured) return true;
  cluster.report_fatal(
      FindingKind::kIllegalInstruction, who, 0,
      fmt::format(
          "{} in a launch without a cluster attribute, which the chip answers with an illegal instruction",
          what),
      "launch it with cudaLaunchAttributeClusterDimension, of one CTA if need be, or compile it with "
      "__cluster_dims__ (.reqnctapercluster)");
  return false;
}

}  // namespace imbrex::vgpu

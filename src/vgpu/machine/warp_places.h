// SPDX-License-Identifier: Apache-2.0
// Where the warps of a cluster are, for people.
#pragma once

#include <string>
#include <vector>

namespace imbrex::vgpu {

class Cluster;
class Warp;

/// One line for warps next to each other that are at the same place: "CTA (1, 0, 0) warps 0 to 3 run at ...", "CTA
/// (1, 0, 0) warp 4 waits at ... for ...". Warps that have exited are left out.
void describe_places(Cluster& cluster, std::vector<std::string>& lines);
/// What of global memory the warp last looked at for a change, and what it holds: ", having last looked at byte 8 of ..."; "" where it
/// never did, or no other GPU could change it.
std::string looked_at(Warp& warp);

}  // namespace imbrex::vgpu

// SPDX-License-Identifier: Apache-2.0
// Where the warps of a cluster are, for people.
#pragma once

#include <string>
#include <vector>

#include "vgpu/lanes.h"

namespace imbrex::vgpu {

class Cluster;
class Warp;

/// One line for warps next to each other that are at the same place: "CTA (1, 0, 0) warps 0 to 3 run at ...", "CTA
/// (1, 0, 0) warp 4 waits at ... for ...". Warps that have exited are left out.
void describe_places(Cluster& cluster, std::vector<std::string>& lines);
/// Where one of the lanes last looked for what others change, what it holds, and what it is to become: ", having last looked at
/// byte 8 of ..."; "" where none did.
std::string looked_at(Warp& warp, Mask lanes);
/// Whether the warp has last looked at memory that threads of the program see as well: managed, or pinned.
bool looks_at_host_memory(const Warp& warp);

}  // namespace imbrex::vgpu

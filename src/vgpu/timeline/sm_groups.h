// SPDX-License-Identifier: Apache-2.0
// Which SMs of a chip are neighbours. A cluster runs on SMs of one group (GPC), and groups differ in size, since a chip is sold
// with some SMs switched off: so that fewer clusters of four or eight fit at once than there are SMs for.
#pragma once

#include <cstdint>
#include <vector>

namespace imbrex::vgpu {

/// How many SMs each group has of the first `sms` SMs of a chip that has `of_chip`, by the number of its target.
std::vector<int> sm_groups(int sm, int sms, int of_chip);

/// How many clusters of `ctas` the driver lets run at once where an SM has room for `per_sm` CTAs.
int64_t active_clusters(int sm, int sms, int64_t ctas, int64_t per_sm);

/// The first SM of each place where a cluster of `ctas` fits, a CTA on each of neighbouring SMs. At least one place.
std::vector<int> cluster_places(const std::vector<int>& groups, int64_t ctas);

}  // namespace imbrex::vgpu

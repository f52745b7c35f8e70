// SPDX-License-Identifier: Apache-2.0
// What one CTA takes, whether it fits, and how many of them an SM holds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace imbrex {

/// What a launch asks of an SM for every CTA.
struct CtaResources {
  int64_t threads = 128;
  int64_t registers_per_thread = 32;  ///< 0 where they are not known: they then bound nothing
  int64_t shared_bytes = 0;           ///< static and dynamic together
  int64_t tensor_memory_columns = 0;
  int64_t cluster_ctas = 1;
};

/// One resource: how much a CTA takes of it, how much there is, and how many CTAs that lets onto an SM.
struct ResourceUse {
  std::string name;       ///< "shared memory", "registers", "threads", "tensor memory", "CTA slots"
  std::string unit;       ///< "bytes", "registers", "threads", "columns", "CTAs"
  int64_t taken = 0;      ///< by one CTA, rounded up as the hardware allocates it
  int64_t per_cta = 0;    ///< the most one CTA may take
  int64_t per_sm = 0;     ///< what an SM has
  int64_t ctas = 0;       ///< how many CTAs fit by this resource alone
  std::string complaint;  ///< why one CTA does not fit; empty when it does
};

struct Occupancy {
  int64_t ctas_per_sm = 0;  ///< 0: does not fit
  int64_t warps_per_sm = 0;
  double fraction = 0;             ///< warps over the most an SM holds
  std::vector<ResourceUse> uses;   ///< every resource, in a fixed order
  std::vector<std::string> bound;  ///< the resources that allow no further CTA

  bool is_feasible() const { return ctas_per_sm > 0; }
  /// Every complaint, one per line; empty when feasible.
  std::string complaints() const;
};

/// The occupancy on a target ("sm_90a"), by the rules the driver uses: registers are given to warps in units
/// of 256 and per sub-partition, shared memory in units of 128 bytes plus what the system reserves for each
/// CTA. LaunchError for an unknown target or negative resources.
Occupancy occupancy(std::string_view target, const CtaResources& resources);

/// The limits of a target that occupancy() goes by, by name: {"max_threads", 1024}, {"registers_per_sm",
/// 65536}, ... LaunchError for an unknown target.
std::vector<std::pair<std::string, int64_t>> occupancy_limits(std::string_view target);

}  // namespace imbrex

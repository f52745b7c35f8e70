// SPDX-License-Identifier: Apache-2.0
#include "imbrex/inspect/occupancy.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/target.h"
#include "imbrex/core/error.h"

namespace imbrex {
namespace {

constexpr int64_t kWarp = 32;
constexpr int64_t kSubPartitions = 4;
constexpr int64_t kRegisterUnit = 256;  // of one warp
constexpr int64_t kSharedUnit = 128;
constexpr int64_t kColumnUnit = 32;
constexpr int64_t kUnbounded = int64_t{1} << 30;

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

ResourceUse use(std::string name, std::string unit, int64_t taken, int64_t per_cta, int64_t per_sm) {
  ResourceUse use{std::move(name), std::move(unit), taken, per_cta, per_sm, 0, ""};
  if (taken > per_cta)
    use.complaint =
        fmt::format("{}: a CTA takes {} {}, at most {} are allowed", use.name, taken, use.unit, per_cta);
  else
    use.ctas = taken == 0 ? kUnbounded : per_sm / taken;
  return use;
}

ResourceUse register_use(const Target& target, const CtaResources& r, int64_t warps) {
  const int64_t per_warp = round_up(r.registers_per_thread * kWarp, kRegisterUnit);
  // The hardware's check of a launch takes every sub-partition to hold the same number of its warps.
  ResourceUse registers = use("registers", "registers", per_warp * round_up(warps, kSubPartitions),
                              target.registers_per_sm, target.registers_per_sm);
  if (r.registers_per_thread > target.max_registers_per_thread)
    registers.complaint = fmt::format("registers: {} per thread, at most {} are allowed",
                                      r.registers_per_thread, target.max_registers_per_thread);
  if (registers.complaint.empty() && per_warp > 0)
    registers.ctas = target.registers_per_sm / kSubPartitions / per_warp * kSubPartitions / warps;
  else if (!registers.complaint.empty())
    registers.ctas = 0;
  return registers;
}

ResourceUse shared_use(const Target& target, const CtaResources& r) {
  ResourceUse shared =
      use("shared memory", "bytes", r.shared_bytes, target.max_shared_bytes, target.shared_bytes_per_sm);
  if (shared.complaint.empty())
    shared.ctas =
        target.shared_bytes_per_sm / round_up(r.shared_bytes + target.reserved_shared_bytes, kSharedUnit);
  return shared;
}

ResourceUse tensor_memory_use(const Target& target, const CtaResources& r) {
  const int64_t columns =
      r.tensor_memory_columns == 0
          ? 0
          : std::max(kColumnUnit,
                     static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(r.tensor_memory_columns))));
  ResourceUse tensor =
      use("tensor memory", "columns", columns, target.tensor_memory_columns, target.tensor_memory_columns);
  if (columns > 0 && target.tensor_memory_columns == 0)
    tensor.complaint = fmt::format("tensor memory: {} has none", target.name);
  return tensor;
}

const Target& known_target(std::string_view name) {
  const Target* target = find_target(name);
  if (target == nullptr)
    throw LaunchError(Diagnostic{{}, fmt::format("no target is called '{}'", name), {}, ""});
  return *target;
}

}  // namespace

std::string Occupancy::complaints() const {
  std::string text;
  for (const ResourceUse& use : uses)
    if (!use.complaint.empty()) text += (text.empty() ? "" : "\n") + use.complaint;
  return text;
}

Occupancy occupancy(std::string_view target_name, const CtaResources& r) {
  const Target* target = &known_target(target_name);
  if (r.threads < 1 || r.registers_per_thread < 0 || r.shared_bytes < 0 || r.tensor_memory_columns < 0 ||
      r.cluster_ctas < 1)
    throw LaunchError(Diagnostic{
        {}, "a CTA has 1 or more threads, a cluster 1 or more CTAs, and no resource is negative", {}, ""});
  const int64_t warps = (r.threads + kWarp - 1) / kWarp;

  Occupancy result;
  result.uses = {use("threads", "threads", warps * kWarp, target->max_threads, target->max_threads_per_sm),
                 register_use(*target, r, warps), shared_use(*target, r), tensor_memory_use(*target, r),
                 use("CTA slots", "CTAs", 1, 1, target->max_ctas_per_sm)};
  if (r.cluster_ctas > target->max_portable_cluster)
    result.uses.push_back(
        use("cluster", "CTAs", r.cluster_ctas, target->max_portable_cluster, target->max_portable_cluster));
  int64_t ctas = kUnbounded;
  for (const ResourceUse& use : result.uses) ctas = std::min(ctas, use.complaint.empty() ? use.ctas : 0);
  for (const ResourceUse& use : result.uses)
    if (use.ctas == ctas || !use.complaint.empty()) result.bound.push_back(use.name);
  result.ctas_per_sm = ctas;
  result.warps_per_sm = ctas * warps;
  result.fraction =
      static_cast<double>(result.warps_per_sm * kWarp) / static_cast<double>(target->max_threads_per_sm);
  return result;
}

std::vector<std::pair<std::string, int64_t>> occupancy_limits(std::string_view target_name) {
  const Target& t = known_target(target_name);
  return {{"max_threads", t.max_threads},
          {"max_threads_per_sm", t.max_threads_per_sm},
          {"registers_per_sm", t.registers_per_sm},
          {"max_registers_per_thread", t.max_registers_per_thread},
          {"max_shared_bytes", t.max_shared_bytes},
          {"shared_bytes_per_sm", t.shared_bytes_per_sm},
          {"reserved_shared_bytes", t.reserved_shared_bytes},
          {"tensor_memory_columns", t.tensor_memory_columns},
          {"max_ctas_per_sm", t.max_ctas_per_sm}};
}

}  // namespace imbrex

// SPDX-License-Identifier: Apache-2.0
#include "core/target.h"

namespace imbrex {
namespace {

constexpr int64_t kKiB = 1024;

constexpr Target sm80{.name = "sm_80",
                      .sm = 80,
                      .is_specific = false,
                      .max_shared_bytes = 163 * kKiB,
                      .reserved_shared_bytes = 1 * kKiB,
                      .shared_base = 0,
                      .shared_bytes_per_sm = 164 * kKiB,
                      .registers_per_sm = 65536,
                      .max_registers_per_thread = 255,
                      .max_threads = 1024,
                      .max_threads_per_sm = 2048,
                      .max_ctas_per_sm = 32,
                      .max_portable_cluster = 1,
                      .max_cluster = 1,
                      .tensor_memory_columns = 0,
                      .named_barriers = 16,
                      .max_parameter_bytes = 4096};

constexpr Target sm90(std::string_view name, bool is_specific) {
  Target target = sm80;
  target.name = name;
  target.sm = 90;
  target.is_specific = is_specific;
  target.max_shared_bytes = 227 * kKiB;
  target.shared_bytes_per_sm = 228 * kKiB;
  target.shared_base = 1 * kKiB;
  target.max_portable_cluster = 8;
  target.max_cluster = 16;
  return target;
}

constexpr Target sm100(std::string_view name, bool is_specific) {
  Target target = sm90(name, is_specific);
  target.sm = 100;
  target.tensor_memory_columns = is_specific ? 512 : 0;
  return target;
}

constexpr Target kTargets[] = {sm80, sm90("sm_90", false), sm90("sm_90a", true), sm100("sm_100", false),
                               sm100("sm_100a", true)};

}  // namespace

const Target* find_target(std::string_view name) {
  for (const Target& target : kTargets)
    if (target.name == name) return &target;
  return nullptr;
}

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const Target& target : kTargets) names.emplace_back(target.name);
  return names;
}

bool target_has(const Target& target, std::string_view since) {
  if (const Target* first = find_target(since))
    return first->is_specific ? target.is_specific && target.sm == first->sm : target.sm >= first->sm;
  return false;
}

}  // namespace imbrex

// SPDX-License-Identifier: Apache-2.0
// The targets Imbrex compiles for and their limits: the one place these numbers stand.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace imbrex {

struct Target {
  std::string_view name;  // as PTX spells it
  int sm;                 // 80, 90, 100
  bool is_specific;       // the "a" variant, with the instructions of this one generation

  int64_t max_shared_bytes;       // per CTA, after opting in
  int64_t reserved_shared_bytes;  // taken by the system from every CTA's share of the SM
  int64_t shared_base;            // shared-window address of a kernel's first byte; the system's lie below it
  int64_t shared_bytes_per_sm;
  int64_t registers_per_sm;  // 32-bit; also the most one CTA can have
  int64_t max_registers_per_thread;
  int64_t max_threads;  // per CTA
  int64_t max_threads_per_sm;
  int64_t max_ctas_per_sm;
  int64_t max_portable_cluster;   // CTAs per cluster that every GPU of the target grants; 1 without clusters
  int64_t max_cluster;            // CTAs per cluster of a kernel that opts into non-portable sizes
  int64_t tensor_memory_columns;  // 32-bit columns of 128 lanes; 0 where there is none
  int64_t named_barriers;         // per CTA
  int64_t max_parameter_bytes;    // of one kernel
};

/// The target of this name, or null.
const Target* find_target(std::string_view name);
/// Every target's name, oldest first.
std::vector<std::string> target_names();
/// True when `target` has what first appeared in `since`. "sm_90" means that one and every later one;
/// "sm_90a" means instructions that only the "a" variant of that generation has.
bool target_has(const Target& target, std::string_view since);

}  // namespace imbrex

// SPDX-License-Identifier: Apache-2.0
// The targets Imbrex compiles for and their limits: the one place these numbers stand. GPUs, of which many share a
// target, are in gpu_model.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace imbrex {

/// A target's name taken apart. Any that PTX may have, those that Imbrex does not compile for too.
struct TargetName {
  int sm = 0;        ///< 90
  char variant = 0;  ///< 'a': of this one chip, 'f': of its family, 0: of every later chip too

  /// Reads "sm_90a"; nothing when it is not such a name.
  static std::optional<TargetName> parse(std::string_view name);
  /// The number that the chips of a family share: 10 of sm_100 and sm_103, 12 of sm_120 and sm_121.
  int family() const { return sm / 10; }
};

/// True when `target` meets a requirement: "" always; "80" that or later; "90a" exactly that; "90a+" an 'a' or 'f'
/// variant of that or later; "100f" an 'a' or 'f' variant of sm_10x or sm_11x, whose tensor cores are the same; "120f"
/// of sm_12x.
bool meets(TargetName target, std::string_view requirement);

/// Which instructions multiply matrices at full speed.
enum class MatrixUnit : uint8_t { kMma, kWgmma, kTcgen05 };

struct Target {
  std::string_view name;  // as PTX spells it
  int sm;                 // 80, 90, 100
  char variant;           // 'a', 'f' or 0, as in TargetName
  MatrixUnit matrix_unit;

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

  bool is_specific() const { return variant != 0; }
  TargetName parsed() const { return {sm, variant}; }
};

/// The target of this name, or null.
const Target* find_target(std::string_view name);
/// Every target's name, oldest first.
std::vector<std::string> target_names();
/// True when `target` has what first appeared in `since`. "sm_90" means that one and every later one; "sm_90a" means
/// instructions of that generation alone: its 'a' and 'f' variants from there on ("sm_100a" is met by sm_103a).
bool target_has(const Target& target, std::string_view since);

/// True when a GPU whose newest target is `gpu` ("sm_103a") runs code for `code`: its own, plain code of earlier ones
/// ("sm_80"), and code for its family from an earlier member ("sm_100f").
bool runs_code_of(std::string_view gpu, std::string_view code);
/// What a kernel written for `wanted` is compiled for where the GPU's newest target is `gpu`: `wanted` where that fits;
/// the GPU's own target where the GPU has less memory for a CTA, or is another member of the family that `wanted`
/// belongs to. Nothing when the GPU cannot run such a kernel.
std::optional<std::string> target_for(std::string_view wanted, std::string_view gpu);

}  // namespace imbrex

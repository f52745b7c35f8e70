// SPDX-License-Identifier: Apache-2.0
// What of a launch depends on addresses: all that has to be computed anew when a call passes other tensors and the same
// numbers as the one before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codegen/compiled_kernel.h"
#include "runtime/device/backend.h"

namespace imbrex::runtime {

class AddressParts {
 public:
  explicit AddressParts(const codegen::CompiledKernel& kernel);

  /// Brings the results of the host program and the parameter buffer, which were made of other addresses and the same
  /// numbers, up to these arguments. Throws as evaluate_host and pack_params.
  void update(const codegen::CompiledKernel& kernel, std::span<const int64_t> arguments,
              std::span<int64_t> slots, DeviceBackend& device, std::byte* params);

 private:
  struct Map {
    int32_t map, offset;
    bool has_other_extents;  // that depend on an address: made anew
    AddressWord word = AddressWord::kUnknown;
  };
  std::vector<int32_t> steps_;              // of the host program, in order
  std::vector<codegen::ParamPlan> params_;  // addresses, and what steps_ compute
  std::vector<Map> maps_;
};

}  // namespace imbrex::runtime

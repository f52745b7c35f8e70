// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/device_limits.h"

#include "core/target.h"

namespace imbrex {

int64_t shared_bytes_per_cta(const Device& device) {
  constexpr int64_t kLeast = 99 * 1024;  // of all targets
  const Target* target = find_target(device.target());
  return target == nullptr ? kLeast : target->max_shared_bytes;
}

}  // namespace imbrex

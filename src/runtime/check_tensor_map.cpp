// SPDX-License-Identifier: Apache-2.0
#include "runtime/check_tensor_map.h"

#include <fmt/format.h>

#include "imbrex/error.h"

namespace imbrex::runtime {
namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 32;
constexpr int64_t kStrideUnit = 16, kStrideLimit = int64_t{1} << 40;

}  // namespace

void check_tensor_map(const codegen::TensorMapPlan& plan, std::span<const int64_t> slots) {
  const auto slot = [&](int32_t i) { return slots[static_cast<size_t>(i)]; };
  const auto fail = [&](const std::string& message, const std::string& help) {
    Diagnostic diagnostic{plan.where, "TMA copy: " + message, {}, help};
    for (size_t d = 0; d < plan.dim_slots.size(); ++d)
      diagnostic.facts.push_back(
          fmt::format("dimension {}, innermost first: extent {}{}", d, slot(plan.dim_slots[d]),
                      d == 0 ? "" : fmt::format(", stride {} bytes", slot(plan.stride_slots[d - 1]))));
    throw LaunchError(std::move(diagnostic));
  };
  for (int32_t extent : plan.dim_slots)
    if (slot(extent) < 1 || slot(extent) > kMaxExtent)
      fail(fmt::format("an extent of {}; a tensor map takes 1 to 2^32", slot(extent)), "");
  for (int32_t stride : plan.stride_slots) {
    if (slot(stride) % kStrideUnit != 0)
      fail(fmt::format("a stride of {} bytes is not a multiple of {}", slot(stride), kStrideUnit),
           fmt::format("make rows of the tensor multiples of {} elements of {}, padding them in memory",
                       kStrideUnit / plan.dtype.bytes(), plan.dtype.name()));
    if (slot(stride) < 0 || slot(stride) >= kStrideLimit)
      fail(fmt::format("a stride of {} bytes does not lie in 0 ... 2^40", slot(stride)), "");
  }
}

}  // namespace imbrex::runtime

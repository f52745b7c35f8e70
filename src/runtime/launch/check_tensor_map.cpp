// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/check_tensor_map.h"

#include <fmt/format.h>

#include <numeric>

#include "imbrex/core/error.h"

namespace imbrex::runtime {
namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 32;
constexpr int64_t kStrideLimit = int64_t{1} << 40;
constexpr int64_t kStoreUnit = 16;
constexpr int64_t kPaddedExtent = 128;  // multiples of this, the driver requires of rows of padded elements

}  // namespace

void check_tensor_map(const codegen::CompiledKernel& kernel, const codegen::TensorMapPlan& plan,
                      std::span<const int64_t> slots) {
  const auto slot = [&](int32_t i) { return slots[static_cast<size_t>(i)]; };
  const int64_t stride_unit = plan.is_padded ? 32 : 16;
  const auto bytes = [](int64_t bits) {
    return bits % 8 == 0 ? fmt::format("{}", bits / 8) : fmt::format("{:.3}", static_cast<double>(bits) / 8);
  };
  const auto fail = [&](const std::string& message, const std::string& help) {
    const codegen::HostStep& base = kernel.host[static_cast<size_t>(plan.base_slot)];
    const std::string tensor = base.kind == codegen::HostStep::Kind::kParam
                                   ? fmt::format(" of {}", kernel.arguments[static_cast<size_t>(base.a)].name)
                                   : "";
    Diagnostic diagnostic{plan.where, fmt::format("TMA copy{}: {}", tensor, message), {}, help};
    for (size_t d = 0; d < plan.dim_slots.size(); ++d)
      diagnostic.facts.push_back(
          fmt::format("dimension {}, innermost first: extent {}{}", d, slot(plan.dim_slots[d]),
                      d == 0 ? "" : fmt::format(", stride {} bytes", bytes(slot(plan.stride_slots[d - 1])))));
    throw LaunchError(std::move(diagnostic));
  };
  for (int32_t extent : plan.dim_slots)
    if (slot(extent) < 1 || slot(extent) > kMaxExtent)
      fail(fmt::format("an extent of {}; a tensor map takes 1 to 2^32", slot(extent)), "");
  const int64_t inner = slot(plan.dim_slots.front());
  if (plan.is_padded && inner % kPaddedExtent != 0)
    fail(fmt::format("rows of {} elements of {}; they must be multiples of {}", inner, plan.dtype.name(),
                     kPaddedExtent),
         "pad the rows in memory");
  if (plan.dtype.bits() == 4 && inner % 2 != 0)
    fail(fmt::format("rows of {} elements of {}; they must be even", inner, plan.dtype.name()),
         "pad the rows in memory");
  if (plan.is_stored && inner * plan.dtype.bits() % (8 * kStoreUnit) != 0)
    fail(
        fmt::format("rows of {} bytes; stores write multiples of {}, and would overwrite what is behind them",
                    bytes(inner * plan.dtype.bits()), kStoreUnit),
        "use store_global, or give the tensor longer rows");
  for (int32_t stride : plan.stride_slots) {
    if (slot(stride) % (8 * stride_unit) != 0)
      fail(fmt::format("a stride of {} bytes is not a multiple of {}", bytes(slot(stride)), stride_unit),
           fmt::format("give the tensor strides that are multiples of {} elements of {}: a padded copy, or "
                       "load_global "
                       "or copy_async in place of TMA",
                       std::lcm(8 * stride_unit, int64_t{plan.dtype.bits()}) / plan.dtype.bits(),
                       plan.dtype.name()));
    if (slot(stride) < 0 || slot(stride) >= 8 * kStrideLimit)
      fail(fmt::format("a stride of {} bytes does not lie in 0 ... 2^40", bytes(slot(stride))), "");
  }
}

}  // namespace imbrex::runtime

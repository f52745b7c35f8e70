// SPDX-License-Identifier: Apache-2.0
#include "vgpu/tensor_cores/tensor_unit.h"

#include <fmt/format.h>

#include "vgpu/machine/access.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

TensorUnit& tensor_unit(Cta& cta) {
  std::unique_ptr<TensorUnit>& unit = cta.units().tensor;
  if (unit == nullptr) {
    unit = std::make_unique<TensorUnit>();
    unit->queue = cta.cluster().async().make_queue();
  }
  return *unit;
}

bool check_allocated(Cluster& cluster, const Who& who, Cta& cta, uint32_t column, uint32_t columns) {
  const TensorAllocator& allocator = tensor_unit(cta).allocator;
  if (allocator.find(TensorUnit::kOwner, column, columns) != nullptr) return true;
  std::string blocks;
  for (const TensorAllocator::Block& block : allocator.blocks_of(TensorUnit::kOwner))
    blocks +=
        fmt::format("{}[{}, {})", blocks.empty() ? "" : ", ", block.column, block.column + block.columns);
  cluster.report_fatal(
      FindingKind::kTensorMemory, who, column,
      fmt::format("tensor memory columns {} to {} are not inside an allocation of the CTA (it has {})",
                  column, column + columns - 1, blocks.empty() ? "none" : blocks));
  return false;
}

void submit_to_tensor_core(Cta& cta, std::unique_ptr<AsyncOp> op) {
  cta.cluster().async().submit(std::move(op), tensor_unit(cta).queue);
}

bool resolve_pair(Cluster& cluster, const Who& who, Cta& own, int cta_group, CtaPair& pair) {
  if (cta_group == 1) {
    pair = {&own, nullptr};
    return true;
  }
  const auto rank = static_cast<uint32_t>(own.rank());
  pair = {cluster.cta(rank & ~1u), cluster.cta(rank | 1u)};
  if (pair.even != nullptr && pair.odd != nullptr && !pair.even->finished() && !pair.odd->finished())
    return true;
  cluster.report_fatal(FindingKind::kIllegalInstruction, who, 0,
                       pair.odd == nullptr
                           ? fmt::format("cta_group::2: the CTA of rank {} has no peer in its cluster", rank)
                           : fmt::format("cta_group::2: the peer of the CTA of rank {} has exited", rank),
                       pair.odd == nullptr ? "launch with a cluster of an even number of CTAs"
                                           : "end the kernel with a cluster barrier");
  return false;
}

}  // namespace imbrex::vgpu

// SPDX-License-Identifier: Apache-2.0
// What the tcgen05 instructions share: the unit of a CTA, its blocks of tensor memory, CTA pairs.
#pragma once

#include <memory>

#include "vgpu/machine/cluster.h"

namespace imbrex::vgpu {

/// The unit of a CTA, made when first asked for.
TensorUnit& tensor_unit(Cta& cta);

/// Reports columns that are not in one of the CTA's blocks. `what` completes "tensor memory columns 0 to 31:
/// ...".
bool check_allocated(Cluster& cluster, const Who& who, Cta& cta, uint32_t column, uint32_t columns);

/// Submits an operation to the CTA's in-order queue.
void submit_to_tensor_core(Cta& cta, std::unique_ptr<AsyncOp> op);

/// The CTAs an instruction of `cta_group` works in: {own, null}, or {even, odd} of the pair. False after a
/// finding when the pair is not complete.
struct CtaPair {
  Cta* even = nullptr;  // the only one for cta_group::1
  Cta* odd = nullptr;
  Cta& at(uint32_t index) const { return index == 0 ? *even : *odd; }
};
bool resolve_pair(Cluster& cluster, const Who& who, Cta& own, int cta_group, CtaPair& pair);

}  // namespace imbrex::vgpu

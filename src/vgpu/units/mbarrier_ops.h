// SPDX-License-Identifier: Apache-2.0
// The one way to an mbarrier object for threads and units: finds it, applies the operation, reports misuse,
// lets waiters go on.
#pragma once

#include <cstdint>

#include "vgpu/machine/access.h"
#include "vgpu/memory/mbarrier.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

/// A live object and whose it is.
struct MbarrierRef {
  Cta* cta = nullptr;
  uint32_t offset = 0;
  Mbarrier* object = nullptr;
};

/// The object at an address, or one with a null object after a finding. `own_only`: another CTA's is refused.
MbarrierRef find_mbarrier(Cluster& cluster, const Who& who, Space space, uint64_t address, bool own_only);
/// The same at an offset of a CTA's shared memory (multicast, tcgen05.commit, ...).
MbarrierRef find_mbarrier_at(Cluster& cluster, const Who& who, Cta& owner, uint32_t offset);

/// Applies `operation` (Mbarrier& -> MbarrierOutcome) and reports what it says. False when it was illegal.
template <class Operation>
bool apply(Cluster& cluster, const Who& who, const MbarrierRef& ref, Operation&& operation);

/// Deliveries of the units.
bool deliver_bytes(Cluster& cluster, const Who& who, Cta& owner, uint32_t offset, int64_t bytes);
bool deliver_arrival(Cluster& cluster, const Who& who, Cta& owner, uint32_t offset);

/// Reports an outcome's fault, if any; true when there is none.
bool accept(Cluster& cluster, const Who& who, const MbarrierRef& ref, MbarrierOutcome outcome);

template <class Operation>
bool apply(Cluster& cluster, const Who& who, const MbarrierRef& ref, Operation&& operation) {
  return ref.object != nullptr && accept(cluster, who, ref, operation(*ref.object));
}

}  // namespace imbrex::vgpu

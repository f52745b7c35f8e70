// SPDX-License-Identifier: Apache-2.0
#include "vgpu/units.h"

#include <fmt/format.h>

#include "vgpu/cluster.h"

namespace imbrex::vgpu {

void check_cta_exit(Cta& cta) {
  Cluster& cluster = cta.cluster();
  if (!cluster.launch().options.checks.async_lifetime) return;
  cluster.async().for_each([&](const AsyncOp& op) {
    if (op.who.cta != &cta) return;
    if (Finding* f = cluster.log().open(FindingKind::kAsyncInFlight, op.who)) {
      f->message = fmt::format("the CTA exits while {} is in flight", op.describe());
      f->hint = "wait for it before the kernel ends";
    }
  });
}

}  // namespace imbrex::vgpu

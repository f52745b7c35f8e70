// SPDX-License-Identifier: Apache-2.0
// State of the asynchronous units: what a CTA and a cluster own beside warps and shared memory.
#pragma once

namespace imbrex::vgpu {

class Cta;
class Cluster;

/// Per CTA: mbarrier objects, cp.async and bulk groups, tensor memory, ...
struct CtaUnits {};

/// Per cluster: the cluster barrier, cluster launch control, ...
struct ClusterUnits {};

/// Called when the last thread of a CTA has exited: reports what is still in flight or was not given back.
void check_cta_exit(Cta& cta);

}  // namespace imbrex::vgpu

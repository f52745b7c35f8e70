// SPDX-License-Identifier: Apache-2.0
// CTAs of a cluster working together (sm_90).
#pragma once

#include "imbrex/lang/launch.h"
#include "imbrex/lang/mbarrier.h"
#include "imbrex/lang/tensor.h"

namespace imbrex {

/// Barrier over all threads of the cluster; every CTA executes it whole. Orders memory accesses as sync()
/// does. A CTA must not end while others may touch its shared memory, so kernels of clusters usually end with
/// one. [PTX: barrier.cluster]
void cluster_sync(SourceLocation where = SourceLocation::current());

/// The same barrier in the CTA of that rank of the cluster: for arrive(), arrive_and_expect_tx(), expect_tx()
/// and tma::global_to_shared() of a pair. Only the CTA that holds a barrier waits for it. [PTX: mapa]
Barrier remote_barrier(const Barrier& barrier, const ScalarArg& rank,
                       SourceLocation where = SourceLocation::current());

/// load_shared() and store_shared() of the same tensor or view in the CTA of that rank of the cluster, which
/// may be this one. That CTA must have started, which a cluster_sync() tells, and must not end before. To
/// hand over what was stored, every storing thread arrives at a remote_barrier() that those who read wait for
/// with Scope::kCluster, or the cluster meets in a cluster_sync(). [PTX: ld.shared::cluster,
/// st.shared::cluster]
RegisterValue load_remote_shared(const SharedTensor& src, const ScalarArg& rank,
                                 SourceLocation where = SourceLocation::current());
void store_remote_shared(const SharedTensor& dst, const TileArg& value, const ScalarArg& rank,
                         SourceLocation where = SourceLocation::current());

}  // namespace imbrex

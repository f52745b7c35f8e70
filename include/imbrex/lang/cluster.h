// SPDX-License-Identifier: Apache-2.0
// CTAs of a cluster working together (sm_90).
#pragma once

#include "imbrex/lang/launch.h"
#include "imbrex/lang/mbarrier.h"
#include "imbrex/lang/tensor.h"

namespace imbrex {

/// Barrier over all threads of the cluster: all threads of every CTA execute it. Orders memory accesses as
/// sync() does. A CTA must not exit while others may access its shared memory, so kernels with clusters
/// usually end with one. [PTX: barrier.cluster]
void cluster_sync(SourceLocation where = SourceLocation::current());

/// The barrier at the same offset in the CTA of that rank in the cluster: for arrive(),
/// arrive_and_expect_tx(), expect_tx() and tma::global_to_shared() with cta_group 2. Only the CTA that holds
/// a barrier can wait for it.
/// [PTX: mapa]
Barrier remote_barrier(const Barrier& barrier, const ScalarArg& rank,
                       SourceLocation where = SourceLocation::current());

/// arrive_and_expect_tx() on the barrier at the same offset in every CTA of the cluster that the mask names, a bit each,
/// which may be a run-time number: for what a multicast copy brings. One thread.
/// [PTX: mbarrier.arrive.expect_tx.shared::cluster]
void arrive_and_expect_tx_multicast(const Barrier& barrier, const ScalarArg& bytes, const ScalarArg& mask,
                                    const mbarrier::ExpectOptions& options = {},
                                    SourceLocation where = SourceLocation::current());

/// load_shared() and store_shared() of the same tensor or view in the CTA of that rank in the cluster, which
/// may be this one (distributed shared memory). That CTA must have started, which a cluster_sync()
/// guarantees, and must not have exited. To publish what was stored, every storing thread arrives at a
/// remote_barrier() that the readers wait for with Scope::kCluster, or the cluster executes a cluster_sync().
/// Any thread group; shapes and types must be equal. [PTX: ld.shared::cluster, st.shared::cluster]
RegisterValue load_remote_shared(const SharedTensor& src, const ScalarArg& rank,
                                 SourceLocation where = SourceLocation::current());
void store_remote_shared(const SharedTensor& dst, const TileArg& value, const ScalarArg& rank,
                         SourceLocation where = SourceLocation::current());

}  // namespace imbrex

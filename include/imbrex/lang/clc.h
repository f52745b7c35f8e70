// SPDX-License-Identifier: Apache-2.0
// Cluster launch control (sm_100a): a running cluster takes over the work of one that has not been launched.
//
// The grid has one cluster per tile. A cluster that has finished its tile requests another by try_cancel();
// the response, 16 bytes in shared memory, says whether a cluster was cancelled, and which. So work goes to
// whoever is free, and every tile is computed once: each cluster is either launched or cancelled by one
// other.
// [PTX: Parallel Synchronization and Communication Instructions: clusterlaunchcontrol]
#pragma once

#include "imbrex/lang/mbarrier.h"
#include "imbrex/lang/tensor.h"

namespace imbrex::clc {

/// A response: its shape as an int32 tensor in shared memory, and its bytes, which the barrier expects.
inline const Shape kResponseShape = {4};
inline constexpr int64_t kResponseBytes = 16;

struct CancelOptions {
  bool multicast = false;  ///< to all CTAs of the cluster, at the same offsets in shared memory
};
/// Requests the work of a cluster that has not been launched. The response completes kResponseBytes on the
/// barrier, which every receiving CTA expects by arrive_and_expect_tx(). One warp (its elected thread
/// requests) or one thread executes it; with multicast, in one CTA of the cluster. After a response that
/// nothing was cancelled, no further request may be made. The response is written through the async proxy:
/// all readers of the previous one execute fence::proxy_async() and arrive before the next request. sm_100a.
/// [PTX: clusterlaunchcontrol.try_cancel]
void try_cancel(const SharedTensor& response, const Barrier& barrier, const CancelOptions& options = {},
                SourceLocation where = SourceLocation::current());

/// The indices are block_idx of the first CTA of the cancelled cluster, 0 when there is none.
struct Response {
  Expr is_canceled;
  Expr x, y, z;
};
/// Reads a response that has arrived, that is after a wait() for its barrier. Any thread; sm_100a.
/// [PTX: clusterlaunchcontrol.query_cancel]
Response query(const SharedTensor& response, SourceLocation where = SourceLocation::current());

}  // namespace imbrex::clc

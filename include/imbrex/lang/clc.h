// SPDX-License-Identifier: Apache-2.0
// Cluster launch control (sm_100a): a running cluster takes over the work of one that has not been launched.
//
// The grid has a cluster for every tile. A cluster that is done with its tile asks for another by
// try_cancel(); the response, 16 bytes in shared memory, says whether a cluster was cancelled and which. Work
// is shared out as it gets done, and nothing is left over: every cluster either runs or is handed out once.
// [PTX: Parallel Synchronization and Communication Instructions: clusterlaunchcontrol]
#pragma once

#include "imbrex/lang/mbarrier.h"
#include "imbrex/lang/tensor.h"

namespace imbrex::clc {

/// What a response takes: the shape of an int32 tensor in shared memory, and its bytes for the barrier.
inline const Shape kResponseShape = {4};
inline constexpr int64_t kResponseBytes = 16;

struct CancelOptions {
  bool multicast = false;  ///< to all CTAs of the cluster, at the same places
};
/// Asks for a cluster's work. The response arrives at the barrier with its bytes, which each CTA announces
/// itself. One warp (its elected thread asks) or one thread executes it, with multicast in one CTA of the
/// cluster. After a response that says no, no further request may be made. The response is written through
/// the async proxy: readers of the last one execute fence::proxy_async() and arrive before the next request.
/// [PTX: clusterlaunchcontrol.try_cancel]
void try_cancel(const SharedTensor& response, const Barrier& barrier, const CancelOptions& options = {},
                SourceLocation where = SourceLocation::current());

/// The indices are block_idx of the first CTA of the cancelled cluster, 0 when there is none.
struct Response {
  Expr is_canceled;
  Expr x, y, z;
};
/// Reads a response that has arrived. Any thread. [PTX: clusterlaunchcontrol.query_cancel]
Response query(const SharedTensor& response, SourceLocation where = SourceLocation::current());

}  // namespace imbrex::clc

// SPDX-License-Identifier: Apache-2.0
// A node of a graph whose type is said by a number: each type has a function of its own, which adds it.
#include "cuda_host/abi/driver_functions.h"
#include "cuda_host/driver/answer.h"

using namespace imbrex::cuda;

// What data of edges says, such as that a kernel begins before the one in front of it has ended, only allows more.
CUDA_API cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, const void*,
                           size_t count, CUgraphNodeParams* parameters) {
  enum Type { kKernel, kCopy, kFill, kHost, kChild, kEmpty, kWait, kRecord };
  enum { kAllocate = 10, kFree = 11, kConditional = 13 };
  if (parameters == nullptr) return answer("cuGraphAddNode", [&] { not_null(parameters, "parameters"); });
  CUgraphNodeParams& p = *parameters;
  switch (p.type) {
    case kKernel:
      return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &p.kernel);
    case kCopy:
      return cuGraphAddMemcpyNode(node, graph, dependencies, count, &p.memcpy.copy, p.memcpy.context);
    case kFill:
      return cuGraphAddMemsetNode(node, graph, dependencies, count, &p.memset, nullptr);
    case kHost:
      return cuGraphAddHostNode(node, graph, dependencies, count, &p.host);
    case kChild:
      return cuGraphAddChildGraphNode(node, graph, dependencies, count, p.graph);
    case kEmpty:
      return cuGraphAddEmptyNode(node, graph, dependencies, count);
    case kWait:
      return cuGraphAddEventWaitNode(node, graph, dependencies, count, p.event);
    case kRecord:
      return cuGraphAddEventRecordNode(node, graph, dependencies, count, p.event);
    case kAllocate:
      return cuGraphAddMemAllocNode(node, graph, dependencies, count, &p.memory);
    case kFree:
      return cuGraphAddMemFreeNode(node, graph, dependencies, count, p.freed);
    case kConditional:
      return not_supported("cuGraphAddNode", "conditional nodes of graphs");
    default:
      return not_supported("cuGraphAddNode",
                           "nodes of this type: semaphores of other APIs, batches of memory operations");
  }
}
CUDA_API cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                        CUgraphNodeParams* parameters) {
  return cuGraphAddNode_v2(node, graph, dependencies, nullptr, count, parameters);
}

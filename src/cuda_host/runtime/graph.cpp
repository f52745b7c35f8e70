// SPDX-License-Identifier: Apache-2.0
// Graphs: the driver's. Their nodes are in graph_nodes.cpp.
#include "cuda_host/runtime/state.h"

using namespace imbrex::cudart;
using namespace imbrex::cuda;

CUDART_API cudaGraphCreate(CUgraph* graph, unsigned flags) {
  return call([&] { return cuGraphCreate(graph, flags); });
}
CUDART_API cudaGraphDestroy(CUgraph graph) {
  return call([&] { return cuGraphDestroy(graph); });
}
CUDART_API cudaGraphClone(CUgraph* clone, CUgraph original) {
  return call([&] { return cuGraphClone(clone, original); });
}
CUDART_API cudaGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return call([&] { return cuGraphGetNodes(graph, nodes, count); });
}
CUDART_API cudaGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return call([&] { return cuGraphGetRootNodes(graph, nodes, count); });
}
CUDART_API cudaGraphNodeGetType(CUgraphNode node, int* type) {
  return call([&] { return cuGraphNodeGetType(node, type); });
}
CUDART_API cudaGraphDestroyNode(CUgraphNode node) {
  return call([&] { return cuGraphDestroyNode(node); });
}
// From CUDA 13 on with data about each edge, which no kernel here reads.
#if IMBREX_CUDART_MAJOR >= 13
#define EDGE_DATA(type) type,
#else
#define EDGE_DATA(type)
#endif
CUDART_API cudaGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                    EDGE_DATA(const void*) size_t count) {
  return call([&] { return cuGraphAddDependencies(graph, from, to, count); });
}
CUDART_API cudaGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                       EDGE_DATA(const void*) size_t count) {
  return call([&] { return cuGraphRemoveDependencies(graph, from, to, count); });
}
CUDART_API cudaGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                             EDGE_DATA(void*) size_t* count) {
  return call([&] { return cuGraphGetEdges(graph, from, to, count); });
}
CUDART_API cudaGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* dependencies,
                                        EDGE_DATA(void*) size_t* count) {
  return call([&] { return cuGraphNodeGetDependencies(node, dependencies, count); });
}
CUDART_API cudaGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* dependents,
                                          EDGE_DATA(void*) size_t* count) {
  return call([&] { return cuGraphNodeGetDependentNodes(node, dependents, count); });
}
// In CUDA 12 as in 13; the five-parameter form of CUDA 11 went with that version.
CUDART_API cudaGraphInstantiate(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return call([&] { return cuGraphInstantiateWithFlags(exec, graph, flags); });
}
CUDART_API cudaGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return call([&] { return cuGraphInstantiateWithFlags(exec, graph, flags); });
}
CUDART_API cudaGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                          CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  return call([&] { return cuGraphInstantiateWithParams(exec, graph, parameters); });
}
CUDART_API cudaGraphExecGetFlags(CUgraphExec exec, unsigned long long* flags) {
  return call([&] { return cuGraphExecGetFlags(exec, flags); });
}
CUDART_API cudaGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  return call([&] { return cuGraphExecUpdate_v2(exec, graph, info); });
}
CUDART_API cudaGraphExecDestroy(CUgraphExec exec) {
  return call([&] { return cuGraphExecDestroy(exec); });
}
CUDART_API cudaDeviceGraphMemTrim(int device) {
  return call([&] { return cuDeviceGraphMemTrim(device); });
}
CUDART_API cudaGraphUpload(CUgraphExec exec, CUstream stream) {
  return call([&] { return cuGraphUpload(exec, stream); });
}
CUDART_API cudaGraphLaunch(CUgraphExec exec, CUstream stream) {
  return call([&] { return cuGraphLaunch(exec, stream); });
}
CUDART_API cudaGraphDebugDotPrint(CUgraph graph, const char* path, unsigned flags) {
  return call([&] { return cuGraphDebugDotPrint(graph, path, flags); });
}

// What a graph keeps alive.
CUDART_API cudaUserObjectCreate(CUuserObject* object, void* data, CUhostFn destroy, unsigned references,
                                unsigned flags) {
  return call([&] { return cuUserObjectCreate(object, data, destroy, references, flags); });
}
CUDART_API cudaUserObjectRetain(CUuserObject object, unsigned count) {
  return call([&] { return cuUserObjectRetain(object, count); });
}
CUDART_API cudaUserObjectRelease(CUuserObject object, unsigned count) {
  return call([&] { return cuUserObjectRelease(object, count); });
}
CUDART_API cudaGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags) {
  return call([&] { return cuGraphRetainUserObject(graph, object, count, flags); });
}
CUDART_API cudaGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count) {
  return call([&] { return cuGraphReleaseUserObject(graph, object, count); });
}

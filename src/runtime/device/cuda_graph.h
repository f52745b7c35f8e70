// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/driver/context_scope.h"

namespace imbrex::runtime {

/// A graph of the CUDA driver, ready to be launched.
class CudaGraph : public DeviceGraph {
 public:
  /// Takes the graph over, and makes it ready. DeviceError.
  CudaGraph(const CudaDriver& driver, CUcontext context, CUgraph graph)
      : driver_(driver), context_(context), graph_(graph) {
    const CUresult result = driver_.cuGraphInstantiate(&executable_, graph_, 0);
    if (result != 0) driver_.cuGraphDestroy(graph_);
    driver_.check(result, "making a CUDA graph ready");
  }
  ~CudaGraph() override {
    try {
      const ContextScope scope(driver_, context_);
      driver_.cuGraphExecDestroy(executable_);
      driver_.cuGraphDestroy(graph_);
    } catch (const Error&) {
      // The context is gone, and the graph with it.
    }
  }
  LaunchReport launch(CUstream_st* stream) override {
    const ContextScope scope(driver_, context_);
    driver_.check(driver_.cuGraphLaunch(executable_, stream), "launch of a CUDA graph");
    return {};
  }

 private:
  const CudaDriver& driver_;
  CUcontext context_;
  CUgraph graph_;
  CUgraphExec executable_ = nullptr;
};

}  // namespace imbrex::runtime

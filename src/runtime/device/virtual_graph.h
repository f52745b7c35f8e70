// SPDX-License-Identifier: Apache-2.0
// Graphs of the virtual GPU: the calls on one stream, kept to be made again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/device/backend.h"

namespace imbrex::runtime {

/// The calls recorded so far on a stream that is being captured.
struct VirtualCapture {
  /// Makes a recorded call, on whichever stream the graph is launched on.
  using Call = std::function<LaunchReport(CUstream_st*)>;
  std::vector<Call> calls;
  std::vector<uint64_t> memory;  // of workspaces: the graph's
  std::thread::id thread;        // that may not allocate meanwhile
  std::string spoiled;           // why there will be no graph; "" while there may be one
};

class VirtualGraph : public DeviceGraph {
 public:
  VirtualGraph(DeviceBackend& device, VirtualCapture capture)
      : device_(device), capture_(std::move(capture)), ended_(device.create_event()) {}
  ~VirtualGraph() override {
    for (uint64_t address : capture_.memory) device_.free(address);
  }
  LaunchReport launch(CUstream_st* stream) override {
    if (is_launched_) ended_->hold(stream);
    LaunchReport all;
    all.is_virtual = all.virtual_report.completed = true;
    for (const VirtualCapture::Call& call : capture_.calls) {
      LaunchReport report = call(stream);
      all.milliseconds += report.milliseconds;
      all.virtual_report.completed &= report.virtual_report.completed;
      all.virtual_report.printf_output += report.virtual_report.printf_output;
      for (vgpu::Finding& finding : report.virtual_report.findings)
        all.virtual_report.findings.push_back(std::move(finding));
    }
    ended_->record(stream);
    is_launched_ = true;
    return all;
  }

 private:
  DeviceBackend& device_;
  VirtualCapture capture_;
  std::unique_ptr<DeviceEvent> ended_;  // behind the last launch
  bool is_launched_ = false;
};

}  // namespace imbrex::runtime

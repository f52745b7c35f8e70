// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/workspace.h"

#include <fmt/format.h>

#include <algorithm>

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/device/stream_handle.h"

namespace imbrex {

using runtime::ScratchPool;

struct Workspace::State {
  Device device;
  Stream stream;  // which lives until the memory is given back
  runtime::CUstream_st* handle = nullptr;
  uint64_t stream_number = 0;  // 0 in a graph
  ScratchPool::Block block;
  int64_t bytes = 0;
  bool is_of_graph = false, is_left_zero = false;
  SourceLocation where;

  ~State() {
    runtime::DeviceBackend& backend = device.backend();
    if (is_of_graph) {
      backend.free_in_capture(block.address, handle);
    } else {
      backend.scratch_given_back(block.address, block.bytes, {handle, where});
      backend.scratch().give_back(stream_number, is_left_zero, block);
    }
  }
};

Workspace Workspace::on(const Stream& stream, const Device& device, int64_t bytes, Contents contents,
                        SourceLocation where) {
  if (bytes < 0)
    throw LaunchError(
        Diagnostic{where, fmt::format("Workspace::on: {} bytes", bytes), {}, "a size is 0 or more"});
  runtime::DeviceBackend& backend = device.backend();
  runtime::CUstream_st* const handle = runtime::handle_on(device, stream, "Workspace::on");
  const bool is_of_graph = backend.is_capturing(handle);
  // The driver does not tell the number of a stream that is being captured.
  const uint64_t number = is_of_graph ? 0 : backend.number_of_stream(handle);
  const int64_t size = std::max<int64_t>(bytes, 1);
  const bool is_left_zero = contents == Contents::kLeftZero;
  const ScratchPool::Block block = is_of_graph
                                       ? ScratchPool::Block{backend.allocate_in_capture(size, handle), size}
                                       : backend.scratch().take(backend, number, is_left_zero, size);
  Workspace workspace;
  workspace.state_ = std::shared_ptr<State>(
      new State{device, stream, handle, number, block, bytes, is_of_graph, is_left_zero, where});
  if (!is_left_zero || block.is_new) backend.scratch_taken(block.address, block.bytes, {handle, where});
  if (contents == Contents::kZero || (is_left_zero && block.is_new))
    backend.start_fill(block.address, 0, is_left_zero ? block.bytes : size, {handle, where});
  return workspace;
}

uint64_t Workspace::address() const { return state_ ? state_->block.address : 0; }
int64_t Workspace::bytes() const { return state_ ? state_->bytes : 0; }

DeviceTensor Workspace::tensor(DataType dtype, std::vector<int64_t> shape) const {
  if (!state_)
    throw LaunchError(Diagnostic{{}, "Workspace::tensor: it has no memory", {}, "take one by Workspace::on"});
  // Not looked up: the driver does not know memory of a capture before its graph runs.
  DeviceTensor tensor = DeviceTensor::of_known_memory(state_->device, address(), dtype, std::move(shape));
  if (tensor.bytes() > bytes())
    throw LaunchError(Diagnostic{
        {},
        fmt::format("Workspace::tensor: the tensor has {} bytes, the workspace {}", tensor.bytes(), bytes()),
        {},
        "take a larger workspace"});
  return tensor;
}

}  // namespace imbrex

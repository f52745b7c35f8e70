// SPDX-License-Identifier: Apache-2.0
// Tensors with strides in memory that surrounds them, for tests.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "imbrex/runtime/device_tensor.h"

namespace imbrex::testing {

/// How a tensor lies in memory.
struct Lie {
  std::vector<int64_t> order;  ///< dimensions from the longest stride to the shortest; none: as in the shape
  int64_t gap = 0;             ///< elements between neighbours of each dimension but the innermost
  int64_t first = 0;           ///< elements before it
  int64_t step = 1;            ///< stride of the innermost dimension
};

/// A tensor of random numbers, and the memory around it.
struct StridedMemory {
  StridedMemory(const Device& device, DataType dtype, std::vector<int64_t> shape, uint64_t seed,
                const Lie& lie = {}) {
    std::vector<int64_t> order = lie.order, strides(shape.size());
    if (order.empty())
      for (size_t d = 0; d < shape.size(); ++d) order.push_back(static_cast<int64_t>(d));
    int64_t stride = lie.step;
    for (size_t i = order.size(); i-- > 0;) {
      strides[order[i]] = stride;
      stride = stride * shape[order[i]] + lie.gap;
    }
    whole = DeviceTensor::random(device, dtype, {lie.first + stride + 16}, seed);
    before = whole.to_host();
    tensor = DeviceTensor::view(device, whole.address() + static_cast<uint64_t>(lie.first * dtype.bytes()),
                                dtype, std::move(shape), strides);
  }
  std::vector<double> values() const { return tensor.to_host().to_doubles(); }

  /// Nothing but the tensor's elements was written.
  void expect_surroundings_untouched() const {
    std::set<int64_t> own{0};
    for (size_t d = 0; d < tensor.shape().size(); ++d) {
      std::set<int64_t> next;
      for (int64_t at : own)
        for (int64_t i = 0; i < tensor.shape()[d]; ++i) next.insert(at + i * tensor.strides()[d]);
      own = std::move(next);
    }
    const HostTensor now = whole.to_host();
    const int64_t first = static_cast<int64_t>(tensor.address() - whole.address()) / tensor.dtype().bytes();
    for (int64_t i = 0; i < now.elements(); ++i) {
      if (own.contains(i - first)) continue;
      ASSERT_EQ(now.get(i), before.get(i)) << "element " << i << " of the memory";
    }
  }

  DeviceTensor whole, tensor;
  HostTensor before;
};

}  // namespace imbrex::testing

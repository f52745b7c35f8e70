// SPDX-License-Identifier: Apache-2.0
// Random tensors that are cheap to make, and that each rank knows of every other.
#pragma once

#include <algorithm>
#include <cstring>

#include "imbrex/runtime.h"

namespace imbrex::parallel {

/// A block of normal numbers over and over, from another place for each seed.
class Numbers {
 public:
  explicit Numbers(DataType dtype = bfloat16) : block_(HostTensor::random(dtype, {kLength}, 1)) {}
  double get(int64_t seed, int64_t i) const { return block_.get((i + seed * kStep) % kLength); }
  /// A dense tensor of this type.
  void fill(const DeviceTensor& t, int64_t seed) const {
    const int64_t bits = block_.dtype().bits(), count = t.bytes() * 8 / bits;
    const auto bytes = [&](int64_t elements) { return static_cast<size_t>(elements * bits / 8); };
    for (int64_t i = 0; i < count;) {
      const int64_t from = (i + seed * kStep) % kLength, size = std::min(kLength - from, count - i);
      HostTensor part(block_.dtype(), {size});
      std::memcpy(part.bytes().data(), block_.bytes().data() + bytes(from), bytes(size));
      DeviceTensor::view(t.device(), t.address() + bytes(i), block_.dtype(), {size}).copy_from(part);
      i += size;
    }
  }

 private:
  static constexpr int64_t kLength = 4'000'037, kStep = 777'777;
  HostTensor block_;
};

}  // namespace imbrex::parallel

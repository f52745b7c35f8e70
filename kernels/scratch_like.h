// SPDX-License-Identifier: Apache-2.0
// Memory for copies of tensors that kernels cannot use as they lie.
#pragma once

#include <vector>

#include "imbrex/runtime/workspace.h"

namespace imbrex {

/// A dense tensor of t's type and shape, in the stream's order, for as long as what is added to `held` is.
inline DeviceTensor scratch_like(const DeviceTensor& t, const Stream& stream, std::vector<Workspace>& held) {
  int64_t bytes = t.dtype().bytes();
  for (int64_t extent : t.shape()) bytes *= extent;
  held.push_back(Workspace::on(stream, t.device(), bytes));
  return held.back().tensor(t.dtype(), t.shape());
}

}  // namespace imbrex

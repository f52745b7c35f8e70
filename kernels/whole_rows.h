// SPDX-License-Identifier: Apache-2.0
// Operands of products whose kernels take k as a multiple of 16 bytes.
#pragma once

#include <vector>

#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/stream.h"
#include "imbrex/runtime/workspace.h"
#include "repacker.h"

namespace imbrex {

/// Operands of one call, [rows, k] or several of them, with rows that begin and end at multiples of 16 bytes: as they are, or
/// copied with zeros behind them, which add nothing to a product.
class WholeRows {
 public:
  /// With `is_launched` false what copies is only compiled.
  WholeRows(const Device& device, const Stream& stream, bool is_launched = true)
      : stream_(stream), repacker_(device, stream, is_launched) {}

  /// `t`, if it is dense and its rows are whole, else a dense copy, which copy() makes in the stream's order and which is valid
  /// for as long as this object. k of the result is that of t, rounded up.
  DeviceTensor operator()(const DeviceTensor& t);
  /// Makes the copies that were asked for. Of the first launch in which something was found, if any.
  LaunchReport copy() { return repacker_.copy(); }

 private:
  const Stream& stream_;
  Repacker repacker_;
  std::vector<Workspace> held_;
};

}  // namespace imbrex

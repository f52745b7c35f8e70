// SPDX-License-Identifier: Apache-2.0
// error: a Ptr parameter takes a DeviceTensor or a device address
#include "imbrex/lang.h"
#include "imbrex/runtime/kernel.h"

struct Scale {
  void operator()(imbrex::Int32, imbrex::Ptr<imbrex::float32>) const {}
};
void launch(imbrex::Kernel<Scale>& scale, float* x) { scale(100, x); }

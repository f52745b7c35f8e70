// SPDX-License-Identifier: Apache-2.0
// error: a run-time scalar parameter takes a C.. number
#include "imbrex/lang.h"
#include "imbrex/runtime/kernel.h"

struct Scale {
  void operator()(imbrex::Int32, imbrex::Ptr<imbrex::float32>) const {}
};
void launch(imbrex::Kernel<Scale>& scale, imbrex::DeviceTensor x) { scale(x, x); }

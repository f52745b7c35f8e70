// SPDX-License-Identifier: Apache-2.0
// error: the kernel's operator.. takes another number of arguments
#include "imbrex/lang.h"
#include "imbrex/runtime/kernel.h"

struct Scale {
  void operator()(imbrex::Int32, imbrex::Ptr<imbrex::float32>) const {}
};
void launch(imbrex::Kernel<Scale>& scale) { scale(100); }

// SPDX-License-Identifier: Apache-2.0
// error: .*arguments.. must return std::tie
#include <tuple>

#include "imbrex/lang.h"
#include "imbrex/runtime/kernel.h"

struct Scale {
  void operator()(imbrex::Int32, imbrex::Float32) const {}
};
struct Arguments {
  int n;
  float factor;
  auto arguments() const { return std::tuple(n, factor); }
};
void launch(imbrex::Kernel<Scale>& scale) { scale(Arguments{100, 0.5f}); }

// SPDX-License-Identifier: Apache-2.0
// error: none
// The same constructs, written right: shows that the others fail for the reason they state.
#include "imbrex/lang.h"
using namespace imbrex;

struct Kernel {
  int block = 8;
  void operator()(Int32 m, int n, Ptr<float16> p) const {
    if (auto arm = when(m == 1)) sync();
    Int32 x = m + 1;
    x = m + 2;
    x += select(m == 1, 2, 3);
    RegisterTensor t = zeros(float32, {8});
    t = t + 1;
    t = register_tensor(int32, {8}, [](auto i) { return i; });
    if (auto arm = when(any(t > 1))) sync();
    Int32 y = t.item({3});
    store_global(global_view(p, {m, n}), t.to(float16), {x, y});
  }
};
const KernelEntry& entry = kernel_entry<Kernel>();
auto space = Space<Kernel>().choose<&Kernel::block>({8, 16});

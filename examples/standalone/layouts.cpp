// SPDX-License-Identifier: Apache-2.0
// Layouts of one's own: a matrix is loaded row by row and stored column by column, and moved in between by relayout().
#include <cstdio>

#include "imbrex/imbrex.h"

using namespace imbrex;
using layout::Layout;

// [kernel]
/// y [n, m] = x [m, n] transposed, float32, in tiles of 32 x 32 of a warp each.
struct TransposedByLayouts {
  void operator()(Int32 m, Int32 n, Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
    grid(cdiv(m, 32), cdiv(n, 32));
    warps(1);
    Int32 row = 32 * block_idx.x, column = 32 * block_idx.y;
    // Lane t has column t of x, later column t of its transpose: what is next to it in memory.
    const Layout by_columns = layout::local({32, 1}) * layout::spatial({1, 32});
    auto x = load_global(global_view(x_ptr, {m, n}), {row, column}, {32, 32});
    annotate_layout(x, by_columns);
    auto turned = relayout(x, by_columns.transpose());
    store_global(global_view(y_ptr, {n, m}), turned.transpose(), {column, row});
  }
};
// [kernel]

int main() {
  // 4 x 2 threads of 2 x 4 elements each: composed, read back, taken apart.
  const Layout tile = layout::spatial({4, 2}) * layout::local({2, 4});
  std::printf("%s\n", tile.grid().c_str());
  const bool is_itself = Layout::parse(tile.to_string()) == tile && tile.threads() == 8 &&
                         tile.registers() == 8 && tile.is_bijective() &&
                         tile.reduce(1).shape() == layout::Shape{8} &&
                         compose(layout::spatial({4, 2}), layout::local({2, 4})) == tile;

  const int64_t m = 100, n = 77;
  Device device = Device::open("auto", kernel_target<TransposedByLayouts>());
  DeviceTensor x = DeviceTensor::random(device, float32, {m, n}, 1),
               y = DeviceTensor::empty(device, float32, {n, m});
  y.poison();
  Kernel<TransposedByLayouts> transpose({}, device);
  transpose(m, n, x, y).expect_clean();
  const HostTensor from = x.to_host(), to = y.to_host();
  int wrong = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) wrong += to.get(j * m + i) != from.get(i * n + j);
  std::printf("%d of %lld elements are wrong\n", wrong, static_cast<long long>(m * n));
  return is_itself && wrong == 0 ? 0 : 1;
}

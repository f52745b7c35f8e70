// SPDX-License-Identifier: Apache-2.0
// y = a x + y: a kernel, a device, a launch, a check.
#include <cmath>
#include <cstdio>

#include "imbrex/imbrex.h"

using namespace imbrex;

// [readme-kernel]
struct Saxpy {
  int block = 1024;  // elements per CTA

  void operator()(Int32 n, Float32 a, Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
    grid(cdiv(n, block));
    warps(4);
    Int32 offset = block * block_idx.x;

    auto g_x = global_view(x_ptr, {n});
    auto g_y = global_view(y_ptr, {n});
    auto x = load_global(g_x, {offset}, {block});  // a tile in registers; beyond n it is 0
    auto y = load_global(g_y, {offset}, {block});
    store_global(g_y, a * x + y, {offset});  // beyond n nothing is stored
  }
};
// [readme-kernel]

int main() {
  const int n = 100003;
  Device device = Device::open("auto", kernel_target<Saxpy>());
  DeviceTensor x = DeviceTensor::random(device, float32, {n}, 1),
               y = DeviceTensor::random(device, float32, {n}, 2);
  const HostTensor x_host = x.to_host(), y_host = y.to_host();

  Kernel<Saxpy> saxpy({}, device);
  saxpy(n, 2.0f, x, y).expect_clean();

  const HostTensor result = y.to_host();
  double worst = 0;
  for (int64_t i = 0; i < n; ++i)
    worst = std::fmax(worst, std::fabs(result.get(i) - (2.0 * x_host.get(i) + y_host.get(i))));
  std::printf("%s: largest error %.2g\n", device.name().c_str(), worst);
  return worst < 1e-5 ? 0 : 1;
}

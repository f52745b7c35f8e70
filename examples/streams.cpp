// SPDX-License-Identifier: Apache-2.0
// A function of another program that launches a kernel of ours: on the caller's stream, in the caller's memory, in
// the context that is current. Here the caller is main(); without a CUDA GPU it runs on the virtual GPU.
#include <cstdint>
#include <cstdio>

#include "imbrex/imbrex.h"

using namespace imbrex;

namespace {

struct Halve {
  int block = 128;
  void operator()(Int32 n, Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
    grid(cdiv(n, block));
    warps(4);
    auto x = global_view(x_ptr, {n});
    auto y = global_view(y_ptr, {n});
    Int32 first = block * block_idx.x;
    store_global(y, load_global(x, {first}, {block}) * 0.5f, {first});
  }
};

/// y = x / 2, of n numbers at device addresses, in order with what else is on `cuda_stream`.
void halve(const Device& device, void* cuda_stream, int64_t n, uint64_t x_address, uint64_t y_address) {
  static Kernel<Halve> kernel({}, device);
  const Stream stream = Stream::adopt(device, cuda_stream);
  DeviceTensor x = DeviceTensor::view(device, x_address, float32, {n}),
               y = DeviceTensor::view(device, y_address, float32, {n});
  kernel.on(stream)(n, x, y).expect_clean();
}

}  // namespace

int main() {
  const Device device = Device::has_cuda() ? Device::cuda() : Device::virtual_gpu({.target = "sm_80"});
  const int64_t n = 1000;
  const HostTensor input = HostTensor::random(float32, {n}, 1);
  DeviceTensor x = DeviceTensor::from_host(device, input), y = DeviceTensor::empty(device, float32, {n});
  Stream theirs = Stream::create(device);
  y.poison(theirs);
  halve(device, theirs.handle(), n, x.address(), y.address());
  const HostTensor output = y.to_host(theirs);
  for (int64_t i = 0; i < n; ++i)
    if (output.get(i) != input.get(i) / 2) {
      std::printf("element %lld is wrong\n", static_cast<long long>(i));
      return 1;
    }
  std::printf("right, on %s\n", device.name().c_str());
}

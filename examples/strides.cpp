// SPDX-License-Identifier: Apache-2.0
// Tensors as they lie: one product writes q, k and v beside one another, attention reads them from there, and a batch of
// products takes each head's output on. Nothing is copied; a run with dense copies of everything gives the same bits.
#include <cstdio>

#include "imbrex/imbrex.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/matmul.h"

using namespace imbrex;

int main() {
  const Device device = Device::open("auto", "sm_90a");
  const int64_t batch = 2, tokens = 72, heads = 2, d = 32, width = heads * d;
  const DeviceTensor x = DeviceTensor::random(device, bfloat16, {batch * tokens, width}, 1),
                     w = DeviceTensor::random(device, bfloat16, {3 * width, width}, 2),
                     w_out = DeviceTensor::random(device, bfloat16, {heads, d, d}, 3);
  const DeviceTensor qkv = DeviceTensor::empty(device, bfloat16, {batch, tokens, 3, heads, d}),
                     o = DeviceTensor::empty(device, bfloat16, {batch, tokens, heads, d}),
                     y = DeviceTensor::empty(device, bfloat16, {batch * tokens, heads, d});
  matmul(x, w, DeviceTensor::view(device, qkv.address(), bfloat16, {batch * tokens, 3 * width}))
      .expect_clean();

  // [3, batch, heads, tokens, d], of which the first dimension is q, k and v.
  const DeviceTensor parts = qkv.permute({2, 0, 3, 1, 4});
  attention(parts[0], parts[1], parts[2], o.permute({0, 2, 1, 3}), {.causal = true}).expect_clean();

  // A product for each head: its rows lie `width` elements apart.
  const auto by_head = [&](const DeviceTensor& t) {
    return DeviceTensor::view(device, t.address(), bfloat16, {heads, batch * tokens, d}, {d, width, 1});
  };
  matmul(by_head(o), w_out, by_head(y)).expect_clean();

  const auto dense = [&](const DeviceTensor& t) { return DeviceTensor::from_host(device, t.to_host()); };
  const DeviceTensor o_dense = DeviceTensor::empty(device, bfloat16, {batch, heads, tokens, d}),
                     y_dense = DeviceTensor::empty(device, bfloat16, {heads, batch * tokens, d});
  attention(dense(parts[0]), dense(parts[1]), dense(parts[2]), o_dense, {.causal = true}).expect_clean();
  matmul(dense(by_head(o)), w_out, y_dense).expect_clean();
  const bool is_same = o.permute({0, 2, 1, 3}).to_host().to_doubles() == o_dense.to_host().to_doubles() &&
                       by_head(y).to_host().to_doubles() == y_dense.to_host().to_doubles();
  std::printf("%s\n", is_same ? "the same bits as of dense copies" : "WRONG");
  return is_same ? 0 : 1;
}

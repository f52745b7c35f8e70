// SPDX-License-Identifier: Apache-2.0
// Loads and copies at the edges of tensors.
#include "kit.h"

namespace imbrex::testing {
namespace {

TEST(Memory, WhatIsLoadedFromBeyondTheEdgeIsTheSameInEveryByte) {
  Machine machine;
  DeviceTensor in = machine.iota(int8, {130}), out = machine.output(int8, {256});
  machine.run(
      [=](Ptr<int8> in_ptr, Ptr<int8> out_ptr) {
        grid(1);
        warps(1);
        auto g_in = global_view(in_ptr, {130});
        auto g_out = global_view(out_ptr, {256});
        store_global(g_out, load_global(g_in, {0}, {256}, {.other = 7}), {0});
      },
      in, out);
  const auto x = values<int8_t>(in);
  expect_elements(out, [&](int64_t i) { return i < 130 ? x[i] : 7; });
}

TEST(Memory, CopiesOfSeveralWidthsShareTheirConditions) {
  Machine machine;
  DeviceTensor a = machine.random(float16, {100, 32}), b = machine.random(float16, {1000});
  DeviceTensor c = machine.output(float16, {100, 32}), d = machine.output(float16, {100, 8});
  machine.run(
      [](Int32 m, Ptr<float16> a_ptr, Ptr<float16> b_ptr, Ptr<float16> c_ptr, Ptr<float16> d_ptr) {
        grid(cdiv(m, 64));
        warps(4);
        Int32 row = 64 * block_idx.x;
        auto g_a = global_view(a_ptr, {m, 32});
        auto g_b = global_view(b_ptr, float16, {m, 8}, {10, 1});
        auto g_c = global_view(c_ptr, {m, 32});
        auto g_d = global_view(d_ptr, {m, 8});
        auto s_a = shared_tensor(float16, {64, 32});
        auto s_b = shared_tensor(float16, {64, 8});
        copy_async(g_a, s_a, {row, 0});
        copy_async(g_b, s_b, {row, 0});
        copy_async_wait_all();
        sync();
        store_global(g_c, load_shared(s_a), {row, 0});
        store_global(g_d, load_shared(s_b), {row, 0});
      },
      100, a, b, c, d);
  const std::vector<double> in_a = a.to_host().to_doubles(), in_b = b.to_host().to_doubles();
  expect_elements(c, [&](int64_t i, int64_t j) { return in_a[i * 32 + j]; });
  expect_elements(d, [&](int64_t i, int64_t j) { return in_b[i * 10 + j]; });
}

}  // namespace
}  // namespace imbrex::testing

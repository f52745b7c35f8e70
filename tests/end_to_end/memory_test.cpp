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

/// A ring of swizzled tiles filled by TMA, indexed and offset by integers of type I.
template <class I>
void expect_ring_copies() {
  Machine machine(Arch::kSm90a);
  DeviceTensor in = machine.random(float16, {64, 256}), out = machine.output(float16, {64, 256});
  machine.run(
      [](I n, Ptr<float16> in_ptr, Ptr<float16> out_ptr) {
        grid(1);
        warps(4);
        auto g_in = global_view(in_ptr, {64, 256});
        auto g_out = global_view(out_ptr, {64, 256});
        auto ring = shared_tensor(float16, {3, 64, 64});
        auto barriers = mbarrier::alloc({1, 1, 1});
        sync();
        I stage = 0, offset = 0;
        for (I i : range(n)) {
          if (auto warp = single_warp()) {
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(barriers[stage], ring[stage].nbytes());
            tma::global_to_shared(g_in, ring[stage], {0, offset}, barriers[stage]);
          }
          mbarrier::wait(barriers[stage], cast(i / 3 % 2, uint32));
          store_global(g_out, load_shared(ring[stage]), {0, offset});
          sync();
          offset += 64;
          stage += 1;
          stage = select(stage == 3, 0, stage);
        }
      },
      4, in, out);
  EXPECT_EQ(values<uint16_t>(in), values<uint16_t>(out));
}

TEST(Memory, IntegersOfAnyTypeAreIndicesAndCoordinates) {
  expect_ring_copies<Int32>();
  expect_ring_copies<UInt32>();
  expect_ring_copies<Int64>();
}

}  // namespace
}  // namespace imbrex::testing

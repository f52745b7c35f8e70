// SPDX-License-Identifier: Apache-2.0
// What was made of a variable's value keeps that value when the variable changes.
#include "kit.h"

namespace imbrex::testing {
namespace {

constexpr int64_t kRounds = 6;

TEST(Variables, AViewOfSharedMemoryKeepsItsIndex) {
  Machine machine;
  DeviceTensor out = machine.output(int32, {kRounds, 32});
  machine.run(
      [](Int32 n, Ptr<int32> out_ptr) {
        grid(1);
        warps(1);
        auto g_out = global_view(out_ptr, {n, 32});
        auto ring = shared_tensor(int32, {3, 32});
        Int32 stage = 0;
        for (Int32 i : range(n)) {
          auto mine = ring[stage];
          auto part = ring.slice({stage, 0}, {1, 32});
          stage = (stage + 1) % 3;
          store_shared(mine, full(int32, {32}, i));
          store_shared(ring[stage], full(int32, {32}, -1));
          sync();
          store_global(g_out, load_shared(part), {i, 0});
          sync();
        }
      },
      static_cast<int32_t>(kRounds), out);
  expect_elements(out, [](int64_t i, int64_t) { return i; });
}

TEST(Variables, AViewOfGlobalMemoryKeepsItsOffset) {
  Machine machine;
  DeviceTensor out = machine.output(int32, {kRounds, 32});
  machine.run(
      [](Int32 n, Ptr<int32> out_ptr) {
        grid(1);
        warps(1);
        auto g_out = global_view(out_ptr, {n, 32});
        Int32 row = 0;
        for (Int32 i : range(n)) {
          auto mine = g_out[row];
          row += 1;
          store_global(mine, full(int32, {32}, i), {0});
        }
      },
      static_cast<int32_t>(kRounds), out);
  expect_elements(out, [](int64_t i, int64_t) { return i; });
}

TEST(Variables, ABarrierOfAnArrayKeepsItsIndex) {
  Machine machine(Arch::kSm90a);
  DeviceTensor out = machine.output(int32, {1});
  machine.run(
      [](Int32 n, Ptr<int32> out_ptr) {
        grid(1);
        warps(1);
        auto g_out = global_view(out_ptr, {1});
        auto barriers = mbarrier::alloc({32, 1});
        sync();
        Int32 stage = 0;
        for ([[maybe_unused]] Int32 i : range(n)) {
          auto barrier = barriers[stage];
          stage += 1;
          mbarrier::arrive(barrier);
          mbarrier::wait(barrier, 0);
        }
        store_global(g_out, full(int32, {1}, stage), {0});
      },
      1, out);
  expect_elements(out, [](int64_t) { return 1; });
}

TEST(Variables, AConvertedScalarKeepsItsValue) {
  Machine machine;
  DeviceTensor out = machine.output(uint32, {kRounds});
  machine.run(
      [](Int32 n, Ptr<uint32> out_ptr) {
        grid(1);
        auto g_out = global_view(out_ptr, {n});
        Int32 x = 100;
        for (Int32 i : range(n)) {
          auto old = cast(x, uint32);
          x += 7;
          store_global(g_out, full(uint32, {1}, old), {i});
        }
      },
      static_cast<int32_t>(kRounds), out);
  expect_elements(out, [](int64_t i) { return 100 + 7 * i; });
}

TEST(Variables, AReshapedTensorKeepsItsValues) {
  Machine machine;
  DeviceTensor out = machine.output(int32, {kRounds, 4, 32});
  machine.run(
      [](Int32 n, Ptr<int32> out_ptr) {
        grid(1);
        warps(1);
        auto g_out = global_view(out_ptr, {n, 4, 32});
        RegisterTensor x = full(int32, {4, 32}, 1);
        for (Int32 i : range(n)) {
          auto old = x.reshape({1, 4, 32});
          x *= 3;
          store_global(g_out, old, {i, 0, 0});
        }
      },
      static_cast<int32_t>(kRounds), out);
  expect_elements(out, [](int64_t i, int64_t, int64_t) { return std::pow(3, i); });
}

}  // namespace
}  // namespace imbrex::testing

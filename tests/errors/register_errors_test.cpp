// SPDX-License-Identifier: Apache-2.0
// Tiles that a thread's registers cannot hold: said while compiling, without an assembler.
#include <cstdlib>

#include "imbrex/runtime/compile.h"
#include "message.h"

namespace imbrex {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

template <class K>
std::string complaint(const K& kernel) {
  return message_of<CompileError>([&] { emit_ptx(*Kernel<K>(kernel).trace(uint64_t{0})); });
}

/// A product whose accumulator takes m * n / (32 * num_warps) registers of each thread.
struct Product {
  int m = 128, n = 128, num_warps = 4;
  std::optional<int> most = {};
  void operator()(Ptr<float32> x_ptr) const {
    grid(1);
    warps(num_warps);
    if (most) max_registers(*most);
    auto g = global_view(x_ptr, {256, 512});
    RegisterTensor acc = zeros(float32, {m, n});
    for (Int32 k : range(0, 256, 16)) {
      auto a = load_global(g, {0, k}, {m, 16}).to(float16), b = load_global(g, {k, 0}, {16, n}).to(float16);
      acc = mma(a, b, acc);
    }
    store_global(g, acc, {0, 0});
  }
};
TEST(RegisterErrors, AccumulatorsThatALoopHandsOn) {
  EXPECT_EQ(complaint(Product{}), "(no error)");
  EXPECT_EQ(complaint(Product{.m = 256, .num_warps = 8}), "(no error)");
  EXPECT_THAT(complaint(Product{.m = 256, .n = 256}),
              AllOf(ContainsRegex("register_errors_test.cpp:[0-9]+: error: for: tiles alive here at once"),
                    HasSubstr("need 512 registers of each thread, there are 255"),
                    ContainsRegex("512 registers .*acc"), HasSubstr("use smaller tiles or more warps()")));
  EXPECT_THAT(complaint(Product{.most = 64}),
              HasSubstr("need 128 registers of each thread, max_registers() allows 64"));
  EXPECT_THAT(complaint(Product{.m = 256, .n = 512, .num_warps = 16}),
              HasSubstr("need 256 registers of each thread, a CTA of 512 threads has 128 for each"));
}

/// The tile is loaded once and used on both sides of a reduction, or behind a barrier.
struct Centred {
  int rows = 64;
  bool by_barrier = false, meets_it = true;
  void operator()(Ptr<float32> x_ptr) const {
    grid(1);
    auto g = global_view(x_ptr, {256, 256});
    auto x = load_global(g, {0, 0}, {rows, 256});
    if (by_barrier) {
      sync();
      store_global(g, x + 1.0f, {0, 0});
    } else {
      auto mean = sum(x, {.axis = 1, .keep = true}) / 256;
      if (meets_it) {
        store_global(g, x - mean, {0, 0});
      } else {
        store_global(g, mean, {0, 0});
      }
    }
  }
};
TEST(RegisterErrors, TilesThatAreNeededAgain) {
  EXPECT_EQ(complaint(Centred{}), "(no error)");
  EXPECT_THAT(complaint(Centred{.rows = 256}), HasSubstr("reduce: tiles alive here at once need 512"));
  EXPECT_EQ(complaint(Centred{.rows = 256, .meets_it = false}), "(no error)");
  EXPECT_EQ(complaint(Centred{.by_barrier = true}), "(no error)");
  EXPECT_THAT(complaint(Centred{.rows = 256, .by_barrier = true}),
              HasSubstr("sync: tiles alive here at once need 512"));
}

struct TakesTooFew {
  static constexpr const char* target = "sm_90a";
  int registers = 160;
  void operator()(Ptr<float32> x_ptr) const {
    grid(1);
    warps(8);
    auto g = global_view(x_ptr, {128, 192});
    if (auto producer = warp_group(4, 4)) setmaxnreg(24);
    if (auto consumer = warp_group(0, 4)) {
      setmaxnreg(registers);
      RegisterTensor acc = zeros(float32, {128, 192});
      for (Int32 i : range(0, 8)) acc += load_global(g, {i, 0}, {128, 192});
      store_global(g, acc, {0, 0});
    }
  }
};
TEST(RegisterErrors, WhatSetmaxnregLeaves) {
  EXPECT_EQ(complaint(TakesTooFew{.registers = 232}), "(no error)");
  EXPECT_THAT(complaint(TakesTooFew{}),
              HasSubstr("need 192 registers of each thread, setmaxnreg() leaves 160"));
}

TEST(RegisterErrors, MayBeAccepted) {
  setenv("IMBREX_ALLOW", "spills", 1);
  EXPECT_EQ(complaint(Product{.m = 256, .n = 256}), "(no error)");
  unsetenv("IMBREX_ALLOW");
}

}  // namespace
}  // namespace imbrex

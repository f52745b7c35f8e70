// SPDX-License-Identifier: Apache-2.0
// Views of registers' bits as elements of other types. What elements are worth is small_conversions_test.cpp's matter.
#include <gmock/gmock.h>

#include <cstring>

#include "kit.h"
#include "layout/layout.h"

namespace imbrex::testing {
namespace {

class SmallTypes : public ::testing::TestWithParam<Arch> {};

/// A thread's 8 words seen as elements of one width, then of another, then as words again.
TEST_P(SmallTypes, ViewsKeepEveryBit) {
  Machine machine(GetParam());
  for (const DataType first : {int1, uint2, int3, uint4, int5, uint6, int7, int8, float16, float64})
    for (const DataType second : {uint3, int4, float5_e2m2, float7_e4m2, bfloat16, int64}) {
      SCOPED_TRACE(std::string(first.name()) + ", " + std::string(second.name()));
      // Words of which all three widths fill whole ones.
      const int64_t words = std::lcm(std::lcm<int64_t>(first.bits(), second.bits()), 64) / 32;
      DeviceTensor x = machine.random(uint32, {32, words}), y = machine.output(uint32, {32, words});
      machine.run(
          [=](Ptr<uint32> x_ptr, Ptr<uint32> y_ptr) {
            grid(1);
            warps(1);
            auto tile = load_global(global_view(x_ptr, {32, words}), {0, 0}, {32, words});
            const int64_t elements = words * 32 / first.bits();
            auto seen = view(tile, first, layout::local({1, elements}) * layout::spatial({32, 1}));
            store_global(global_view(y_ptr, {32, words}), view(view(seen, second), uint32), {0, 0});
          },
          x, y);
      EXPECT_EQ(values<uint32_t>(x), values<uint32_t>(y));
    }
}

TEST_P(SmallTypes, TheLastDimensionBecomesLonger) {
  Machine machine(GetParam());
  DeviceTensor x = machine.random(int4, {48, 32}), y = machine.output(float16, {48, 32});
  DeviceTensor bits = DeviceTensor::view(machine.device(), x.address(), uint32, {48, 4});
  machine.run(
      [](Ptr<> x_ptr, Ptr<> y_ptr) {
        grid(3);
        warps(1);
        Int32 row = 16 * block_idx.x;
        auto g_words = global_view(x_ptr, uint32, {48, 4});
        auto words = load_global(g_words, {row, 0}, {16, 4});  // uint32: 128 bits in each row
        auto weights = view(words, int4).to(float16);          // [16, 32]
        store_global(global_view(y_ptr, float16, {48, 32}), weights, {row, 0});
      },
      bits, y);
  const std::vector<double> in = x.to_host().to_doubles();
  expect_elements(y, [&](int64_t i, int64_t j) { return in[i * 32 + j]; });
}

INSTANTIATE_TEST_SUITE_P(Archs, SmallTypes, ::testing::ValuesIn(kAllArchs),
                         [](const auto& info) { return std::string(target_name(info.param)); });

TEST(SmallTypesMisuse, SaysWhatToDo) {
  Machine machine;
  const auto says = [&](const auto& kernel, DataType type) {
    DeviceTensor x = machine.output(type, {64});
    return error_of<CompileError>([&] { machine.launch(kernel, x); });
  };
  EXPECT_THAT(says(
                  [](Ptr<> x) {
                    grid(1);
                    auto tile = load_global(global_view(x, int4, {64}), {0}, {64});
                    store_global(global_view(x, int4, {64}), tile + tile, {0});
                  },
                  int4),
              ::testing::HasSubstr("no arithmetic on int4"));
  EXPECT_THAT(says(
                  [](Ptr<> x) {
                    grid(1);
                    auto tile = load_global(global_view(x, uint32, {64}), {0}, {64});
                    store_global(global_view(x, float16, {100}), view(tile, float16, {100}), {0});
                  },
                  uint32),
              ::testing::HasSubstr("has 2048 bits"));
}

}  // namespace
}  // namespace imbrex::testing

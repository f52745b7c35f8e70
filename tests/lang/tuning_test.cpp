// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/tuning_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "imbrex/core/error.h"

namespace imbrex {
namespace {

using ::testing::HasSubstr;

struct Tuned {
  enum class Order { kRows, kColumns };
  int block_m = 0, block_n = 0;
  float factor = 0;
  DataType type = int32;
  Order order = Order::kRows;
  bool wide = false;
  int untouched = 7;

  static auto space() {
    return Space<Tuned>()
        .choose<&Tuned::block_m, &Tuned::block_n>({{128, 64}, {128, 128}})
        .choose<&Tuned::factor>({0.5f, 2.0f, 4.0f})
        .choose<&Tuned::type, &Tuned::order, &Tuned::wide>({{float16, Order::kColumns, true}});
  }
};

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const CompileError& error) {
    return error.what();
  }
  return "";
}

TEST(TuningSpace, EnumeratesTheProductLastChoiceFastest) {
  const auto space = Tuned::space();
  ASSERT_EQ(space.size(), 6u);
  const std::vector<Configuration> all = space.configurations();
  ASSERT_EQ(all.size(), 6u);
  const std::string rest = " type=float16 order=1 wide=1";
  EXPECT_EQ(space.to_string(all[0]), "block_m=128 block_n=64 factor=0.5" + rest);
  EXPECT_EQ(space.to_string(all[1]), "block_m=128 block_n=64 factor=2" + rest);
  EXPECT_EQ(space.to_string(all[5]), "block_m=128 block_n=128 factor=4" + rest);
}

TEST(TuningSpace, AppliesAConfigurationByName) {
  const auto space = Tuned::space();
  Tuned kernel;
  space.apply(&kernel, space.configuration(5));
  EXPECT_EQ(kernel.block_n, 128);
  EXPECT_EQ(kernel.factor, 4.0f);
  EXPECT_EQ(kernel.type, float16);
  EXPECT_EQ(kernel.order, Tuned::Order::kColumns);
  EXPECT_TRUE(kernel.wide);
  EXPECT_EQ(kernel.untouched, 7);
  EXPECT_EQ(space.read(&kernel), space.configuration(5));
}

TEST(TuningSpace, TextReadsBack) {
  const auto space = Tuned::space();
  for (const Configuration& c : space.configurations()) EXPECT_EQ(space.parse(space.to_string(c)), c);
  EXPECT_EQ(space.parse("  block_n=96 "),
            (Configuration{{"block_n", 96}}));  // values are not limited to the space
}

TEST(TuningSpace, WithoutChoicesHasOneConfiguration) {
  const Space<Tuned> space;
  ASSERT_EQ(space.size(), 1u);
  EXPECT_TRUE(space.configuration(0).empty());
}

TEST(TuningSpace, Errors) {
  const auto space = Tuned::space();
  Tuned kernel;
  EXPECT_THAT(message([&] { space.apply(&kernel, {{"blok_m", 1}}); }), HasSubstr("no member 'blok_m'"));
  EXPECT_THAT(message([&] { space.apply(&kernel, {{"blok_m", 1}}); }), HasSubstr("did you mean 'block_m'?"));
  EXPECT_THAT(message([&] { space.parse("zzzzzzzzzz=1"); }), HasSubstr("it has block_m, block_n, factor"));
  EXPECT_THAT(message([&] { space.parse("block_m"); }), HasSubstr("'block_m' is not name=value"));
  EXPECT_THAT(message([&] { space.parse("block_m=12x"); }), HasSubstr("'12x' is not a value for block_m"));
  EXPECT_THAT(message([&] { space.parse("type=float17"); }), HasSubstr("'float17' is not a value for type"));
  EXPECT_THAT(message([&] { space.configuration(6); }), HasSubstr("configuration 6 of 6"));
  EXPECT_THAT(message([] { Space<Tuned>().choose<&Tuned::wide>({}); }),
              HasSubstr("nothing to choose from for wide"));
  EXPECT_THAT(message([] { Tuned::space().choose<&Tuned::block_m>({1}); }),
              HasSubstr("block_m is chosen twice"));
}

}  // namespace
}  // namespace imbrex

// SPDX-License-Identifier: Apache-2.0
// What conversions of small integers cost: instructions for one 32-bit word of them. (Constants, which loops share, are not
// counted.) The order of 9 instructions for 8 int4 is the published one: elements 2i in the lower half of a word.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <sstream>

#include "core/float_formats.h"
#include "kit.h"

namespace imbrex::codegen::testing {
namespace {

/// Each of 32 threads converts `words` words of `from`, whose registers `order` lays out.
std::string kernel(DataType from, DataType to, int words, const std::string& order,
                   const std::string& target) {
  const int each = 32 * words / from.bits();
  return fill(
      R"(kernel convert(%a: ptr<uint32>, %b: ptr<{to}>) target {target} warps 1 from "convert.cpp":1 {
  %zero: int32 = const {int = 0}
  %one: int32 = const {int = 1}
  %threads: int32 = const {int = 32}
  %words: int32 = const {int = {words}}
  %each: int32 = const {int = {each}}
  launch_grid %one
  %ga: global<uint32, [?, ?]> = global_view %a, %threads, %words, %words, %one {rank = 2}
  %gb: global<{to}, [?, ?]> = global_view %b, %threads, %each, %each, %one {rank = 2}
  %w: register<uint32, [32, {words}]> = load_global %ga, %zero, %zero {shape = [32, {words}], dims = [0, 1]}
  %x: register<{from}, [32, {each}]> = view %w {dtype = {from}, shape = [32, {each}], rows = true, layout = [32: 32t1, {each}: {order}]}
  %y: register<{to}, [32, {each}]> = cast %x {dtype = {to}}
  annotate_layout %y {layout = [32: 32t1, {each}: {each}r1]}
  store_global %gb, %y, %zero, %zero {dims = [0, 1]}
})",
      {{"from", std::string(from.name())},
       {"to", std::string(to.name())},
       {"words", std::to_string(words)},
       {"each", std::to_string(each)},
       {"order", order},
       {"target", target}});
}

int instructions(const std::string& ptx) {
  constexpr std::array<const char*, 14> kCounted = {"lop3.", "and.", "or.",  "xor.", "shl.", "shr.", "prmt.",
                                                    "sub.",  "mul.", "fma.", "add.", "cvt.", "bfe.", "bfi."};
  std::istringstream lines(ptx);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream text(line);
    std::string word;
    text >> word;
    for (const char* name : kCounted) count += word.rfind(name, 0) == 0;
  }
  return count;
}

/// What a second word costs: what addresses cost falls out.
int cost_of_a_word(DataType from, DataType to, const std::array<std::string, 2>& orders,
                   const std::string& target) {
  return instructions(compile(kernel(from, to, 2, orders[1], target)).ptx) -
         instructions(compile(kernel(from, to, 1, orders[0], target)).ptx);
}
std::array<std::string, 2> in_order(DataType from) {
  const int each = 32 / from.bits();
  return {std::to_string(each) + "r1", std::to_string(2 * each) + "r1"};
}

TEST(ConvertSmall, CostsOfWholeWords) {
  const std::string target = "sm_90a";
  // Elements that follow one another: two bytes permuted and a shift for every four of 4 bits, then a mask with an exponent
  // and a subtraction for every two.
  EXPECT_EQ(cost_of_a_word(int4, float16, in_order(int4), target), 12);
  EXPECT_EQ(cost_of_a_word(uint4, float16, in_order(uint4), target), 12);
  EXPECT_EQ(cost_of_a_word(int4, bfloat16, in_order(int4), target), 13);
  EXPECT_EQ(cost_of_a_word(int2, float16, in_order(int2), target), 20);
  EXPECT_EQ(cost_of_a_word(uint8, float16, in_order(uint8), target), 4);
  EXPECT_EQ(cost_of_a_word(int8, float16, in_order(int8), target), 5);
}

TEST(ConvertSmall, ThePublishedOrderTakesThePublishedInstructions) {
  for (const std::string target : {"sm_80", "sm_90a"}) {
    SCOPED_TRACE(target);
    // Element 2a + b of 8 in nibble a + 4b.
    EXPECT_EQ(cost_of_a_word(int4, float16, {"4r1 2r4", "2r8 4r1 2r4"}, target), 9);
    EXPECT_EQ(cost_of_a_word(uint4, float16, {"4r1 2r4", "2r8 4r1 2r4"}, target), 9);
  }
}

/// Some targets convert small floats by an instruction of variants 'a' and 'f' alone.
TEST(ConvertSmall, AssemblesForEveryTarget) {
  for (const std::string target : {"sm_89", "sm_90", "sm_100", "sm_100a", "sm_103a", "sm_120", "sm_120a"})
    for (const DataType type : {float8_e4m3, float6_e2m3, float6_e3m2, float4_e2m1, float8_e8m0}) {
      SCOPED_TRACE(target + ", " + std::string(type.name()));
      const int words = type.bits() == 6 ? 3 : 4;
      const std::string order = std::to_string(words * 32 / type.bits()) + "r1";
      expect_assembles(compile(kernel(type, float16, words, order, target)));
      expect_assembles(compile(kernel(float16, type, 4, "8r1", target)));
    }
}

/// The result is in order, whatever order the registers had.
TEST(ConvertSmall, PermutedRegistersBecomeElementsInOrder) {
  for (const DataType to : {float16, bfloat16, int8, float32})
    for (const DataType from : {int4, uint4, float4_e2m1, uint2, int8, float8_e5m2}) {
      if (from == to) continue;
      SCOPED_TRACE(std::string(from.name()) + " to " + std::string(to.name()));
      const int each = 32 / from.bits() * 2, quarter = each / 4;
      const std::string order =
          fmt::format("{}r1 4r{}", quarter, quarter);  // element 4a + b in register a + b * quarter
      Buffer a(uint32, 64), b(to, 32 * each);
      std::mt19937 random(5);
      std::vector<uint32_t> words(64);
      for (int i = 0; i < 64; ++i) words[i] = static_cast<uint32_t>(random()), a.set(i, words[i]);
      const CompiledKernel compiled = compile(kernel(from, to, 2, order, "sm_80"));
      expect_assembles(compiled);
      run(compiled, {&a, &b});
      for (int thread = 0; thread < 32; ++thread)
        for (int e = 0; e < each; ++e) {
          const int reg = e / 4 + e % 4 * quarter, bit = reg * from.bits();
          const uint32_t code = words[thread * 2 + bit / 32] >> bit % 32 & ((1u << from.bits()) - 1);
          double value;
          if (from.is_float()) {
            value = arith::decode(arith::float_format(from), code);
          } else {
            value = code;
            if (from.is_signed() && code >> (from.bits() - 1)) value -= 1 << from.bits();
          }
          if (!std::isfinite(value) || (!to.is_float() && std::abs(value) > 127)) continue;
          ASSERT_EQ(b.get(thread * each + e), rounded(to, to.is_float() ? value : std::trunc(value)))
              << thread << ", " << e;
        }
    }
}

}  // namespace
}  // namespace imbrex::codegen::testing

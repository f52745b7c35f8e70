// SPDX-License-Identifier: Apache-2.0
// Every type of at most 8 bits on every target: packed words seen as its elements, all of its codes converted to wider
// types, and numbers rounded to it. Expectations are the textbook's formulas, and the nearest of all values.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "kit.h"
#include "layout/layout.h"

namespace imbrex::testing {
namespace {

std::vector<DataType> small_types() {
  std::vector<DataType> types;
  for (int code = 0; code < DataType::kCount; ++code)
    if (const DataType type{static_cast<DataType::Code>(code)}; type.bits() <= 8 && !type.is_bool())
      types.push_back(type);
  return types;
}

/// What a code stands for.
double textbook(DataType type, int code) {
  const DataTypeFacts& f = facts_of(type);
  if (type.is_integer())
    return type.is_signed() && code >> (type.bits() - 1) ? code - (1 << type.bits()) : code;
  const int mantissa = code & ((1 << f.mantissa_bits) - 1),
            magnitude_bits = f.exponent_bits + f.mantissa_bits;
  const int exponent = code >> f.mantissa_bits & ((1 << f.exponent_bits) - 1);
  const int magnitude = code & ((1 << magnitude_bits) - 1);
  const double sign = f.has_sign && code >> magnitude_bits & 1 ? -1 : 1;
  if (f.specials == Specials::kNanOnly && magnitude + 1 == 1 << magnitude_bits) return std::nan("");
  if (f.specials == Specials::kInfNan && exponent + 1 == 1 << f.exponent_bits)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  if (f.mantissa_bits == 0) return std::ldexp(1.0, exponent - f.bias);
  const double fraction = std::ldexp(mantissa, -f.mantissa_bits);
  return sign *
         (exponent == 0 ? std::ldexp(fraction, 1 - f.bias) : std::ldexp(1 + fraction, exponent - f.bias));
}

/// Codes that stand for something: a float8_ue4m3 is a float8_e4m3 whose sign is clear.
int codes_of(DataType type) { return type == float8_ue4m3 ? 128 : 1 << type.bits(); }

constexpr int64_t kThreads = 32, kEach = 32;  // elements of each thread: whole words of every width

/// The bits of `count` elements, one after the other, as words of each thread.
std::vector<uint32_t> packed(DataType type, const std::vector<int>& codes) {
  std::vector<uint32_t> words(codes.size() * static_cast<size_t>(type.bits()) / 32);
  for (size_t i = 0; i < codes.size(); ++i)
    for (int bit = 0; bit < type.bits(); ++bit) {
      const size_t at = i * static_cast<size_t>(type.bits()) + static_cast<size_t>(bit);
      words[at / 32] |= static_cast<uint32_t>(codes[i] >> bit & 1) << at % 32;
    }
  return words;
}

const layout::Layout& rows() {
  static const layout::Layout layout = layout::Layout::parse("[32: 32t1, 32: 32r1]");
  return layout;
}

double expected(DataType to, double x) {
  if (to.is_float()) {
    if (to == float16 && std::abs(x) >= 65520)
      return std::copysign(std::numeric_limits<double>::infinity(), x);
    return x;  // all others hold it
  }
  const double low = to.is_signed() ? -std::ldexp(1, to.bits() - 1) : 0;
  return std::clamp(std::trunc(x), low, std::ldexp(1, to.bits() - (to.is_signed() ? 1 : 0)) - 1);
}

class SmallTypes : public ::testing::TestWithParam<Arch> {};

TEST_P(SmallTypes, EveryCodeWidens) {
  for (DataType type : small_types())
    for (DataType to : {float16, bfloat16, float32, int8, int32}) {
      if (type == float8_e8m0 && to != float32 && to != bfloat16) continue;  // beyond the range
      SCOPED_TRACE(std::string(type.name()) + " to " + std::string(to.name()));
      std::vector<int> codes;
      for (int64_t i = 0; i < kThreads * kEach; ++i) codes.push_back(static_cast<int>(i % codes_of(type)));
      Machine machine(GetParam());
      const std::vector<uint32_t> words = packed(type, codes);
      DeviceTensor x = machine.tensor(uint32, words), y = machine.output(to, {kThreads, kEach});
      machine.run(
          [=](Ptr<> x_ptr, Ptr<> y_ptr) {
            grid(1);
            warps(1);
            const int64_t words = type.bits();
            auto tile = load_global(global_view(x_ptr, uint32, {kThreads, words}), {0, 0}, {kThreads, words});
            auto elements = view(tile, type, rows());
            store_global(global_view(y_ptr, to, {kThreads, kEach}), elements.to(to), {0, 0});
          },
          x, y);
      const std::vector<double> got = y.to_host().to_doubles();
      for (int code = 0; code < codes_of(type); ++code) {
        const double value = textbook(type, code);
        if (std::isnan(value)) {
          EXPECT_TRUE(!to.is_float() || std::isnan(got[code])) << code;
        } else if (to.is_float() || !std::isinf(value)) {
          if (to == int8 && type == uint8) continue;  // integers wrap
          EXPECT_EQ(got[code], expected(to, value)) << code;
        }
      }
      for (size_t i = 0; i < got.size(); ++i)  // the same wherever it lies
        if (const double same = got[i % static_cast<size_t>(codes_of(type))]; !std::isnan(same)) {
          EXPECT_EQ(got[i], same) << i;
        }
    }
}

/// The value nearest to x, of two the one with an even pattern; beyond the range the largest.
int nearest_code(DataType type, double x) {
  const DataTypeFacts& f = facts_of(type);
  if (type.is_integer()) return static_cast<int>(expected(type, x)) & ((1 << type.bits()) - 1);
  if (!f.has_sign && x < 0) return 0;
  const int sign = f.has_sign && std::signbit(x) ? 1 << (type.bits() - 1) : 0;
  int best = 0;
  for (int code = 0; code < 1 << (f.exponent_bits + f.mantissa_bits); ++code) {
    const double value = textbook(type, code), known = textbook(type, best),
                 far = std::abs(std::abs(x) - known);
    if (std::isnan(value) || std::isinf(value)) continue;
    const double distance = std::abs(std::abs(x) - value);
    if (distance < far || (distance == far && code % 2 == 0)) best = code;
  }
  return best | sign;
}

TEST_P(SmallTypes, NumbersAreRoundedAndPacked) {
  for (DataType type : small_types()) {
    if (type == float8_e8m0) continue;  // cuts: types_test.cpp
    SCOPED_TRACE(type.name());
    std::vector<float> numbers;
    for (int code = 0; code < codes_of(type); ++code) {
      const double value = textbook(type, code), next = textbook(type, (code + 1) % codes_of(type));
      if (!std::isfinite(value)) continue;
      const auto middle = static_cast<float>((value + next) / 2);
      for (float x :
           {static_cast<float>(value), middle, std::nextafter(middle, 1e30f), std::nextafter(middle, -1e30f)})
        if (std::abs(x) < 1e6) numbers.push_back(x);
    }
    for (float x : {1e6f, -1e6f, 1e-30f, -1e-30f, -0.0f, 0.4999f, 1e-40f}) numbers.push_back(x);
    for (size_t i = 0; numbers.size() % (kThreads * kEach) != 0; ++i) numbers.push_back(numbers[i]);
    const auto tiles = static_cast<int64_t>(numbers.size()) / (kThreads * kEach);
    Machine machine(GetParam());
    const int64_t words = type.bits();
    DeviceTensor x = machine.tensor(float32, numbers), y = machine.output(uint32, {tiles * kThreads, words});
    machine.run(
        [=](Ptr<> x_ptr, Ptr<> y_ptr) {
          grid(tiles);
          warps(1);
          Int32 row = kThreads * block_idx.x;
          auto tile = load_global(global_view(x_ptr, float32, {tiles * kThreads, kEach}), {row, 0},
                                  {kThreads, kEach});
          annotate_layout(tile, rows());
          store_global(global_view(y_ptr, uint32, {tiles * kThreads, words}), view(tile.to(type), uint32),
                       {row, 0});
        },
        x, y);
    const std::vector<uint32_t> got = values<uint32_t>(y);
    for (size_t i = 0; i < numbers.size(); ++i) {
      int code = 0;
      for (int bit = 0; bit < type.bits(); ++bit) {
        const size_t at = i * static_cast<size_t>(type.bits()) + static_cast<size_t>(bit);
        code |= static_cast<int>(got[at / 32] >> at % 32 & 1) << bit;
      }
      ASSERT_EQ(code, nearest_code(type, numbers[i])) << numbers[i];
    }
  }
}

TEST_P(SmallTypes, WholeBytesMoveWithoutViews) {
  for (DataType type : {int1, uint1, int2, uint2, int4, uint4, float4_e2m1}) {
    SCOPED_TRACE(type.name());
    Machine machine(GetParam());
    DeviceTensor x = machine.random(type, {40, 128}), y = machine.output(type, {40, 128}),
                 z = machine.output(float32, {40, 128});
    machine.run(
        [=](Ptr<> x_ptr, Ptr<> y_ptr, Ptr<> z_ptr) {
          grid(3);
          Int32 row = 16 * block_idx.x;
          auto tile = load_global(global_view(x_ptr, type, {40, 128}), {row, 0}, {16, 128});
          auto box = shared_tensor(type, {16, 128});
          store_shared(box, tile);
          sync();
          store_global(global_view(y_ptr, type, {40, 128}), load_shared(box), {row, 0});
          store_global(global_view(z_ptr, float32, {40, 128}), tile.to(float32), {row, 0});
        },
        x, y, z);
    const std::vector<double> in = x.to_host().to_doubles();
    for (const DeviceTensor& out : {y, z})
      expect_elements(out, [&](int64_t i, int64_t j) { return in[i * 128 + j]; });
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
                    auto tile = load_global(global_view(x, int3, {64}), {0}, {64});
                    store_global(global_view(x, int3, {64}), tile, {0});
                  },
                  int3),
              ::testing::HasSubstr("view()"));
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

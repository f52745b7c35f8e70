// SPDX-License-Identifier: Apache-2.0
// Every element type: moved, converted to every other, and computed with. Expectations are this file's own:
// rounding is done here with frexp and nearbyint, not by the library's conversions.
#include <cfloat>
#include <limits>
#include <random>

#include "kit.h"

namespace imbrex::testing {
namespace {

const std::vector<DataType> kIntegers = {int8, int16, int32, int64, uint8, uint16, uint32, uint64};
const std::vector<DataType> kArithmeticFloats = {float16, bfloat16, float32, float64};
const std::vector<DataType> kSmallFloats = {float8_e4m3, float8_e5m2};

std::vector<DataType> all_types() {
  std::vector<DataType> types = kIntegers;
  types.insert(types.end(), kArithmeticFloats.begin(), kArithmeticFloats.end());
  types.push_back(tfloat32);
  types.push_back(boolean);
  types.insert(types.end(), kSmallFloats.begin(), kSmallFloats.end());
  return types;
}

/// Precision (with the hidden bit), smallest normal exponent, largest number of a floating type.
struct Format {
  int precision, min_exponent;
  double largest;
  bool saturates;
};
Format format_of(DataType type) {
  switch (type.code) {
    case DataType::kFloat16:
      return {11, -14, 65504, false};
    case DataType::kBFloat16:
      return {8, -126, 0x1.FEp127, false};
    case DataType::kTFloat32:
      return {11, -126, 0x1.FFCp127, false};
    case DataType::kFloat32:
      return {24, -126, FLT_MAX, false};
    case DataType::kFloat64:
      return {53, -1022, DBL_MAX, false};
    case DataType::kFloat8E4M3:
      return {4, -6, 448, true};
    default:
      return {3, -14, 57344, true};
  }
}

/// x rounded to the nearest number of the type, ties to even.
double rounded(DataType type, double x) {
  if (!type.is_float() || x == 0 || std::isnan(x)) return x;
  const Format f = format_of(type);
  if (std::isinf(x)) return f.saturates ? std::copysign(f.largest, x) : x;
  int exponent;
  std::frexp(x, &exponent);
  const int unit = std::max(exponent - 1, f.min_exponent) - f.precision + 1;
  const double r = std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
  if (std::abs(r) <= f.largest) return r;
  return std::copysign(f.saturates ? f.largest : std::numeric_limits<double>::infinity(), x);
}

bool fits(DataType type, double x) {
  if (type.is_bool()) return true;
  const int bits = type.bits();
  const double low = type.is_signed() ? -std::ldexp(1, bits - 1) : 0;
  const double high = std::ldexp(1, type.is_signed() ? bits - 1 : bits);
  return std::trunc(x) >= low && std::trunc(x) < high;
}

/// x modulo 2^bits, as the type sees it.
double wrapped(DataType type, int64_t x) {
  const int shift = 64 - type.bits();
  if (type.is_signed())
    return static_cast<double>(static_cast<int64_t>(static_cast<uint64_t>(x) << shift) >> shift);
  return static_cast<double>((static_cast<uint64_t>(x) << shift) >> shift);
}

double converted(DataType from, DataType to, double x, int64_t as_integer) {
  if (to.is_bool()) return x != 0;
  if (to.is_float()) return rounded(to, x);
  return from.is_float() ? std::trunc(x) : wrapped(to, as_integer);
}

/// Numbers of the type: small ones, both ends of its range, ties and near ties of the narrower types.
std::vector<double> interesting(DataType type) {
  std::vector<double> numbers = {
      0,     1,     2,     3,      5,        7,        100,          127,          128,         200,   255,
      256,   257,   448,   449,    480,      2047,     2049,         4099,         32767,       65504, 65519,
      65520, 65535, 65536, 131073, 16777217, 33554431, 2147483520.0, 2147483647.0, 4294967295.0};
  if (type.is_float()) {
    for (double x :
         {0.1, 0.5, 0.75, 0.999, 1.5, 2.5, 17.0625, 1e-3, 6e-5, 3e-5, 1e-7, 3e-8, 1e-20, 1e20, 1e37, 3.3e38})
      numbers.push_back(x);
    for (DataType narrow : {float16, bfloat16, float8_e4m3, float8_e5m2, tfloat32}) {
      // Halfway between two numbers of the narrow type, and so close to it that rounding twice would go
      // wrong.
      const double tie = 1 + std::ldexp(1, -format_of(narrow).precision);
      for (double x : {tie, tie + 0x1p-23, tie - 0x1p-23, tie + 0x1p-40, tie - 0x1p-40, 3 * tie,
                       tie * 0x1p-10, tie * 0x1p-20})
        numbers.push_back(x);
    }
  }
  std::mt19937 random(static_cast<uint32_t>(type.code));
  for (int i = 0; i < 100; ++i)
    numbers.push_back(std::ldexp(static_cast<double>(random()),
                                 static_cast<int>(random() % 24) - (type.is_float() ? 30 : 24)));
  if (type.is_signed())
    for (size_t i = numbers.size(); i-- > 0;) numbers.push_back(-numbers[i]);
  for (double& x : numbers) x = type.is_float() ? rounded(type, x) : std::trunc(x);
  std::erase_if(numbers, [&](double x) { return type.is_float() ? std::isinf(x) : !fits(type, x); });
  if (type.is_bool()) numbers = {0, 1, 1, 0, 0, 0, 1};
  return numbers;
}

/// Numbers of the type as memory holds them; exact for all types.
DeviceTensor tensor_of(Machine& machine, DataType type, const std::vector<double>& numbers) {
  return machine.tensor(type, numbers);
}

class Types : public ::testing::TestWithParam<Arch> {};

TEST_P(Types, MoveUnchanged) {
  for (DataType type : all_types()) {
    SCOPED_TRACE(type.name());
    Machine machine(GetParam());
    const std::vector<double> numbers = interesting(type);
    const auto n = static_cast<int64_t>(numbers.size());
    DeviceTensor x = tensor_of(machine, type, numbers), y = machine.output(type, {n}),
                 z = machine.output(type, {n});
    machine.run(
        [type](Int32 n, Ptr<> x_ptr, Ptr<> y_ptr, Ptr<> z_ptr) {
          grid(cdiv(n, 256));
          Int32 at = 256 * block_idx.x;
          auto tile = load_global(global_view(x_ptr, type, {n}), {at}, {256});
          auto box = shared_tensor(type, {256});
          store_shared(box, tile);
          sync();
          store_global(global_view(y_ptr, type, {n}), tile, {at});
          store_global(global_view(z_ptr, type, {n}), load_shared(box), {at});
        },
        n, x, y, z);
    for (const DeviceTensor& out : {y, z}) expect_elements(out, [&](int64_t i) { return numbers[i]; });
  }
}

TEST_P(Types, ConvertToEveryOther) {
  for (DataType from : all_types()) {
    const std::vector<double> all = interesting(from);
    for (DataType to : all_types()) {
      SCOPED_TRACE(std::string(from.name()) + " to " + std::string(to.name()));
      std::vector<double> numbers = all;
      // What C++ leaves undefined is left out here.
      if (from.is_float() && to.is_integer()) std::erase_if(numbers, [&](double x) { return !fits(to, x); });
      // sm_80 rounds to tfloat32 with ties away from zero: it has no other instruction.
      if (to == tfloat32 && GetParam() == Arch::kSm80)
        std::erase_if(numbers,
                      [](double x) { return rounded(tfloat32, x) != rounded(tfloat32, x * (1 + 0x1p-30)); });
      Machine machine(GetParam());
      const auto n = static_cast<int64_t>(numbers.size());
      DeviceTensor x = tensor_of(machine, from, numbers), y = machine.output(to, {n});
      machine.run(
          [from, to](Int32 n, Ptr<> x_ptr, Ptr<> y_ptr) {
            grid(cdiv(n, 512));
            Int32 at = 512 * block_idx.x;
            auto tile = load_global(global_view(x_ptr, from, {n}), {at}, {512});
            store_global(global_view(y_ptr, to, {n}), tile.to(to), {at});
          },
          n, x, y);
      expect_elements(y, [&](int64_t i) {
        return converted(from, to, numbers[i], from.is_float() ? 0 : static_cast<int64_t>(numbers[i]));
      });
    }
  }
}

TEST_P(Types, ScalarsConvertAsTilesDo) {
  const std::vector<double> numbers = {0,        1,   -1, 1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 + 0x1p-40, 100.75,
                                       -65519.0, 300, 1e6};
  for (DataType to : all_types()) {
    SCOPED_TRACE(to.name());
    if (to == tfloat32 || (to.is_float() && to.bits() == 8)) continue;  // no scalars of these types
    Machine machine(GetParam());
    for (double x : numbers) {
      if (to.is_integer() && !fits(to, x)) continue;
      DeviceTensor y = machine.output(to, {1});
      machine.run(
          [to](Float64 given, Ptr<> y_ptr) {
            grid(1);
            store_global(global_view(y_ptr, to, {1}), full(to, {1}, cast(given, to)), {0});
          },
          x, y);
      expect_elements(y, [&](int64_t) { return converted(float64, to, x, 0); });
    }
  }
}

TEST_P(Types, ArithmeticRoundsOnceAndWraps) {
  std::vector<DataType> types = kIntegers;
  types.insert(types.end(), kArithmeticFloats.begin(), kArithmeticFloats.end());
  for (DataType type : types) {
    SCOPED_TRACE(type.name());
    Machine machine(GetParam());
    const int64_t n = 300;
    std::mt19937 random(5);
    std::vector<double> a, b;
    for (int64_t i = 0; i < n; ++i) {
      const auto number = [&] {
        if (type.is_float()) return rounded(type, (static_cast<double>(random() % 4001) - 2000) / 64);
        return static_cast<double>(random() % 128) - (type.is_signed() ? 64 : 0);
      };
      a.push_back(number());
      b.push_back(number());
      if (b.back() == 0) b.back() = 1;
    }
    DeviceTensor x = tensor_of(machine, type, a), y = tensor_of(machine, type, b),
                 out = machine.output(type, {6, n}), flags = machine.output(boolean, {2, n});
    machine.run(
        [type](Int32 n, Ptr<> x_ptr, Ptr<> y_ptr, Ptr<> out_ptr, Ptr<boolean> flags_ptr) {
          grid(cdiv(n, 128));
          Int32 at = 128 * block_idx.x;
          auto u = load_global(global_view(x_ptr, type, {n}), {at}, {128});
          auto v = load_global(global_view(y_ptr, type, {n}), {at}, {128}, {.other = 1});
          auto g_out = global_view(out_ptr, type, {6, n});
          int64_t row = 0;
          for (const RegisterValue& value : {u + v, u - v, u * v, u / v, -u, abs(v)})
            store_global(g_out, value.to(type).reshape({1, 128}), {row++, at});
          auto g_flags = global_view(flags_ptr, {2, n});
          store_global(g_flags, (u < v).reshape({1, 128}), {0, at});
          store_global(g_flags, (u == v || u > 3).reshape({1, 128}), {1, at});
        },
        n, x, y, out, flags);
    expect_elements(out, [&](int64_t row, int64_t i) {
      const double results[] = {a[i] + b[i], a[i] - b[i], a[i] * b[i], a[i] / b[i], -a[i], std::abs(b[i])};
      if (type.is_float()) return rounded(type, results[row]);
      return wrapped(type, static_cast<int64_t>(std::trunc(results[row])));
    });
    expect_elements(
        flags, [&](int64_t row, int64_t i) { return row == 0 ? a[i] < b[i] : a[i] == b[i] || a[i] > 3; });
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Types, ::testing::ValuesIn(kAllArchs),
                         [](const auto& info) { return std::string(target_name(info.param)); });

}  // namespace
}  // namespace imbrex::testing

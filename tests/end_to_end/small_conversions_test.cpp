// SPDX-License-Identifier: Apache-2.0
// Every conversion from or to a type of at most 8 bits, of all codes of sources of at most 16 bits, and of numbers near
// every value of a target and every middle of two. Expectations are searched for among the textbook's values of all
// codes. On a GPU: IMBREX_TEST_DEVICE=cuda.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "kit.h"
#include "layout/layout.h"

namespace imbrex::testing {
namespace {

constexpr int64_t kThreads = 32, kEach = 32;  // elements of each thread: whole words of every width
constexpr int64_t kRowBytes = kEach * 8;

bool is_small(DataType type) { return type.bits() <= 8 && !type.is_bool(); }
std::vector<DataType> types(bool small) {
  std::vector<DataType> all;
  for (int code = 0; code < DataType::kCount; ++code)
    if (const DataType type{static_cast<DataType::Code>(code)}; !type.is_bool() && is_small(type) == small)
      all.push_back(type);
  return all;
}

/// What a code stands for: the formulas of the textbook. Types of at most 16 bits.
double textbook(DataType type, int code) {
  const DataTypeFacts& f = facts_of(type);
  if (type.is_integer())
    return type.is_signed() && code >> (type.bits() - 1) ? code - (1 << type.bits()) : code;
  const int mantissa = code & ((1 << f.mantissa_bits) - 1);
  const int exponent = code >> f.mantissa_bits & ((1 << f.exponent_bits) - 1);
  const int all_ones = (1 << (f.exponent_bits + f.mantissa_bits)) - 1;
  const double sign = f.has_sign && code > all_ones ? -1 : 1;
  if (f.specials == Specials::kNanOnly && (code & all_ones) == all_ones) return std::nan("");
  if (f.specials == Specials::kInfNan && exponent + 1 == 1 << f.exponent_bits)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  if (f.mantissa_bits == 0) return std::ldexp(1.0, exponent - f.bias);
  const double fraction = std::ldexp(mantissa, -f.mantissa_bits);
  return sign *
         (exponent == 0 ? std::ldexp(fraction, 1 - f.bias) : std::ldexp(1 + fraction, exponent - f.bias));
}

/// The codes of a type that stand for something: a float8_ue4m3 is a float8_e4m3 without a sign.
int codes_of(DataType type) { return type == float8_ue4m3 ? 128 : 1 << type.bits(); }

/// Magnitudes of a float's codes 0, 1, ... as long as they are finite; they ascend.
const std::vector<double>& magnitudes(DataType type) {
  static std::map<int, std::vector<double>> known;
  std::vector<double>& list = known[type.code];
  if (!list.empty()) return list;
  for (int code = 0; code < 1 << (type.bits() - (facts_of(type).has_sign ? 1 : 0)); ++code) {
    const double value = textbook(type, code);
    if (!std::isfinite(value)) break;
    list.push_back(value);
  }
  return list;
}

/// The code of a number among those of a float of at most 16 bits.
int nearest_code(DataType type, double x) {
  const DataTypeFacts& f = facts_of(type);
  const std::vector<double>& list = magnitudes(type);
  const auto last = static_cast<int>(list.size()) - 1;
  if (std::isnan(x))
    return f.specials == Specials::kNone ? last : (1 << (f.exponent_bits + f.mantissa_bits)) - 1;
  const double magnitude = std::abs(x);
  const auto above = static_cast<int>(std::upper_bound(list.begin(), list.end(), magnitude) - list.begin());
  if (type == float8_e8m0) return std::max(0, above - 1);  // cut
  if (!f.has_sign && std::signbit(x)) return 0;
  int code = std::max(0, above - 1);
  if (above <= last) {
    const double down = magnitude - list[code], up = list[above] - magnitude;
    if (up < down || (up == down && above % 2 == 0)) code = above;
  } else if (type.bits() == 16) {  // rounded as if the exponent went on
    const double next = 2 * list[last] - list[last - 1];
    if (magnitude - list[last] >= next - magnitude) code = last + 1;  // infinity
  }
  return std::signbit(x) ? code | 1 << (type.bits() - 1) : code;
}

struct Number {
  double value;         // of a float
  int64_t integer = 0;  // of an integer
  uint64_t bits;        // as the source holds it
};

Number from_code(DataType type, int code) {
  const double value = textbook(type, code);
  return {value, std::isfinite(value) ? static_cast<int64_t>(std::clamp(value, -1e18, 1e18)) : 0,
          static_cast<uint64_t>(code)};
}

std::vector<Number> all_codes(DataType type) {
  std::vector<Number> numbers;
  for (int code = 0; code < codes_of(type); ++code) numbers.push_back(from_code(type, code));
  return numbers;
}

template <class T>
uint64_t pattern_of(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

/// Numbers near every value of every small type, and near the middle of every two.
std::vector<Number> near_small_values(DataType type) {
  std::vector<double> wanted = {0.0,
                                -0.0,
                                1e-45,
                                -1e-40,
                                1e-30,
                                1e30,
                                -1e30,
                                0.999,
                                -0.999,
                                std::numeric_limits<double>::infinity(),
                                -std::numeric_limits<double>::infinity()};
  if (type == float64) wanted.insert(wanted.end(), {1e300, -1e300, 1e-300, 1e-320});
  for (const DataType small : types(true)) {
    if (small == float8_e8m0) continue;
    for (int code = 0; code < codes_of(small); ++code) {
      const double value = textbook(small, code), next = textbook(small, (code + 1) % codes_of(small));
      if (!std::isfinite(value) || !std::isfinite(next)) continue;
      for (const double near : {value, (value + next) / 2})
        for (const double way : {-1.0, 0.0, 1.0}) {
          double x = near;
          if (type == float64 && way != 0) x = std::nextafter(near, way * 1e30);
          if (type != float64 && way != 0)
            x = std::nextafter(static_cast<float>(near), static_cast<float>(way) * 1e30f);
          wanted.push_back(x);
        }
    }
  }
  for (int e = -140; e < 128; ++e) wanted.push_back(std::ldexp(1.75, e));
  std::vector<Number> numbers;
  for (const double x : wanted) {
    if (type == float64) {
      numbers.push_back({x, 0, pattern_of(x)});
    } else {
      const auto f = static_cast<float>(x);
      numbers.push_back({f, 0, pattern_of(f)});
    }
  }
  // A NaN of a float64 is not converted to integers alike everywhere.
  if (type != float64) numbers.push_back({std::nan(""), 0, 0x7fc00000});
  return numbers;
}

std::vector<Number> edges(DataType type) {
  std::vector<Number> numbers;
  const int bits = type.bits();
  const auto add = [&](uint64_t pattern) {
    pattern &= bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
    int64_t integer = static_cast<int64_t>(pattern);
    if (type.is_signed() && bits < 64) integer = static_cast<int64_t>(pattern << (64 - bits)) >> (64 - bits);
    const bool is_negative = type.is_signed() && integer < 0;
    uint64_t magnitude = is_negative        ? ~pattern_of(integer) + 1
                         : type.is_signed() ? pattern_of(integer)
                                            : pattern;
    // A double holds 53 bits: the lowest of longer numbers become one, which no small type tells apart.
    if (magnitude >> 53 != 0) magnitude = magnitude >> 11 << 11 | uint64_t{(magnitude & 0x7ff) != 0} << 11;
    const auto value = static_cast<double>(magnitude);
    numbers.push_back({is_negative ? -value : value, integer, pattern});
  };
  for (uint64_t i = 0; i < 1100; ++i) add(i), add(~i);
  for (int shift = 8; shift < bits; ++shift)
    for (const uint64_t of : {0, 1, 2, 3, 5, 255}) {
      add((uint64_t{1} << shift) - of), add((uint64_t{1} << shift) + of), add(~(uint64_t{1} << shift) + of);
      add((uint64_t{0x123456789abcdef1} >> (63 - shift)) + of);
    }
  return numbers;
}

std::vector<Number> numbers_of(DataType type) {
  if (type.bits() <= 8 || type == float16 || type == bfloat16) return all_codes(type);
  return type.is_float() ? near_small_values(type) : edges(type);
}

/// Whether `got`, the bits of an element of type `to`, is what `x` of type `from` becomes.
bool is_right(const Number& x, DataType from, DataType to, uint64_t got) {
  const int bits = to.bits();
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  if (to == from) return got == x.bits;
  if (to.is_integer()) {
    if (from.is_integer()) return got == (static_cast<uint64_t>(x.integer) & mask);
    if (std::isnan(x.value)) return got == 0 || bits == 64;
    if (bits >= 32 && std::abs(x.value) >= 1e9) return true;  // types_test.cpp
    const double low = to.is_signed() ? -std::ldexp(1, bits - 1) : 0;
    const double high = std::ldexp(1, bits - (to.is_signed() ? 1 : 0)) - 1;
    const double whole = std::clamp(std::trunc(x.value), low, high);
    return got == (static_cast<uint64_t>(static_cast<int64_t>(whole)) & mask);
  }
  if (bits > 16) {  // hold all values of small types
    double value = 0;
    float single = 0;
    std::memcpy(&value, &got, 8), std::memcpy(&single, &got, 4);
    if (bits == 32) value = single;
    return std::isnan(x.value) ? std::isnan(value)
                               : value == x.value && std::signbit(value) == std::signbit(x.value);
  }
  if (std::isnan(x.value) && facts_of(to).specials != Specials::kNone)
    return std::isnan(textbook(to, static_cast<int>(got)));
  return got == static_cast<uint64_t>(nearest_code(to, x.value));
}

class SmallConversions : public ::testing::TestWithParam<std::tuple<Arch, int>> {};

TEST_P(SmallConversions, AreThoseOfTheTables) {
  const auto [arch, code] = GetParam();
  const DataType from{static_cast<DataType::Code>(code)};
  std::vector<DataType> targets = types(true);
  if (is_small(from))
    for (const DataType wide : types(false)) targets.push_back(wide);
  const std::vector<Number> numbers = numbers_of(from);
  const auto count = static_cast<int64_t>(numbers.size());
  const int64_t blocks = (count + kThreads * kEach - 1) / (kThreads * kEach), rows = blocks * kThreads;
  const auto number = [&](int64_t i) { return numbers[static_cast<size_t>((i + i / count) % count)]; };

  Machine machine(arch);
  const int64_t width = from.bits(), x_bytes = kEach * width / 8;
  HostTensor packed(uint8, {rows, x_bytes});
  auto* bytes = reinterpret_cast<uint8_t*>(packed.bytes().data());
  for (int64_t i = 0; i < rows * kEach; ++i)
    for (int64_t bit = 0; bit < width; ++bit)
      bytes[(i * width + bit) / 8] |=
          static_cast<uint8_t>((number(i).bits >> bit & 1) << (i * width + bit) % 8);
  DeviceTensor x = DeviceTensor::from_host(machine.device(), packed);
  const auto count_of_targets = static_cast<int64_t>(targets.size());
  DeviceTensor y = machine.output(uint8, {count_of_targets * rows, kRowBytes});
  const auto per_thread = layout::Layout::parse("[32: 32t1, 32: 32r1]");
  machine.run(
      [=](Ptr<> x_ptr, Ptr<> y_ptr) {
        grid(blocks, count_of_targets);
        warps(1);
        Int32 row = kThreads * block_idx.x;
        auto g_x = global_view(x_ptr, uint8, {rows, x_bytes});
        auto elements = view(load_global(g_x, {row, 0}, {kThreads, x_bytes}), from, per_thread);
        auto g_y = global_view(y_ptr, uint8, {count_of_targets * rows, kRowBytes});
        // Each in CTAs of its own: all together take more registers than there are.
        for (int64_t t = 0; t < count_of_targets; ++t)
          if (auto mine = when(block_idx.y == t))
            store_global(g_y, view(elements.to(targets[static_cast<size_t>(t)]), uint8), {row + t * rows, 0});
      },
      x, y);

  const std::vector<uint8_t> got = values<uint8_t>(y);
  for (size_t t = 0; t < targets.size(); ++t) {
    const DataType to = targets[t];
    const int64_t bits = to.bits();
    int failures = 0;
    for (int64_t i = 0; i < rows * kEach; ++i) {
      const uint8_t* row =
          &got[static_cast<size_t>((static_cast<int64_t>(t) * rows + i / kEach) * kRowBytes)];
      uint64_t pattern = 0;
      for (int64_t bit = 0, at = i % kEach * bits; bit < bits; ++bit, ++at)
        pattern |= static_cast<uint64_t>(row[at / 8] >> at % 8 & 1) << bit;
      if (is_right(number(i), from, to, pattern) || ++failures > 3) continue;
      ADD_FAILURE() << from.name() << " 0x" << std::hex << number(i).bits << " (" << number(i).value
                    << ") to " << to.name() << " is 0x" << pattern;
    }
    EXPECT_EQ(failures, 0) << from.name() << " to " << to.name() << ", of " << rows * kEach;
  }
}

std::vector<int> sources() {
  std::vector<int> codes;
  for (int code = 0; code < DataType::kCount; ++code)
    if (const DataType type{static_cast<DataType::Code>(code)}; !type.is_bool() && type != tfloat32)
      codes.push_back(code);
  return codes;
}

INSTANTIATE_TEST_SUITE_P(All, SmallConversions,
                         ::testing::Combine(::testing::ValuesIn(kAllArchs), ::testing::ValuesIn(sources())),
                         [](const auto& info) {
                           const DataType from{static_cast<DataType::Code>(std::get<1>(info.param))};
                           return std::string(target_name(std::get<0>(info.param))) + "_from_" +
                                  std::string(from.name());
                         });

}  // namespace
}  // namespace imbrex::testing

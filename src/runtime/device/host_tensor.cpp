// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/float_formats.h"
#include "imbrex/core/error.h"
#include "imbrex/runtime/host_tensor.h"
#include "runtime/host/parallel.h"

namespace imbrex {
namespace {

int64_t product(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

template <class T>
T saturated(double value) {
  constexpr double low = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double high = static_cast<double>(std::numeric_limits<T>::max());
  if (!(value > low)) return value == value ? std::numeric_limits<T>::min() : T{0};
  return value >= high ? std::numeric_limits<T>::max() : static_cast<T>(value);
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// The least and the greatest integer of fewer than 8 bits.
struct SmallRange {
  explicit SmallRange(DataType type)
      : low(type.is_signed() ? -(1 << (type.bits() - 1)) : 0),
        high((1 << (type.bits() - (type.is_signed() ? 1 : 0))) - 1) {}
  double low, high;
};

/// One 64-bit hash of a counter (splitmix64): the same stream on every machine, any element at random access.
uint64_t hash(uint64_t counter) {
  uint64_t z = counter * 0x9E3779B97F4A7C15u + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// Quantiles of the normal distribution at (i + 1/2) / 65536: a normal number is a table look-up away.
const std::vector<float>& normal_quantiles() {
  static const std::vector<float> table = [] {
    constexpr int n = 1 << 16;
    std::vector<float> quantiles(n);
    double x =
        -4.5;  // Newton on the error function, from one quantile to the next; symmetric by construction
    for (int i = 0; i < n / 2; ++i) {
      double p = (i + 0.5) / n;
      for (int step = 0; step < 60; ++step) {
        double error = 0.5 * std::erfc(-x * M_SQRT1_2) - p;
        double density = std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
        double delta = std::clamp(error / density, -0.5, 0.5);
        x -= delta;
        if (std::abs(delta) < 1e-9) break;
      }
      quantiles[i] = static_cast<float>(x);
      quantiles[n - 1 - i] = static_cast<float>(-x);
    }
    return quantiles;
  }();
  return table;
}

}  // namespace

HostTensor::HostTensor(DataType dtype, std::vector<int64_t> shape) : dtype_(dtype), shape_(std::move(shape)) {
  for (int64_t extent : shape_)
    if (extent < 0)
      throw LaunchError(
          Diagnostic{{},
                     fmt::format("tensor of shape [{}]: negative extent", fmt::join(shape_, ", ")),
                     {},
                     "extents are 0 or more"});
  bytes_.resize(static_cast<size_t>((elements() * dtype.bits() + 7) / 8));
}

int64_t HostTensor::elements() const { return product(shape_); }

double HostTensor::get(int64_t index) const {
  double value;
  to_doubles(index, 1, &value);
  return value;
}

void HostTensor::set(int64_t index, double value) {
  std::byte* at = bytes_.data() + index * dtype_.bytes();
  auto put = [&](auto bits) { std::memcpy(at, &bits, sizeof bits); };
  switch (dtype_.code) {
    case DataType::kBool:
      return put(static_cast<uint8_t>(value != 0));
    case DataType::kInt8:
      return put(saturated<int8_t>(value));
    case DataType::kInt16:
      return put(saturated<int16_t>(value));
    case DataType::kInt32:
      return put(saturated<int32_t>(value));
    case DataType::kInt64:
      return put(saturated<int64_t>(value));
    case DataType::kUInt8:
      return put(saturated<uint8_t>(value));
    case DataType::kUInt16:
      return put(saturated<uint16_t>(value));
    case DataType::kUInt32:
      return put(saturated<uint32_t>(value));
    case DataType::kUInt64:
      return put(saturated<uint64_t>(value));
    default:
      break;
  }
  if (dtype_.is_integer()) {
    const SmallRange range(dtype_);
    const auto whole = value == value ? static_cast<int>(std::clamp(value, range.low, range.high)) : 0;
    return arith::set_packed_element(bytes_.data(), dtype_.bits(), index, static_cast<uint8_t>(whole));
  }
  uint64_t bits = arith::encode(arith::float_format(dtype_), value, {.satfinite = dtype_.bits() <= 8});
  if (dtype_.bits() < 8)
    arith::set_packed_element(bytes_.data(), dtype_.bits(), index, static_cast<uint8_t>(bits));
  else
    std::memcpy(at, &bits, dtype_.bytes());
}

void HostTensor::to_doubles(int64_t first, int64_t count, double* out) const {
  const std::byte* at = bytes_.data() + first * dtype_.bytes();
  auto read = [&]<class T>(T) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<double>(load<T>(at + i * sizeof(T)));
  };
  switch (dtype_.code) {
    case DataType::kBool:
    case DataType::kUInt8:
      return read(uint8_t{});
    case DataType::kInt8:
      return read(int8_t{});
    case DataType::kInt16:
      return read(int16_t{});
    case DataType::kInt32:
      return read(int32_t{});
    case DataType::kInt64:
      return read(int64_t{});
    case DataType::kUInt16:
      return read(uint16_t{});
    case DataType::kUInt32:
      return read(uint32_t{});
    case DataType::kUInt64:
      return read(uint64_t{});
    case DataType::kFloat32:
      return read(float{});
    case DataType::kFloat64:
      return read(double{});
    default:
      break;
  }
  if (dtype_.is_integer()) {
    const SmallRange range(dtype_);
    for (int64_t i = 0; i < count; ++i) {
      const double code = arith::packed_element(bytes_.data(), dtype_.bits(), first + i);
      out[i] = code > range.high ? code - 2 * range.high - 2 : code;
    }
    return;
  }
  const arith::FloatFormat& format = arith::float_format(dtype_);
  if (dtype_.bits() < 8) {
    for (int64_t i = 0; i < count; ++i)
      out[i] = arith::decode(format, arith::packed_element(bytes_.data(), dtype_.bits(), first + i));
    return;
  }
  float chunk[256];
  for (int64_t done = 0; done < count; done += 256) {
    int64_t n = std::min<int64_t>(256, count - done);
    arith::decode_array(format, at + done * dtype_.bytes(), chunk, n);
    std::copy_n(chunk, n, out + done);
  }
}

std::vector<double> HostTensor::to_doubles() const {
  std::vector<double> values(static_cast<size_t>(elements()));
  to_doubles(0, elements(), values.data());
  return values;
}

HostTensor HostTensor::random(DataType dtype, std::vector<int64_t> shape, uint64_t seed, double deviation) {
  HostTensor tensor(dtype, std::move(shape));
  const uint64_t stream = hash(seed) | 1;
  const int64_t n = tensor.elements();
  if (dtype.bits() < 8 && dtype.is_integer()) {  // every value as often
    const SmallRange range(dtype);
    const auto codes = static_cast<uint64_t>(range.high - range.low + 1);
    for (int64_t i = 0; i < n; ++i)
      tensor.set(i, range.low + static_cast<double>((hash(stream + static_cast<uint64_t>(i)) >> 32) % codes));
    return tensor;
  }
  if (!dtype.is_float()) {
    const bool is_wide = dtype.is_signed();
    for (int64_t i = 0; i < n; ++i) {
      int64_t value = static_cast<int64_t>(hash(stream + i) % 17);
      tensor.set(i, static_cast<double>(dtype.is_bool() ? value & 1 : is_wide ? value - 8 : value));
    }
    return tensor;
  }
  const std::vector<float>& quantiles = normal_quantiles();
  const auto scale = static_cast<float>(deviation);
  constexpr int64_t kChunk = 256, kOnOneThread = 1 << 20;  // elements
  const auto fill = [&](int64_t first, int64_t last) {
    float chunk[kChunk];
    for (int64_t done = first * kChunk; done < std::min(n, last * kChunk); done += kChunk) {
      const int64_t count = std::min(kChunk, n - done);
      for (int64_t i = 0; i < count; i += 4) {
        uint64_t bits = hash(stream + static_cast<uint64_t>(done + i));
        for (int64_t j = i; j < std::min(i + 4, count); ++j, bits >>= 16)
          chunk[j] = scale * quantiles[bits & 0xFFFF];
      }
      // Formats without a sign get magnitudes.
      if (!arith::float_format(dtype).has_sign)
        for (int64_t i = 0; i < count; ++i) chunk[i] = std::abs(chunk[i]);
      if (dtype == float64 || dtype.bits() < 8) {
        for (int64_t i = 0; i < count; ++i) tensor.set(done + i, chunk[i]);
      } else {
        arith::encode_array(arith::float_format(dtype), chunk, tensor.bytes_.data() + done * dtype.bytes(),
                            count);
      }
    }
  };
  const int64_t chunks = (n + kChunk - 1) / kChunk;
  if (n <= kOnOneThread)
    fill(0, chunks);
  else
    runtime::parallel_rows(chunks, fill);
  return tensor;
}

HostTensor HostTensor::iota(DataType dtype, std::vector<int64_t> shape) {
  HostTensor tensor(dtype, std::move(shape));
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, static_cast<double>(i % 256));
  return tensor;
}

}  // namespace imbrex

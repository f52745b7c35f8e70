// SPDX-License-Identifier: Apache-2.0
// Compiled once per instruction set by Highway's foreach_target; the best one is picked at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vgpu/tensor_cores/matmul.cpp"
#include "vgpu/tensor_cores/matmul.h"
#include "core/float_formats.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace imbrex::vgpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of D kept in registers at once; two vectors of columns each. 8 x 2 accumulators leave room for
// operands in the 32 registers of AVX-512, 4 x 2 in the 16 of AVX2.
#if HWY_TARGET <= HWY_AVX3
constexpr int64_t kRows = 8;
#else
constexpr int64_t kRows = 4;
#endif

template <class V>
HWY_INLINE V fused(V a, V b, V c, float) {
  return hn::MulAdd(a, b, c);
}
template <class V>
HWY_INLINE V fused(V a, V b, V c, int32_t) {
  return hn::Add(hn::Mul(a, b), c);
}

// kMax is a constant so that the compiler unrolls and keeps the accumulators in registers.
template <int64_t kMax, int kVectors, class D, class T>
HWY_INLINE void tile(D d, const T* HWY_RESTRICT a, int64_t a_pitch, const T* HWY_RESTRICT b, int64_t b_pitch,
                     T* HWY_RESTRICT out, int64_t out_pitch, int64_t k_size, bool accumulate) {
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[kMax][kVectors];
  for (int64_t r = 0; r < kMax; ++r)
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = accumulate ? hn::LoadU(d, out + r * out_pitch + v * lanes) : hn::Zero(d);
  for (int64_t k = 0; k < k_size; ++k) {
    V column[kVectors];
    for (int v = 0; v < kVectors; ++v) column[v] = hn::LoadU(d, b + k * b_pitch + v * lanes);
    for (int64_t r = 0; r < kMax; ++r) {
      const V factor = hn::Set(d, a[r * a_pitch + k]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = fused(factor, column[v], sum[r][v], T{});
    }
  }
  for (int64_t r = 0; r < kMax; ++r)
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, out + r * out_pitch + v * lanes);
}

template <int kVectors, class D, class T>
HWY_INLINE void strip(D d, const T* a, int64_t a_pitch, const T* b, int64_t b_pitch, T* out,
                      int64_t out_pitch, int64_t m, int64_t k, bool accumulate) {
  int64_t i = 0;
  for (; i + kRows <= m; i += kRows)
    tile<kRows, kVectors>(d, a + i * a_pitch, a_pitch, b, b_pitch, out + i * out_pitch, out_pitch, k,
                          accumulate);
  for (; i < m; ++i)
    tile<1, kVectors>(d, a + i * a_pitch, a_pitch, b, b_pitch, out + i * out_pitch, out_pitch, k, accumulate);
}

template <class T>
HWY_INLINE void multiply_add(const T* a, int64_t a_pitch, const T* b, int64_t b_pitch, T* out,
                             int64_t out_pitch, int64_t m, int64_t n, int64_t k, bool accumulate) {
  const hn::ScalableTag<T> wide;
  const hn::CappedTag<T, 8> narrow;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(wide));
  const int64_t narrow_lanes = static_cast<int64_t>(hn::Lanes(narrow));
  int64_t j = 0;
  for (; j + 2 * lanes <= n; j += 2 * lanes)
    strip<2>(wide, a, a_pitch, b + j, b_pitch, out + j, out_pitch, m, k, accumulate);
  for (; j + lanes <= n; j += lanes)
    strip<1>(wide, a, a_pitch, b + j, b_pitch, out + j, out_pitch, m, k, accumulate);
  for (; j < n; j += narrow_lanes)
    strip<1>(narrow, a, a_pitch, b + j, b_pitch, out + j, out_pitch, m, k, accumulate);
}

void multiply_add_f32(const float* a, int64_t a_pitch, const float* b, int64_t b_pitch, float* d,
                      int64_t d_pitch, int64_t m, int64_t n, int64_t k, bool accumulate) {
  multiply_add(a, a_pitch, b, b_pitch, d, d_pitch, m, n, k, accumulate);
}

void multiply_add_i32(const int32_t* a, int64_t a_pitch, const int32_t* b, int64_t b_pitch, int32_t* d,
                      int64_t d_pitch, int64_t m, int64_t n, int64_t k, bool accumulate) {
  multiply_add(a, a_pitch, b, b_pitch, d, d_pitch, m, n, k, accumulate);
}

void transpose_32(const uint32_t* from, int64_t from_pitch, uint32_t* to, int64_t to_pitch, int64_t rows,
                  int64_t columns) {
  int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<uint32_t, 4> d;
  const hn::FixedTag<uint64_t, 2> d2;
  for (; r + 4 <= rows; r += 4) {
    int64_t c = 0;
    for (; c + 4 <= columns; c += 4) {
      const uint32_t* at = from + r * from_pitch + c;
      const auto r0 = hn::LoadU(d, at), r1 = hn::LoadU(d, at + from_pitch);
      const auto r2 = hn::LoadU(d, at + 2 * from_pitch), r3 = hn::LoadU(d, at + 3 * from_pitch);
      const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d, r0, r1));
      const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d, r2, r3));
      const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d, r0, r1));
      const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d, r2, r3));
      uint32_t* out = to + c * to_pitch + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, low01, low23)), d, out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, low01, low23)), d, out + to_pitch);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, high01, high23)), d, out + 2 * to_pitch);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, high01, high23)), d, out + 3 * to_pitch);
    }
    for (; c < columns; ++c)
      for (int64_t i = r; i < r + 4; ++i) to[c * to_pitch + i] = from[i * from_pitch + c];
  }
#endif
  for (; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * to_pitch + r] = from[r * from_pitch + c];
}

void decode_f16(const uint16_t* from, float* to, int64_t count) {
  int64_t i = 0;
#if HWY_TARGET <= HWY_AVX2  // without an instruction for it Highway makes numbers of infinities
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> half;
  const hn::Rebind<uint16_t, decltype(d)> bits;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::PromoteTo(d, hn::BitCast(half, hn::LoadU(bits, from + i))), d, to + i);
#endif
  for (; i < count; ++i) to[i] = arith::f16_to_f32(from[i]);
}

void decode_bf16(const uint16_t* from, float* to, int64_t count) {
  const hn::ScalableTag<uint32_t> d;
  const hn::Rebind<uint16_t, decltype(d)> half;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  uint32_t* out = reinterpret_cast<uint32_t*>(to);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(half, from + i))), d, out + i);
  for (; i < count; ++i) out[i] = static_cast<uint32_t>(from[i]) << 16;
}

}  // namespace imbrex::vgpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <array>
#include <bit>

#include "imbrex/core/error.h"

namespace imbrex::vgpu {

HWY_EXPORT(multiply_add_f32);
HWY_EXPORT(multiply_add_i32);
HWY_EXPORT(transpose_32);
HWY_EXPORT(decode_f16);
HWY_EXPORT(decode_bf16);

void multiply_add_f32(const float* a, int64_t a_pitch, const float* b, int64_t b_pitch, float* d,
                      int64_t d_pitch, int64_t m, int64_t n, int64_t k, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(multiply_add_f32)(a, a_pitch, b, b_pitch, d, d_pitch, m, n, k, accumulate);
}

void multiply_add_i32(const int32_t* a, int64_t a_pitch, const int32_t* b, int64_t b_pitch, int32_t* d,
                      int64_t d_pitch, int64_t m, int64_t n, int64_t k, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(multiply_add_i32)(a, a_pitch, b, b_pitch, d, d_pitch, m, n, k, accumulate);
}

void transpose_32(const void* from, int64_t from_pitch, void* to, int64_t to_pitch, int64_t rows,
                  int64_t columns) {
  HWY_DYNAMIC_DISPATCH(transpose_32)
  (static_cast<const uint32_t*>(from), from_pitch, static_cast<uint32_t*>(to), to_pitch, rows, columns);
}

namespace {

// Values of the formats of up to 8 bits, by byte; bits above the format's width are ignored.
using ByteValues = std::array<float, 256>;

ByteValues byte_values(DataType type) {
  ByteValues values;
  const arith::FloatFormat& format = arith::float_format(type);
  for (int i = 0; i < 256; ++i)
    values[static_cast<size_t>(i)] = static_cast<float>(arith::decode(format, static_cast<uint64_t>(i)));
  return values;
}

const ByteValues& values_of(DataType type) {
  static const ByteValues kE4M3 = byte_values(float8_e4m3), kE5M2 = byte_values(float8_e5m2),
                          kE2M3 = byte_values(float6_e2m3), kE3M2 = byte_values(float6_e3m2),
                          kE2M1 = byte_values(float4_e2m1);
  switch (type.code) {
    case DataType::kFloat8E4M3:
      return kE4M3;
    case DataType::kFloat8E5M2:
      return kE5M2;
    case DataType::kFloat6E2M3:
      return kE2M3;
    case DataType::kFloat6E3M2:
      return kE3M2;
    case DataType::kFloat4E2M1:
      return kE2M1;
    default:
      throw InternalError("no tensor-core operand has type " + std::string(type.name()));
  }
}

}  // namespace

void decode_operand(DataType type, const void* from, float* to, int64_t count) {
  switch (type.code) {
    case DataType::kFloat16:
      HWY_DYNAMIC_DISPATCH(decode_f16)(static_cast<const uint16_t*>(from), to, count);
      return;
    case DataType::kBFloat16:
      HWY_DYNAMIC_DISPATCH(decode_bf16)(static_cast<const uint16_t*>(from), to, count);
      return;
    case DataType::kTFloat32: {
      const uint32_t* words = static_cast<const uint32_t*>(from);
      for (int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(words[i] & 0xFFFFE000u);
      return;
    }
    default: {
      const ByteValues& values = values_of(type);
      const uint8_t* bytes = static_cast<const uint8_t*>(from);
      for (int64_t i = 0; i < count; ++i) to[i] = values[bytes[i]];
    }
  }
}

}  // namespace imbrex::vgpu
#endif  // HWY_ONCE

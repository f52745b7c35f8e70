// SPDX-License-Identifier: Apache-2.0
#include "vgpu/tensor_cores/tensor_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "core/float_formats.h"
#include "vgpu/tensor_cores/matmul.h"

namespace imbrex::vgpu {
namespace {

// Buffers of one host thread. 32-bit elements are f32 or s32, as the product is.
struct Scratch {
  std::vector<uint32_t> a;                      // fast: [m][k]
  std::vector<uint32_t> b;                      // fast: [k][n + padding]
  std::vector<uint32_t> decoded;                // before a transposition
  std::vector<uint32_t> tile;                   // D where it has another form than f32 cells
  std::vector<uint8_t> a_patterns, b_patterns;  // exact: K-major
  std::vector<uint8_t> kept_patterns;           // of b, those that a row of a sparse a meets
  std::vector<int16_t> a_wide, b_wide;          // saturating integers
  std::vector<uint32_t> c;
};

Scratch& scratch() {
  thread_local Scratch buffers;
  return buffers;
}

template <class T>
T* room(std::vector<T>& buffer, int64_t count) {
  if (static_cast<int64_t>(buffer.size()) < count) buffer.resize(static_cast<size_t>(count));
  return buffer.data();
}

// Rows of b in [k][n] start at different cache sets.
int64_t b_pitch(const arith::MatrixShape& shape) { return shape.n + 16; }

int64_t pattern_bytes(DataType type) { return type.bits() <= 8 ? 1 : type.bytes(); }

void decode(DataType type, const void* from, uint32_t* to, int64_t count) {
  if (type == int8) {
    for (int64_t i = 0; i < count; ++i)
      to[i] = static_cast<uint32_t>(static_cast<int32_t>(static_cast<const int8_t*>(from)[i]));
  } else if (type == uint8) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<const uint8_t*>(from)[i];
  } else {
    decode_operand(type, from, reinterpret_cast<float*>(to), count);
  }
}

template <class T>
void transpose(const void* from, void* to, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      static_cast<T*>(to)[c * rows + r] = static_cast<const T*>(from)[r * columns + c];
}

// Patterns to K-major order: [lines][k].
void copy_k_major(const void* from, void* to, Major major, int64_t lines, int64_t k, int64_t bytes) {
  if (major == Major::kK)
    std::memcpy(to, from, static_cast<size_t>(lines * k * bytes));
  else if (bytes == 1)
    transpose<uint8_t>(from, to, k, lines);
  else if (bytes == 2)
    transpose<uint16_t>(from, to, k, lines);
  else
    transpose<uint32_t>(from, to, k, lines);
}

// values[line][k], or values[k][line] with `pitch`, times the factor of each block of k.
void apply_scales(float* values, int64_t line_pitch, int64_t k_pitch, int64_t lines, int64_t k,
                  const uint8_t* factors, int64_t block, const arith::FloatFormat& format) {
  const int64_t blocks = k / block;
  for (int64_t line = 0; line < lines; ++line)
    for (int64_t i = 0; i < k; ++i)
      values[line * line_pitch + i * k_pitch] *=
          static_cast<float>(arith::decode(format, factors[line * blocks + i / block]));
}

}  // namespace

TensorProduct::TensorProduct(const ProductSpec& spec, TensorMath math) : spec_(spec) {
  if (math != TensorMath::kExact || is_integer()) return;
  // What a sparse a leaves out is not added as zeros: the sum is that of a product of half the depth.
  if (!spec.sparse || !spec.scale)
    exact_ = arith::tensor_arith(spec.sm, spec.instruction, spec.a, spec.b, spec.d, stored_k(), spec.scale,
                                 spec.scale_block);
  if (!exact_)
    problem_ =
        fmt::format("no exact model of {}{} x {} to {} on sm_{} is known; TensorMath::kFast computes it",
                    spec.sparse ? "sparse " : "", spec.a.name(), spec.b.name(), spec.d.name(), spec.sm);
}

void TensorProduct::load_a(const void* patterns, Major major) {
  const int64_t m = spec_.shape.m, k = stored_k();
  Scratch& s = scratch();
  if (exact_) {
    const int64_t bytes = pattern_bytes(spec_.a);
    copy_k_major(patterns, room(s.a_patterns, m * k * bytes), major, m, k, bytes);
    return;
  }
  uint32_t* a = room(s.a, m * k);
  if (major == Major::kK) {
    decode(spec_.a, patterns, a, m * k);
  } else {
    decode(spec_.a, patterns, room(s.decoded, m * k), m * k);
    transpose_32(s.decoded.data(), m, a, k, k, m);
  }
  // One sign for both negations: a product of two negated factors is the product.
  if (!is_integer() && spec_.negate_a != spec_.negate_b)
    for (int64_t i = 0; i < m * k; ++i) a[i] ^= 0x80000000u;
}

void TensorProduct::load_places(const uint8_t* places) {
  places_ = places;
  if (!is_integer()) return;
  // Zeros do no harm to integers: a becomes dense.
  const int64_t m = spec_.shape.m, k = spec_.shape.k, stored = stored_k();
  Scratch& s = scratch();
  uint32_t* from = room(s.decoded, m * stored);
  std::memcpy(from, s.a.data(), static_cast<size_t>(m * stored) * 4);
  uint32_t* a = room(s.a, m * k);
  std::fill(a, a + m * k, 0);
  for (int64_t i = 0; i < m * stored; ++i) a[i / stored * k + places[i]] = from[i];
}

void TensorProduct::load_b(const void* patterns, Major major) {
  const auto [m, n, k] = spec_.shape;
  Scratch& s = scratch();
  if (exact_) {
    const int64_t bytes = pattern_bytes(spec_.b);
    copy_k_major(patterns, room(s.b_patterns, n * k * bytes), major, n, k, bytes);
    return;
  }
  const int64_t pitch = b_pitch(spec_.shape);
  uint32_t* b = room(s.b, k * pitch);
  if (major == Major::kK) {
    decode(spec_.b, patterns, room(s.decoded, n * k), n * k);
    transpose_32(s.decoded.data(), k, b, pitch, n, k);
  } else {
    const auto* from = static_cast<const uint8_t*>(patterns);
    for (int64_t i = 0; i < k; ++i) decode(spec_.b, from + i * n * pattern_bytes(spec_.b), b + i * pitch, n);
  }
}

void TensorProduct::load_scales(const uint8_t* a_scales, const uint8_t* b_scales) {
  a_scales_ = a_scales;
  b_scales_ = b_scales;
  if (exact_) return;
  const auto [m, n, k] = spec_.shape;
  const arith::FloatFormat& format = spec_.scale == float8_e8m0 ? arith::kUE8M0 : arith::kUE4M3;
  Scratch& s = scratch();
  const int64_t stored = stored_k();
  apply_scales(reinterpret_cast<float*>(s.a.data()), stored, 1, m, stored, a_scales,
               spec_.scale_block * stored / k, format);
  apply_scales(reinterpret_cast<float*>(s.b.data()), 1, b_pitch(spec_.shape), n, k, b_scales,
               spec_.scale_block, format);
}

void TensorProduct::multiply(int64_t row, int64_t rows, int64_t column, int64_t columns, uint32_t* d,
                             int64_t pitch, bool add) {
  if (exact_)
    multiply_exact(row, rows, column, columns, d, pitch, add);
  else if (spec_.saturate)
    multiply_saturating(row, rows, column, columns, d, pitch, add);
  else
    multiply_fast(row, rows, column, columns, d, pitch, add);
}

/// d += a b, or d = a b.
void TensorProduct::add_products(int64_t row, int64_t rows, int64_t column, int64_t columns, float* d,
                                 int64_t pitch, bool add) {
  const int64_t k = stored_k(), b_stride = b_pitch(spec_.shape);
  Scratch& s = scratch();
  const auto* a = reinterpret_cast<const float*>(s.a.data()) + row * k;
  const auto* b = reinterpret_cast<const float*>(s.b.data()) + column;
  if (!spec_.sparse) {
    multiply_add_f32(a, k, b, b_stride, d, pitch, rows, columns, k, add);
    return;
  }
  // An infinity in a row of b that a leaves out must not make a NaN: only the rows that are met are multiplied.
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < k; ++j)
      multiply_add_f32(a + i * k + j, 1, b + places_[(row + i) * k + j] * b_stride, b_stride, d + i * pitch,
                       pitch, 1, columns, 1, add || j > 0);
}

void TensorProduct::multiply_fast(int64_t row, int64_t rows, int64_t column, int64_t columns, uint32_t* d,
                                  int64_t pitch, bool add) {
  Scratch& s = scratch();
  if (is_integer()) {
    const int64_t k = spec_.shape.k;
    multiply_add_i32(reinterpret_cast<const int32_t*>(s.a.data()) + row * k, k,
                     reinterpret_cast<const int32_t*>(s.b.data()) + column, b_pitch(spec_.shape),
                     reinterpret_cast<int32_t*>(d), pitch, rows, columns, k, add);
    return;
  }
  const bool half = spec_.d == float16;
  if (!half && (spec_.scale_input_d == 0 || !add)) {
    add_products(row, rows, column, columns, reinterpret_cast<float*>(d), pitch, add);
    return;
  }
  auto* tile = reinterpret_cast<float*>(room(s.tile, rows * columns));
  const float factor = std::bit_cast<float>(static_cast<uint32_t>(127 - spec_.scale_input_d) << 23);
  for (int64_t i = 0; add && i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const uint32_t cell = d[i * pitch + j];
      tile[i * columns + j] =
          factor * (half ? arith::f16_to_f32(static_cast<uint16_t>(cell)) : std::bit_cast<float>(cell));
    }
  add_products(row, rows, column, columns, tile, columns, add);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const float value = tile[i * columns + j];
      d[i * pitch + j] = half ? arith::f32_to_f16(value) : std::bit_cast<uint32_t>(value);
    }
}

void TensorProduct::multiply_exact(int64_t row, int64_t rows, int64_t column, int64_t columns, uint32_t* d,
                                   int64_t pitch, bool add) {
  const int64_t k = spec_.shape.k, stored = stored_k(), bytes = pattern_bytes(spec_.b);
  Scratch& s = scratch();
  const uint8_t* b = s.b_patterns.data() + column * k * bytes;
  if (!spec_.sparse) {
    multiply_exact_rows(row, rows, column, columns, b, d, pitch, add);
    return;
  }
  uint8_t* kept = room(s.kept_patterns, columns * stored * bytes);
  for (int64_t i = 0; i < rows; ++i) {
    const uint8_t* places = places_ + (row + i) * stored;
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t e = 0; e < stored; ++e)
        std::memcpy(kept + (j * stored + e) * bytes, b + (j * k + places[e]) * bytes,
                    static_cast<size_t>(bytes));
    multiply_exact_rows(row + i, 1, column, columns, kept, d + i * pitch, pitch, add);
  }
}

/// The rows of a given, with columns of b that have the elements these rows meet.
void TensorProduct::multiply_exact_rows(int64_t row, int64_t rows, int64_t column, int64_t columns,
                                        const void* b, uint32_t* d, int64_t pitch, bool add) {
  const int64_t k = stored_k();
  Scratch& s = scratch();
  const bool half = exact_->output == arith::TensorOutput::kF16Nearest;
  // The model wants f16 results two bytes each.
  uint32_t* c = half ? room(s.c, rows * columns) : d;
  auto* c16 = reinterpret_cast<uint16_t*>(c);
  for (int64_t i = 0; add && half && i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) c16[i * columns + j] = static_cast<uint16_t>(d[i * pitch + j]);
  arith::TensorModifiers modifiers;
  if (!half) modifiers.pitch = pitch;
  modifiers.negate_a = spec_.negate_a;
  modifiers.negate_b = spec_.negate_b;
  modifiers.scale_input_d = spec_.scale_input_d;
  if (a_scales_ != nullptr) {
    modifiers.a_scales = a_scales_ + row * (k / spec_.scale_block);
    modifiers.b_scales = b_scales_ + column * (k / spec_.scale_block);
  }
  arith::multiply_accumulate(*exact_, {rows, columns, k},
                             s.a_patterns.data() + row * k * pattern_bytes(spec_.a), b, add ? c : nullptr, c,
                             modifiers);
  for (int64_t i = 0; half && i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) d[i * pitch + j] = c16[i * columns + j];
}

void TensorProduct::multiply_saturating(int64_t row, int64_t rows, int64_t column, int64_t columns,
                                        uint32_t* d, int64_t pitch, bool add) {
  const int64_t k = spec_.shape.k;
  Scratch& s = scratch();
  int16_t* a = room(s.a_wide, rows * k);
  int16_t* b = room(s.b_wide, columns * k);
  for (int64_t i = 0; i < rows * k; ++i) a[i] = static_cast<int16_t>(s.a[static_cast<size_t>(row * k + i)]);
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < k; ++i)
      b[j * k + i] = static_cast<int16_t>(s.b[static_cast<size_t>(i * b_pitch(spec_.shape) + column + j)]);
  auto* c = reinterpret_cast<int32_t*>(room(s.c, rows * columns));
  for (int64_t i = 0; i < rows; ++i)
    std::memcpy(c + i * columns, d + i * pitch, static_cast<size_t>(columns) * 4);
  arith::multiply_accumulate_int({rows, columns, k}, a, b, add ? c : nullptr, c, true);
  for (int64_t i = 0; i < rows; ++i)
    std::memcpy(d + i * pitch, c + i * columns, static_cast<size_t>(columns) * 4);
}

std::optional<DataType> product_type(ptx::ScalarType type) {
  using ptx::ScalarType;
  switch (type) {
    case ScalarType::f16:
      return float16;
    case ScalarType::bf16:
      return bfloat16;
    case ScalarType::tf32:
      return tfloat32;
    case ScalarType::e4m3:
      return float8_e4m3;
    case ScalarType::e5m2:
      return float8_e5m2;
    case ScalarType::s8:
      return int8;
    case ScalarType::u8:
      return uint8;
    default:
      return std::nullopt;
  }
}

}  // namespace imbrex::vgpu

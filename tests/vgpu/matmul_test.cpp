// SPDX-License-Identifier: Apache-2.0
#include "vgpu/tensor_cores/matmul.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "core/float_formats.h"

namespace imbrex::vgpu {
namespace {

// Small integers: every sum is exact in f32, so any order of additions gives the same bits.
float small(int64_t i) { return static_cast<float>((i * 7 + i / 5) % 17 - 8); }

TEST(Matmul, EqualsThePlainLoopForEveryTail) {
  for (int64_t m : {1, 7, 8, 13, 128})
    for (int64_t n : {8, 16, 24, 40, 72, 256})
      for (int64_t k : {1, 4, 16})
        for (bool accumulate : {false, true}) {
          const int64_t a_pitch = k + 3, b_pitch = n + 8, d_pitch = n + 16;
          std::vector<float> a(static_cast<size_t>(m * a_pitch)), b(static_cast<size_t>(k * b_pitch)),
              d(static_cast<size_t>(m * d_pitch), 5.0f);
          for (size_t i = 0; i < a.size(); ++i) a[i] = small(static_cast<int64_t>(i));
          for (size_t i = 0; i < b.size(); ++i) b[i] = small(static_cast<int64_t>(i) + 3);
          multiply_add_f32(a.data(), a_pitch, b.data(), b_pitch, d.data(), d_pitch, m, n, k, accumulate);
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < d_pitch; ++j) {
              float expected = j >= n || accumulate ? 5.0f : 0.0f;
              if (j < n)
                for (int64_t x = 0; x < k; ++x)
                  expected +=
                      a[static_cast<size_t>(i * a_pitch + x)] * b[static_cast<size_t>(x * b_pitch + j)];
              ASSERT_EQ(d[static_cast<size_t>(i * d_pitch + j)], expected)
                  << "m " << m << " n " << n << " k " << k << " at " << i << ", " << j;
            }
        }
}

TEST(Matmul, IntegersWrap) {
  const std::vector<int32_t> a{0x7FFFFFFF, 2, -3, 4}, b(16, 0x10001);
  std::vector<int32_t> d(16, 9);
  multiply_add_i32(a.data(), 2, b.data(), 8, d.data(), 8, 2, 8, 2, true);
  EXPECT_EQ(static_cast<uint32_t>(d[0]), 9u + 0x7FFFFFFFu * 0x10001u + 2u * 0x10001u);
  EXPECT_EQ(static_cast<uint32_t>(d[15]), 9u + 0x10001u);
}

TEST(Matmul, Transpose) {
  for (int64_t rows : {1, 4, 10, 64})
    for (int64_t columns : {1, 4, 16, 18}) {
      std::vector<uint32_t> from(static_cast<size_t>(rows * 20)), to(static_cast<size_t>(columns * 70), 0);
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint32_t>(i * 2654435761u);
      transpose_32(from.data(), 20, to.data(), 70, rows, columns);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
          ASSERT_EQ(to[static_cast<size_t>(c * 70 + r)], from[static_cast<size_t>(r * 20 + c)]);
    }
}

TEST(Matmul, DecodesEveryPattern) {
  for (DataType type : {float16, bfloat16}) {
    std::vector<uint16_t> from(65536);
    std::vector<float> to(65536);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint16_t>(i);
    decode_operand(type, from.data(), to.data(), 65536);
    for (size_t i = 0; i < from.size(); ++i) {
      const double expected = arith::decode(arith::float_format(type), i);
      if (std::isnan(expected))
        ASSERT_TRUE(std::isnan(to[i])) << i;
      else
        ASSERT_EQ(to[i], static_cast<float>(expected)) << i;
    }
  }
  for (DataType type : {float8_e4m3, float8_e5m2, float6_e2m3, float6_e3m2, float4_e2m1}) {
    const int patterns = 1 << type.bits();
    std::vector<uint8_t> from(static_cast<size_t>(patterns));
    std::vector<float> to(from.size());
    for (int i = 0; i < patterns; ++i) from[static_cast<size_t>(i)] = static_cast<uint8_t>(i);
    decode_operand(type, from.data(), to.data(), patterns);
    for (size_t i = 0; i < from.size(); ++i) {
      const double expected = arith::decode(arith::float_format(type), i);
      if (std::isnan(expected))
        ASSERT_TRUE(std::isnan(to[i])) << i;
      else
        ASSERT_EQ(to[i], static_cast<float>(expected)) << type.name() << " " << i;
    }
  }
  const uint32_t word = 0x3F801FFF;
  float value = 0;
  decode_operand(tfloat32, &word, &value, 1);
  EXPECT_EQ(std::bit_cast<uint32_t>(value), 0x3F800000u);
}

}  // namespace
}  // namespace imbrex::vgpu

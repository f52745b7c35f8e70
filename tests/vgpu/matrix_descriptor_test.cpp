// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/matrix_descriptor.h"

#include <gtest/gtest.h>

#include <set>

namespace imbrex::vgpu {
namespace {

uint32_t bits(uint32_t value, int high, int low) { return value >> low & ((1u << (high - low + 1)) - 1); }

TEST(Swizzle, XorsTheAddressBitsItsNameSays) {
  for (uint32_t a = 0; a < 4096; ++a) {
    EXPECT_EQ(swizzle_address(Swizzle::kNone, a), a);
    EXPECT_EQ(swizzle_address(Swizzle::k32B, a), a ^ bits(a, 7, 7) << 4);
    EXPECT_EQ(swizzle_address(Swizzle::k64B, a), a ^ bits(a, 8, 7) << 4);
    EXPECT_EQ(swizzle_address(Swizzle::k128B, a), a ^ bits(a, 9, 7) << 4);
    EXPECT_EQ(swizzle_address(Swizzle::k128BAtom32B, a), a ^ bits(a, 8, 7) << 5);
    EXPECT_EQ(swizzle_address(Swizzle::k128BAtom32BFlip8B, a), a ^ bits(a, 8, 7) << 5 ^ bits(a, 7, 7) << 3);
    EXPECT_EQ(swizzle_address(Swizzle::k128BAtom64B, a), a ^ bits(a, 7, 7) << 6);
    EXPECT_EQ(swizzle_address(Swizzle::k96B, a), a ^ bits(a, 7, 7) << 4);
  }
}

TEST(Swizzle, IsAnInvolutionThatRepeatsWithItsPeriod) {
  for (int m = 0; m < 8; ++m) {
    const auto mode = static_cast<Swizzle>(m);
    for (uint32_t a = 0; a < 2048; ++a) {
      EXPECT_EQ(swizzle_address(mode, swizzle_address(mode, a)), a);
      EXPECT_EQ(swizzle_address(mode, a + facts(mode).period), swizzle_address(mode, a) + facts(mode).period);
    }
  }
}

// The descriptors of the hardware notes, worked out by hand there.
TEST(MatrixDescriptor, DecodesTheWgmmaFields) {
  const uint64_t word = uint64_t{0x4400 >> 4} | uint64_t{1} << 16 | uint64_t{64} << 32 | uint64_t{1} << 62;
  const DecodedDescriptor decoded = decode_wgmma_descriptor(word);
  EXPECT_EQ(decoded.problem, "");
  EXPECT_EQ(decoded.descriptor.start, 0x4400u);
  EXPECT_EQ(decoded.descriptor.leading_offset, 16u);
  EXPECT_EQ(decoded.descriptor.stride_offset, 1024u);
  EXPECT_EQ(decoded.descriptor.base_offset, 0);
  EXPECT_EQ(decoded.descriptor.swizzle, Swizzle::k128B);
  EXPECT_EQ(decode_wgmma_descriptor(uint64_t{2} << 62).descriptor.swizzle, Swizzle::k64B);
  EXPECT_EQ(decode_wgmma_descriptor(uint64_t{3} << 62).descriptor.swizzle, Swizzle::k32B);
  EXPECT_EQ(decode_wgmma_descriptor(uint64_t{5} << 49).descriptor.base_offset, 5);
}

TEST(MatrixDescriptor, DecodesTheTcgen05Fields) {
  const uint64_t word =
      uint64_t{0x400 >> 4} | uint64_t{1} << 16 | uint64_t{64} << 32 | uint64_t{1} << 46 | uint64_t{2} << 61;
  const DecodedDescriptor decoded = decode_tcgen05_descriptor(word);
  EXPECT_EQ(decoded.problem, "");
  EXPECT_EQ(decoded.descriptor.start, 0x400u);
  EXPECT_EQ(decoded.descriptor.stride_offset, 1024u);
  EXPECT_EQ(decoded.descriptor.swizzle, Swizzle::k128B);
  const uint64_t version = uint64_t{1} << 46;
  EXPECT_EQ(decode_tcgen05_descriptor(version | uint64_t{1} << 61).descriptor.swizzle, Swizzle::k128BAtom32B);
  EXPECT_EQ(decode_tcgen05_descriptor(version | uint64_t{4} << 61).descriptor.swizzle, Swizzle::k64B);
  EXPECT_EQ(decode_tcgen05_descriptor(version | uint64_t{6} << 61).descriptor.swizzle, Swizzle::k32B);
}

TEST(MatrixDescriptor, RefusesBitsThatMustNotBeSet) {
  EXPECT_NE(decode_wgmma_descriptor(uint64_t{1} << 14).problem, "");
  EXPECT_NE(decode_wgmma_descriptor(uint64_t{1} << 46).problem, "");
  EXPECT_NE(decode_wgmma_descriptor(uint64_t{1} << 55).problem, "");
  EXPECT_EQ(decode_tcgen05_descriptor(0).problem, "bits 48:46 must be 0b001 and are 0b0");
  const uint64_t version = uint64_t{1} << 46;
  EXPECT_EQ(decode_tcgen05_descriptor(version | uint64_t{3} << 61).problem,
            "swizzle mode 3 (bits 63:61) does not exist");
  EXPECT_NE(decode_tcgen05_descriptor(version | uint64_t{1} << 52).problem, "");
  EXPECT_NE(decode_tcgen05_descriptor(version | uint64_t{1} << 58).problem, "");
}

// The closed formula of every mode for one element, evaluated plainly.
uint32_t expected_address(const MatrixDescriptor& d, Major major, uint32_t es, uint32_t mn, uint32_t k) {
  const uint32_t lbo = d.leading_offset, sbo = d.stride_offset;
  uint32_t off = 0;
  if (d.swizzle == Swizzle::kNone) {
    off = major == Major::kK ? mn / 8 * sbo + mn % 8 * 16 + k * es / 16 * lbo + k * es % 16
                             : mn * es / 16 * sbo + mn * es % 16 + k % 8 * 16 + k / 8 * lbo;
  } else if (d.swizzle == Swizzle::k128BAtom32B && major == Major::kMn) {
    off = mn * es / 128 * lbo + mn * es % 128 + k % 4 * 128 + k / 4 * sbo;
  } else {
    const uint32_t w = d.swizzle == Swizzle::k64B ? 64 : d.swizzle == Swizzle::k32B ? 32 : 128;
    off = major == Major::kK ? mn / 8 * sbo + mn % 8 * w + k * es
                             : mn * es / w * lbo + mn * es % w + k % 8 * w + k / 8 * sbo;
  }
  const uint32_t linear = d.start + off;
  const uint32_t line = (linear >> 7) - d.base_offset;
  switch (d.swizzle) {
    case Swizzle::k128B:
      return linear ^ (line & 7) << 4;
    case Swizzle::k64B:
      return linear ^ (line & 3) << 4;
    case Swizzle::k32B:
      return linear ^ (line & 1) << 4;
    case Swizzle::k128BAtom32B:
      return linear ^ (line & 3) << 5;
    default:
      return linear;
  }
}

TEST(MatrixDescriptor, EveryElementIsWhereItsFormulaSays) {
  for (Swizzle mode : {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B, Swizzle::k128BAtom32B}) {
    for (Major major : {Major::kK, Major::kMn}) {
      for (uint8_t base : {0, 3}) {
        // Off the pattern's period and with strides that are not dense, so that nothing cancels.
        const MatrixDescriptor d{0x480, 9216, 1152, base, mode};
        const OperandAddresses addresses(d, major);
        const uint32_t span = mode == Swizzle::kNone ? 64 : facts(mode).span;
        for (uint32_t es : {1u, 2u, 4u}) {
          const uint32_t mn_size = 128, k_size = major == Major::kK ? span / es : 64;
          for (uint32_t mn = 0; mn < mn_size; ++mn)
            for (uint32_t k = 0; k < k_size; ++k) {
              const uint32_t at =
                  major == Major::kK ? addresses.byte(mn, k * es) : addresses.byte(k, mn * es);
              ASSERT_EQ(at, expected_address(d, major, es, mn, k))
                  << facts(mode).name << " es " << es << " mn " << mn << " k " << k;
            }
        }
      }
    }
  }
}

TEST(MatrixDescriptor, WorkedExample) {  // m = 3, k = 17 of a bf16 K-major 128B tile
  const OperandAddresses addresses({0, 16, 1024, 0, Swizzle::k128B}, Major::kK);
  EXPECT_EQ(addresses.byte(3, 34), 0x192u);
}

}  // namespace
}  // namespace imbrex::vgpu

// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/matrix_descriptor.h"

#include <fmt/format.h>

namespace imbrex::vgpu {
namespace {

uint64_t field(uint64_t bits, int high, int low) {
  return bits >> low & ((uint64_t{1} << (high - low + 1)) - 1);
}

MatrixDescriptor common_fields(uint64_t bits) {
  MatrixDescriptor d;
  d.start = static_cast<uint32_t>(field(bits, 13, 0)) << 4;
  d.leading_offset = static_cast<uint32_t>(field(bits, 29, 16)) << 4;
  d.stride_offset = static_cast<uint32_t>(field(bits, 45, 32)) << 4;
  d.base_offset = static_cast<uint8_t>(field(bits, 51, 49));
  return d;
}

std::string nonzero_bits(uint64_t bits, int high, int low) {
  return fmt::format("bits {}:{} must be 0 and are {:#x}", high, low, field(bits, high, low));
}

}  // namespace

DecodedDescriptor decode_wgmma_descriptor(uint64_t bits) {
  DecodedDescriptor out{common_fields(bits), ""};
  static constexpr Swizzle kModes[] = {Swizzle::kNone, Swizzle::k128B, Swizzle::k64B, Swizzle::k32B};
  out.descriptor.swizzle = kModes[field(bits, 63, 62)];
  for (auto [high, low] : {std::pair{15, 14}, {31, 30}, {48, 46}, {61, 52}})
    if (field(bits, high, low) != 0) out.problem = nonzero_bits(bits, high, low);
  return out;
}

DecodedDescriptor decode_tcgen05_descriptor(uint64_t bits) {
  DecodedDescriptor out{common_fields(bits), ""};
  switch (field(bits, 63, 61)) {
    case 0:
      out.descriptor.swizzle = Swizzle::kNone;
      break;
    case 1:
      out.descriptor.swizzle = Swizzle::k128BAtom32B;
      break;
    case 2:
      out.descriptor.swizzle = Swizzle::k128B;
      break;
    case 4:
      out.descriptor.swizzle = Swizzle::k64B;
      break;
    case 6:
      out.descriptor.swizzle = Swizzle::k32B;
      break;
    default:
      out.problem = fmt::format("swizzle mode {} (bits 63:61) does not exist", field(bits, 63, 61));
  }
  if (field(bits, 48, 46) != 1)
    out.problem = fmt::format("bits 48:46 must be 0b001 and are {:#b}", field(bits, 48, 46));
  if (field(bits, 52, 52) != 0)
    out.problem = "the absolute leading-offset mode (bit 52) exists on sm_103a only";
  for (auto [high, low] : {std::pair{15, 14}, {31, 30}, {60, 53}})
    if (field(bits, high, low) != 0) out.problem = nonzero_bits(bits, high, low);
  return out;
}

}  // namespace imbrex::vgpu

// SPDX-License-Identifier: Apache-2.0
// Which function decodes which family of ptx/families.def. A family without its function does not link.
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

// Families of several files: the first that recognises an instruction takes it.

bool decode_integer(Decoder&, Instruction&);
bool decode_wide_floats(Decoder&, Instruction&);
bool decode_half(Decoder&, Instruction&);
bool decode_tma_load(Decoder&, Instruction&);
bool decode_tma_store(Decoder&, Instruction&);

bool decode_floating_point(Decoder& decoder, Instruction& out) {
  return decode_wide_floats(decoder, out) || decode_half(decoder, out);
}
bool decode_arithmetic(Decoder& decoder, Instruction& out) {
  return decode_integer(decoder, out) || decode_floating_point(decoder, out);
}
bool decode_tensor_copy(Decoder& decoder, Instruction& out) {
  return decode_tma_load(decoder, out) || decode_tma_store(decoder, out);
}
bool decode_not_modelled(Decoder&, Instruction&) { return false; }

DecodeFunction decode_function(ptx::Family family) {
  static constexpr DecodeFunction kFunctions[] = {
#define PTX_FAMILY(name, computes, what) decode_##name,
#include "ptx/families.def"
#undef PTX_FAMILY
  };
  return kFunctions[static_cast<size_t>(family)];
}

}  // namespace imbrex::vgpu

// SPDX-License-Identifier: Apache-2.0
// mma.sync with a .kind: m16n8k32 of floats of 8, 6 and 4 bits in bytes of their own, m16n8k64 of packed 4-bit floats,
// both with or without scales for blocks of k. Fragments are those of all m16n8 shapes of 32 bytes of k (fragments.h).
//
// Scales: of the four threads that share a row, threads 2i and 2i + 1 give those of rows g and g + 8, i being the
// selector of A; of the four that share a column, one gives its scales. The other selector is the byte of the register
// where they begin.
#include "vgpu/tensor_cores/mma_kinds.h"

#include <fmt/format.h>

#include <cstring>

#include "vgpu/machine/access.h"
#include "vgpu/tensor_cores/fragments.h"
#include "vgpu/tensor_cores/tensor_core.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::ScalarType;

constexpr int64_t kRows = 16, kColumns = 8, kRowBytes = 32;
constexpr int64_t kMaxScales = 4;  // of a row

/// How an operand's elements lie in its 32 bytes a row.
struct Container {
  int bits = 8;   // of an element and what pads it
  int shift = 0;  // of the element's lowest bit
  int mask = 0xFF;
};

/// The scales of one operand: the register, and the registers or constants that say where they are in it.
struct ScaleSource {
  Slot words = 0, byte = 0, thread = 0;
};

struct KindForm {
  ProductSpec spec;
  Container a_container, b_container;
  int scales_per_row = 0;  // 0: no block scales
  ScaleSource a_scales, b_scales;
  std::vector<Slot> d, a, b, c;
};

struct Registers {
  uint32_t* at[4] = {};
  Registers(Warp& warp, const std::vector<Slot>& slots) {
    for (size_t r = 0; r < slots.size(); ++r) at[r] = warp.reg<uint32_t>(slots[r]);
  }
};

/// Patterns of the elements, a byte each.
void take_elements(const uint8_t* rows, int64_t count, int64_t k, const Container& container, uint8_t* to) {
  const int per_byte = 8 / container.bits;
  for (int64_t row = 0; row < count; ++row)
    for (int64_t i = 0; i < k; ++i) {
      const int byte = rows[row * kRowBytes + i / per_byte];
      to[row * k + i] =
          static_cast<uint8_t>(byte >> (i % per_byte * container.bits + container.shift) & container.mask);
    }
}

/// The number that all threads of the warp have in the slot; a finding where they differ or it is not below `limit`.
bool take_selector(Warp& warp, const Instruction& insn, Slot slot, const char* what, uint32_t limit,
                   uint32_t step, uint32_t& out) {
  const uint32_t* values = warp.reg<uint32_t>(slot);
  out = values[0] & 0xFFFF;
  bool good = out < limit && out % step == 0;
  for (int l = 1; l < kWarpSize; ++l) good &= (values[l] & 0xFFFF) == out;
  if (!good)
    warp.cta().cluster().report_fatal(
        FindingKind::kIllegalInstruction, warp.thread(insn, -1), 0,
        fmt::format("mma.sync: {} is {} in lane 0; it is the same in all lanes, below {}{}", what, out, limit,
                    step > 1 ? fmt::format(" and a multiple of {}", step) : ""));
  return good;
}

/// The factors of each row of A, or column of B.
bool take_scales(Warp& warp, const Instruction& insn, const KindForm& form, bool is_a, uint8_t* out) {
  const ScaleSource& from = is_a ? form.a_scales : form.b_scales;
  const int per_row = form.scales_per_row;
  uint32_t byte = 0, thread = 0;
  if (!take_selector(warp, insn, from.byte, is_a ? "byte-id-a" : "byte-id-b",
                     5 - static_cast<uint32_t>(per_row), static_cast<uint32_t>(per_row), byte) ||
      !take_selector(warp, insn, from.thread, is_a ? "thread-id-a" : "thread-id-b", is_a ? 2 : 4, 1, thread))
    return false;
  const uint32_t* words = warp.reg<uint32_t>(from.words);
  const int64_t lines = is_a ? kRows : kColumns;
  for (int64_t line = 0; line < lines; ++line) {
    const int64_t lane = is_a ? 4 * (line % 8) + 2 * thread + line / 8 : 4 * line + thread;
    for (int s = 0; s < per_row; ++s)
      out[line * per_row + s] = static_cast<uint8_t>(words[lane] >> 8 * (byte + static_cast<uint32_t>(s)));
  }
  return true;
}

Step exec_mma_kind(Warp& warp, const Instruction& insn, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  const KindForm& form = insn.form<KindForm>();
  Cluster& cluster = warp.cta().cluster();
  const int64_t k = form.spec.shape.k;
  if (cluster.launch().options.tensor_math == TensorMath::kNone) {
    cluster.statistics().tensor_flops += 2 * kRows * kColumns * k;
    return Step::kNext;
  }
  alignas(16) uint8_t a_rows[kRows * kRowBytes], b_rows[kColumns * kRowBytes];
  uint8_t a[kRows * 64], b[kColumns * 64], a_scales[kRows * kMaxScales], b_scales[kColumns * kMaxScales];
  uint32_t tile[kRows * kColumns];

  gather_a(Registers(warp, form.a).at, 4, a_rows, kRowBytes);
  const Registers b_registers(warp, form.b);
  for (int r = 0; r < 2; ++r)
    for (int l = 0; l < kWarpSize; ++l)
      std::memcpy(b_rows + l / 4 * kRowBytes + 4 * (l % 4) + 16 * r, b_registers.at[r] + l, 4);
  const bool is_half = form.spec.d == float16;
  is_half ? gather_d16(Registers(warp, form.c).at, tile, kColumns)
          : gather_d(Registers(warp, form.c).at, tile, kColumns);
  take_elements(a_rows, kRows, k, form.a_container, a);
  take_elements(b_rows, kColumns, k, form.b_container, b);

  TensorProduct product(form.spec, cluster.launch().options.tensor_math);
  if (!product.problem().empty()) {
    cluster.report_fatal(FindingKind::kIllegalInstruction, warp.thread(insn, -1), 0, product.problem());
    return Step::kNext;
  }
  product.load_a(a, Major::kK);
  product.load_b(b, Major::kK);
  if (form.scales_per_row > 0) {
    if (!take_scales(warp, insn, form, true, a_scales) || !take_scales(warp, insn, form, false, b_scales))
      return Step::kNext;
    product.load_scales(a_scales, b_scales);
  }
  product.multiply(0, kRows, 0, kColumns, tile, kColumns, true);
  const Registers d(warp, form.d);
  is_half ? scatter_d16(tile, kColumns, d.at) : scatter_d(tile, kColumns, d.at);
  cluster.statistics().tensor_flops += 2 * kRows * kColumns * k;
  return Step::kNext;
}

// Decoding --------------------------------------------------------------------------------------------------

DataType element_type(const Decoder& decoder, ScalarType type, bool is_packed, Container& container) {
  switch (type) {
    case ScalarType::e4m3:
      return float8_e4m3;
    case ScalarType::e5m2:
      return float8_e5m2;
    case ScalarType::e2m3:
      container = {8, 0, 0x3F};
      return float6_e2m3;
    case ScalarType::e3m2:
      container = {8, 0, 0x3F};
      return float6_e3m2;
    case ScalarType::e2m1:
      container = is_packed ? Container{4, 0, 0xF} : Container{8, 2, 0xF};
      return float4_e2m1;
    default:
      decoder.refuse("this kind multiplies floats of 8, 6 and 4 bits");
  }
}

std::vector<Slot> registers(Decoder& decoder, size_t index, const char* what, size_t expected,
                            bool is_destination) {
  const ptx::Operand& operand = decoder.operand(index);
  const std::span<const ptx::Operand> elements =
      operand.kind == ptx::OperandKind::vector ? decoder.elements(operand) : std::span(&operand, 1);
  if (elements.size() != expected)
    decoder.refuse(fmt::format("{} has {} registers, this shape takes {}", what, elements.size(), expected));
  std::vector<Slot> slots;
  for (const ptx::Operand& element : elements)
    slots.push_back(is_destination ? decoder.destination(element, ScalarType::b32)
                                   : decoder.source(element, ScalarType::b32));
  return slots;
}

ScaleSource scale_source(Decoder& decoder, size_t index) {
  ScaleSource source;
  source.words = registers(decoder, index, "a scale", 1, false)[0];
  const std::vector<Slot> where = registers(decoder, index + 1, "a scale's selector", 2, false);
  source.byte = where[0];
  source.thread = where[1];
  return source;
}

int scales_per_row(const Decoder& decoder) {
  const bool is_mxf8 = decoder.has(Mod::kind_mxf8f6f4), is_nvf4 = decoder.has(Mod::kind_mxf4nvf4);
  const int written = decoder.has(Mod::scale_vec_1X)   ? 1
                      : decoder.has(Mod::scale_vec_2X) ? 2
                      : decoder.has(Mod::scale_vec_4X) ? 4
                                                       : 0;
  if (is_nvf4) {
    if (written != 2 && written != 4) decoder.refuse("mxf4nvf4 has .scale_vec::2X or .scale_vec::4X");
    return written;
  }
  const int own = is_mxf8 ? 1 : 2;
  if (written != 0 && written != own)
    decoder.refuse(fmt::format("{} has .scale_vec::{}X", is_mxf8 ? "mxf8f6f4" : "mxf4", own));
  return own;
}

}  // namespace

bool has_mma_kind(const Decoder& decoder) {
  for (Mod mod : {Mod::kind_f8f6f4, Mod::kind_mxf8f6f4, Mod::kind_mxf4, Mod::kind_mxf4nvf4})
    if (decoder.has(mod)) return true;
  return false;
}

void decode_mma_kind(Decoder& decoder, Instruction& out) {
  if (!decoder.has(Mod::row) || !decoder.has(Mod::col)) decoder.refuse("A is .row and B is .col");
  const bool is_packed = decoder.has(Mod::kind_mxf4) || decoder.has(Mod::kind_mxf4nvf4);
  const bool is_scaled = decoder.has(Mod::block_scale);
  if (is_scaled == decoder.has(Mod::kind_f8f6f4))
    decoder.refuse(is_scaled ? "kind f8f6f4 has no block scales" : "this kind needs .block_scale");
  const ptx::Shape shape = decoder.insn().shape();
  if (shape.m != kRows || shape.n != kColumns || shape.k != (is_packed ? 64 : 32))
    decoder.refuse(fmt::format("shape m{}n{}k{}: this kind is m16n8k{}", shape.m, shape.n, shape.k,
                               is_packed ? 64 : 32));
  KindForm form;
  form.spec.instruction = !is_scaled  ? arith::TensorInstruction::kMma
                          : is_packed ? arith::TensorInstruction::kMxf4
                                      : arith::TensorInstruction::kMxf8f6f4;
  form.spec.sm = decoder.target_sm();
  form.spec.a = element_type(decoder, decoder.type(1), is_packed, form.a_container);
  form.spec.b = element_type(decoder, decoder.type(2), is_packed, form.b_container);
  if (is_packed && (form.spec.a != float4_e2m1 || form.spec.b != float4_e2m1))
    decoder.refuse("this kind multiplies e2m1");
  if (decoder.type(0) != decoder.type(3)) decoder.refuse("C and D of different types are not modelled");
  const bool is_half = decoder.type(0) == ScalarType::f16;
  if (is_half && is_scaled) decoder.refuse("products with block scales are summed in f32");
  form.spec.d = is_half ? float16 : float32;
  form.spec.shape = {shape.m, shape.n, shape.k};
  const size_t results = is_half ? 2 : 4;
  form.d = registers(decoder, 0, "D", results, true);
  form.a = registers(decoder, 1, "A", 4, false);
  form.b = registers(decoder, 2, "B", 2, false);
  form.c = registers(decoder, 3, "C", results, false);
  if (is_scaled) {
    form.scales_per_row = scales_per_row(decoder);
    const ScalarType type = decoder.type(4);
    if ((type == ScalarType::ue4m3) != (form.scales_per_row == 4))
      decoder.refuse("four scales for 64 elements are ue4m3, fewer are ue8m0");
    form.spec.scale = type == ScalarType::ue4m3 ? float8_e4m3 : float8_e8m0;
    form.spec.scale_block = static_cast<int>(shape.k) / form.scales_per_row;
    form.a_scales = scale_source(decoder, 4);
    form.b_scales = scale_source(decoder, 6);
  }
  out.extra = decoder.keep(std::move(form));
  set_body(out, exec_mma_kind);
}

}  // namespace imbrex::vgpu

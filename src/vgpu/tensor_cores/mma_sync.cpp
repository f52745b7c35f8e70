// SPDX-License-Identifier: Apache-2.0
// mma.sync and mma.sp.sync: matrix products of one warp, fragments in registers. All 32-bit-register shapes are one
// layout in bytes: rows of 16 or 32 bytes of K (fragments.h), of a sparse A the stored ones; f64 has its own.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "core/tensor_arith.h"
#include "vgpu/machine/access.h"
#include "vgpu/program/decode.h"
#include "vgpu/tensor_cores/fragments.h"
#include "vgpu/tensor_cores/mma_kinds.h"
#include "vgpu/tensor_cores/sparse_metadata.h"
#include "vgpu/tensor_cores/tensor_core.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

constexpr int64_t kColumns = 8;
constexpr int64_t kMaxRowBytes = 64;  // of B of a sparse product; A has 32 at most
constexpr int64_t kMaxK = 2 * kMaxRowBytes;

/// How the products are computed.
enum class Unit : uint8_t { kTensorProduct, kFourBit, kOneBit, kDouble };

struct MmaForm {
  Unit unit = Unit::kTensorProduct;
  ProductSpec spec;
  int64_t a_row_bytes = 32, b_row_bytes = 32;
  bool a_signed = true, b_signed = true;  // four bits
  bool exclusive_or = false;              // one bit
  std::vector<Slot> d, a, b, c;
  // Sparse:
  Sparsity sparsity = Sparsity::kTwoOfFour;
  MetadataOrder order = MetadataOrder::kAny;
  Slot metadata = 0;
  int selector = 0;
};

void registers_of(Warp& warp, const std::vector<Slot>& slots, uint32_t** out) {
  for (size_t r = 0; r < slots.size(); ++r) out[r] = warp.reg<uint32_t>(slots[r]);
}

/// Four lanes after another have 16 bytes of a row side by side.
void copy_quads(const uint32_t* lanes, uint8_t* to, int64_t row_bytes) {
  for (int row = 0; row < kWarpSize / 4; ++row) std::memcpy(to + row * row_bytes, lanes + 4 * row, 16);
}

// Rows of A and of B (column n of B is row n here).
void gather_operands(Warp& warp, const MmaForm& form, uint8_t* a, uint8_t* b) {
  uint32_t* registers[4];
  registers_of(warp, form.a, registers);
  const bool short_a = form.spec.shape.m == 8;
  for (size_t r = 0; r < form.a.size(); ++r) {
    const int64_t row = short_a ? 0 : 8 * static_cast<int64_t>(r % 2);
    const int64_t byte = short_a ? 16 * static_cast<int64_t>(r) : 16 * static_cast<int64_t>(r / 2);
    copy_quads(registers[r], a + row * form.a_row_bytes + byte, form.a_row_bytes);
  }
  registers_of(warp, form.b, registers);
  for (size_t r = 0; r < form.b.size(); ++r)
    copy_quads(registers[r], b + 16 * static_cast<int64_t>(r), form.b_row_bytes);
}

void gather_c(Warp& warp, const MmaForm& form, uint32_t* tile) {
  uint32_t* registers[4];
  registers_of(warp, form.c, registers);
  if (form.spec.d == float16) {
    gather_d16(registers, tile, kColumns);
  } else if (form.spec.shape.m == 16) {
    gather_d(registers, tile, kColumns);
  } else {
    for (int l = 0; l < kWarpSize; ++l)
      for (int i = 0; i < 2; ++i) tile[l / 4 * kColumns + 2 * (l % 4) + i] = registers[i][l];
  }
}

void scatter_result(Warp& warp, const MmaForm& form, const uint32_t* tile) {
  uint32_t* registers[4];
  registers_of(warp, form.d, registers);
  if (form.spec.d == float16) {
    scatter_d16(tile, kColumns, registers);
  } else if (form.spec.shape.m == 16) {
    scatter_d(tile, kColumns, registers);
  } else {
    for (int l = 0; l < kWarpSize; ++l)
      for (int i = 0; i < 2; ++i) registers[i][l] = tile[l / 4 * kColumns + 2 * (l % 4) + i];
  }
}

void widen_four_bits(const uint8_t* from, int64_t count, bool is_signed, int16_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    const int nibble = from[i / 2] >> i % 2 * 4 & 0xF;
    to[i] = static_cast<int16_t>(is_signed && nibble >= 8 ? nibble - 16 : nibble);
  }
}

/// Elements that are not stored are zeros.
void widen_sparse_four_bits(const uint8_t* from, int64_t m, int64_t k, bool is_signed, const uint8_t* places,
                            int16_t* to) {
  int16_t stored[16 * kMaxK / 2];
  widen_four_bits(from, m * k / 2, is_signed, stored);
  std::fill(to, to + m * k, int16_t{0});
  for (int64_t i = 0; i < m * k / 2; ++i) to[i / (k / 2) * k + places[i]] = stored[i];
}

/// `places`: of a sparse A.
void multiply(Cluster& cluster, const Who& who, const MmaForm& form, const uint8_t* a, const uint8_t* b,
              const uint8_t* places, uint32_t* tile) {
  const auto [m, n, k] = form.spec.shape;
  auto* d = reinterpret_cast<int32_t*>(tile);
  if (form.unit == Unit::kOneBit) {
    uint32_t a_words[16 * kMaxRowBytes / 4], b_words[8 * kMaxRowBytes / 4];
    std::memcpy(a_words, a, static_cast<size_t>(m * form.a_row_bytes));
    std::memcpy(b_words, b, static_cast<size_t>(n * form.b_row_bytes));
    arith::multiply_accumulate_bits({m, n, form.a_row_bytes / 4}, a_words, b_words, d, d, form.exclusive_or);
    return;
  }
  if (form.unit == Unit::kFourBit) {
    int16_t a_wide[16 * kMaxK], b_wide[8 * kMaxK];
    if (places != nullptr)
      widen_sparse_four_bits(a, m, k, form.a_signed, places, a_wide);
    else
      widen_four_bits(a, m * k, form.a_signed, a_wide);
    widen_four_bits(b, n * k, form.b_signed, b_wide);
    arith::multiply_accumulate_int({m, n, k}, a_wide, b_wide, d, d, form.spec.saturate);
    return;
  }
  TensorProduct product(form.spec, cluster.launch().options.tensor_math);
  if (!product.problem().empty()) {
    cluster.report_fatal(FindingKind::kIllegalInstruction, who, 0, product.problem());
    return;
  }
  product.load_a(a, Major::kK);
  if (places != nullptr) product.load_places(places);
  product.load_b(b, Major::kK);
  product.multiply(0, m, 0, n, tile, kColumns, true);
}

Step exec_mma(Warp& warp, const Instruction& insn, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  const MmaForm& form = insn.form<MmaForm>();
  Cluster& cluster = warp.cta().cluster();
  if (cluster.launch().options.tensor_math == TensorMath::kNone) {
    const auto [m, n, k] = form.spec.shape;
    cluster.statistics().tensor_flops += 2 * m * n * k;
    return Step::kNext;
  }
  alignas(16) uint8_t a[16 * kMaxRowBytes], b[8 * kMaxRowBytes];
  uint32_t tile[16 * kColumns];
  gather_operands(warp, form, a, b);
  gather_c(warp, form, tile);
  std::optional<StoredPlaces> places;
  if (form.spec.sparse) {
    places.emplace(form.sparsity, form.order, form.spec.shape.m, form.spec.shape.k);
    read_warp_metadata(warp.reg<uint32_t>(form.metadata), form.spec.a.bits(), form.selector, 0, *places);
    if (!places->problem().empty())
      cluster.report(FindingKind::kIllegalInstruction, warp.thread(insn, -1), 0, places->problem());
  }
  multiply(cluster, warp.thread(insn, -1), form, a, b, places ? places->data() : nullptr, tile);
  scatter_result(warp, form, tile);
  const auto [m, n, k] = form.spec.shape;
  cluster.statistics().tensor_flops += 2 * m * n * k;
  return Step::kNext;
}

// f64: A row g + 8 (i % 2), column q + 4 (i / 2); B row q + 4 i, column g; C, D row g + 8 (i / 2), column 2q
// + i % 2. With 8 rows A has one element a lane, and C and D two.
Step exec_mma_f64(Warp& warp, const Instruction& insn, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  const MmaForm& form = insn.form<MmaForm>();
  const auto [m, n, k] = form.spec.shape;
  double a[16 * 16], b[8 * 16], d[16 * 8];
  const int64_t row_groups = m / 8;
  for (int64_t i = 0; i < static_cast<int64_t>(form.a.size()); ++i)
    for (int l = 0; l < kWarpSize; ++l)
      a[(l / 4 + 8 * (i % row_groups)) * k + l % 4 + 4 * (i / row_groups)] =
          warp.reg<double>(form.a[static_cast<size_t>(i)])[l];
  for (int64_t i = 0; i < static_cast<int64_t>(form.b.size()); ++i)
    for (int l = 0; l < kWarpSize; ++l)
      b[l / 4 * k + l % 4 + 4 * i] = warp.reg<double>(form.b[static_cast<size_t>(i)])[l];
  for (int64_t i = 0; i < static_cast<int64_t>(form.c.size()); ++i)
    for (int l = 0; l < kWarpSize; ++l)
      d[(l / 4 + 8 * (i / 2)) * n + 2 * (l % 4) + i % 2] =
          warp.reg<double>(form.c[static_cast<size_t>(i)])[l];
  arith::multiply_accumulate_f64({m, n, k}, a, b, d, d);
  for (int64_t i = 0; i < static_cast<int64_t>(form.d.size()); ++i)
    for (int l = 0; l < kWarpSize; ++l)
      warp.reg<double>(form.d[static_cast<size_t>(i)])[l] =
          d[(l / 4 + 8 * (i / 2)) * n + 2 * (l % 4) + i % 2];
  warp.cta().cluster().statistics().tensor_flops += 2 * m * n * k;
  return Step::kNext;
}

// Decoding --------------------------------------------------------------------------------------------------

DataType operand_type(const Decoder& decoder, ScalarType type) {
  if (const std::optional<DataType> known = product_type(type)) return *known;
  switch (type) {
    case ScalarType::s4:
    case ScalarType::u4:
    case ScalarType::b1:
      return int8;  // taken apart here
    case ScalarType::f64:
      return float64;
    default:
      decoder.refuse("operands of this type are not modelled");
  }
}

std::vector<Slot> fragment(Decoder& decoder, size_t index, ScalarType type, bool is_destination) {
  const ptx::Operand& operand = decoder.operand(index);
  const std::span<const ptx::Operand> elements =
      operand.kind == ptx::OperandKind::vector ? decoder.elements(operand) : std::span(&operand, 1);
  std::vector<Slot> slots;
  for (const ptx::Operand& element : elements)
    slots.push_back(is_destination ? decoder.destination(element, type) : decoder.source(element, type));
  return slots;
}

void expect_registers(const Decoder& decoder, const char* what, size_t given, int64_t expected) {
  if (static_cast<int64_t>(given) != expected)
    decoder.refuse(fmt::format("{} has {} registers, this shape takes {}", what, given, expected));
}

/// The metadata register, the selector, and the shapes there are.
void decode_sparse(Decoder& decoder, MmaForm& form, ScalarType a) {
  form.spec.sparse = true;
  form.order = decoder.op() == Op::mma_sp_ordered_sync ? MetadataOrder::kAscending : MetadataOrder::kAny;
  form.sparsity = sparsity_of(ptx::bits(a), true);
  form.metadata = decoder.source(4, ScalarType::b32);
  form.selector = static_cast<int>(decoder.immediate(5, "sparsity selector"));
  const int count = selectors(form.spec.shape.k, ptx::bits(a));
  if (form.selector < 0 || form.selector >= count)
    decoder.refuse(fmt::format("sparsity selector {}: this shape takes 0{}", form.selector,
                               count == 1 ? "" : fmt::format(" to {}", count - 1)));
}

}  // namespace

bool decode_mma_sync(Decoder& decoder, Instruction& out) {
  const bool sparse = decoder.op() == Op::mma_sp_sync || decoder.op() == Op::mma_sp_ordered_sync;
  if (decoder.op() != Op::mma_sync && !sparse) return false;
  if (has_mma_kind(decoder)) {
    if (sparse) decoder.refuse("sparse products of this kind are not modelled");
    decode_mma_kind(decoder, out);
    return true;
  }
  if (!decoder.has(Mod::row) || !decoder.has(Mod::col)) decoder.refuse("A is .row and B is .col");
  const ptx::Shape shape = decoder.insn().shape();
  const ScalarType d = decoder.type(0), a = decoder.type(1), b = decoder.type(2), c = decoder.type(3);
  if (d != c) decoder.refuse("C and D of different types are not modelled");

  MmaForm form;
  form.spec.instruction = arith::TensorInstruction::kMma;
  form.spec.sm = decoder.target_sm();
  form.spec.a = operand_type(decoder, a);
  form.spec.b = operand_type(decoder, b);
  form.spec.d = d == ScalarType::f16 ? float16 : d == ScalarType::s32 ? int32 : float32;
  form.spec.shape = {shape.m, shape.n, shape.k};
  form.spec.saturate = decoder.has(Mod::satfinite);
  form.b_row_bytes = int64_t{shape.k} * ptx::bits(a) / 8;
  form.a_row_bytes = sparse ? form.b_row_bytes / 2 : form.b_row_bytes;
  const bool is_double = a == ScalarType::f64;
  if (is_double)
    form.unit = Unit::kDouble;
  else if (a == ScalarType::b1)
    form.unit = Unit::kOneBit;
  else if (ptx::bits(a) == 4)
    form.unit = Unit::kFourBit;
  form.a_signed = a == ScalarType::s4;
  form.b_signed = b == ScalarType::s4;
  form.exclusive_or = decoder.has(Mod::xor_);

  const bool rows_ok = is_double ? shape.k <= 16 : form.a_row_bytes == 16 || form.a_row_bytes == 32;
  const bool is_old_half = shape.m == 8 && (a == ScalarType::f16 || a == ScalarType::tf32);
  if (shape.n != 8 || (shape.m != 8 && shape.m != 16) || !rows_ok || is_old_half ||
      (shape.m == 8 && is_double && shape.k != 4) ||
      (sparse && (shape.m == 8 || is_double || a == ScalarType::b1)))
    decoder.refuse(fmt::format("shape m{}n{}k{} is not modelled for these types", shape.m, shape.n, shape.k));

  const ScalarType word = is_double ? ScalarType::f64 : ScalarType::b32;
  form.d = fragment(decoder, 0, word, true);
  form.a = fragment(decoder, 1, word, false);
  form.b = fragment(decoder, 2, word, false);
  form.c = fragment(decoder, 3, word, false);
  const int64_t groups = shape.m / 8;
  const int64_t steps = is_double ? shape.k / 4 : form.a_row_bytes / 16;
  expect_registers(decoder, "A", form.a.size(), groups * steps);
  expect_registers(decoder, "B", form.b.size(), is_double ? steps : form.b_row_bytes / 16);
  const int64_t results = form.spec.d == float16 ? groups : 2 * groups;
  expect_registers(decoder, "C", form.c.size(), results);
  expect_registers(decoder, "D", form.d.size(), results);
  if (sparse) decode_sparse(decoder, form, a);
  out.extra = decoder.keep(std::move(form));
  set_body(out, is_double ? exec_mma_f64 : exec_mma);
  return true;
}

}  // namespace imbrex::vgpu

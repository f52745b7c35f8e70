// SPDX-License-Identifier: Apache-2.0
// wmma: matrix products of one warp on fragments whose layout PTX leaves open. This machine's is the
// plainest: lane l holds elements l E to l E + E - 1 of the matrix in row-major order, E being what its
// registers have room for; where that is more than the matrix has, the lanes start over.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "core/float_formats.h"
#include "vgpu/machine/access.h"
#include "vgpu/memory/raced_bytes.h"
#include "vgpu/program/decode.h"
#include "vgpu/tensor_cores/tensor_core.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

constexpr int64_t kMostElements = 32 * 16;

struct Fragment {
  std::vector<Slot> registers;
  int64_t rows = 0, columns = 0;
  int bits = 16;  // of an element

  int64_t elements() const { return rows * columns; }
  int64_t per_lane() const { return static_cast<int64_t>(registers.size()) * (bits == 64 ? 64 : 32) / bits; }
};

uint64_t element(Warp& warp, const Fragment& f, int lane, int64_t i) {
  if (f.bits == 64) return warp.reg<uint64_t>(f.registers[static_cast<size_t>(i)])[lane];
  const uint32_t word = warp.reg<uint32_t>(f.registers[static_cast<size_t>(i * f.bits / 32)])[lane];
  return f.bits == 32 ? word : word >> i * f.bits % 32 & ((1u << f.bits) - 1);
}

void set_element(Warp& warp, const Fragment& f, int lane, int64_t i, uint64_t value) {
  if (f.bits == 64) {
    warp.reg<uint64_t>(f.registers[static_cast<size_t>(i)])[lane] = value;
    return;
  }
  uint32_t& word = warp.reg<uint32_t>(f.registers[static_cast<size_t>(i * f.bits / 32)])[lane];
  const int shift = static_cast<int>(i * f.bits % 32);
  const uint32_t mask = f.bits == 32 ? ~0u : ((1u << f.bits) - 1) << shift;
  word = (word & ~mask) | (static_cast<uint32_t>(value) << shift & mask);
}

/// visit(lane, i, row, column) for every element every lane holds.
template <class Visit>
void for_each_element(const Fragment& f, Visit&& visit) {
  const int64_t per_lane = f.per_lane();
  int64_t row = 0, column = 0;
  for (int lane = 0; lane < kWarpSize; ++lane)
    for (int64_t i = 0; i < per_lane; ++i) {
      visit(lane, i, row, column);
      if (++column < f.columns) continue;
      column = 0;
      if (++row == f.rows) row = 0;
    }
}

/// visit(register, lane, byte of the matrix in row-major order): a lane's words follow each other.
template <class Word, class Visit>
void for_each_word_of(const Fragment& f, Visit&& visit) {
  const size_t count = f.registers.size(), end = static_cast<size_t>(f.elements() * f.bits / 8);
  for (size_t r = 0; r < count; ++r) {
    size_t at = r * sizeof(Word);
    for (int lane = 0; lane < kWarpSize; ++lane) {
      visit(r, lane, at);
      at += count * sizeof(Word);
      if (at >= end) at -= end;
    }
  }
}
/// Registers to a matrix in row-major order. Where lanes hold the same element, the last counts.
template <class Word>
void words_to_rows(Warp& warp, const Fragment& f, std::byte* out) {
  for_each_word_of<Word>(f, [&](size_t r, int lane, size_t at) {
    std::memcpy(out + at, warp.reg<Word>(f.registers[r]) + lane, sizeof(Word));
  });
}
template <class Word>
void words_from_rows(Warp& warp, const Fragment& f, const std::byte* from) {
  for_each_word_of<Word>(f, [&](size_t r, int lane, size_t at) {
    std::memcpy(warp.reg<Word>(f.registers[r]) + lane, from + at, sizeof(Word));
  });
}
void to_rows(Warp& warp, const Fragment& f, std::byte* out) {
  f.bits == 64 ? words_to_rows<uint64_t>(warp, f, out) : words_to_rows<uint32_t>(warp, f, out);
}
void from_rows(Warp& warp, const Fragment& f, const std::byte* from) {
  f.bits == 64 ? words_from_rows<uint64_t>(warp, f, from) : words_from_rows<uint32_t>(warp, f, from);
}

template <class T>
void transpose_elements(const std::byte* from, int64_t rows, int64_t columns, std::byte* out) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      std::memcpy(out + (column * rows + row) * int64_t{sizeof(T)},
                  from + (row * columns + column) * int64_t{sizeof(T)}, sizeof(T));
}
/// Of elements of so many bits.
void transpose(const std::byte* from, int64_t rows, int64_t columns, int bits, std::byte* out) {
  switch (bits) {
    case 8:
      return transpose_elements<uint8_t>(from, rows, columns, out);
    case 16:
      return transpose_elements<uint16_t>(from, rows, columns, out);
    case 32:
      return transpose_elements<uint32_t>(from, rows, columns, out);
    default:
      return transpose_elements<uint64_t>(from, rows, columns, out);
  }
}

// Loads and stores ----------------------------------------------------------------------------------------

struct MoveForm {
  Fragment fragment;
  AddressSource at;
  Slot stride = 0;  // in elements, between the lines
  bool column_major = false;
};

/// Calls visit(host address, row or column number) for every line of the matrix, that is row or column as it
/// lies in memory; false after a finding.
template <class Checks, class Visit>
bool for_each_line(Warp& warp, const Instruction& insn, const MoveForm& form, AccessKind kind,
                   Visit&& visit) {
  const Fragment& f = form.fragment;
  Cluster& cluster = warp.cta().cluster();
  const int64_t lines = form.column_major ? f.columns : f.rows,
                length = form.column_major ? f.rows : f.columns;
  const auto element_bytes = static_cast<uint32_t>(f.bits / 8);
  const auto line_bytes = static_cast<uint32_t>(length) * element_bytes;
  const uint64_t start = warp.address(form.at, 0);
  const uint64_t stride = uint64_t{warp.reg<uint32_t>(form.stride)[0]} * element_bytes;
  for (int64_t line = 0; line < lines; ++line) {
    const Who who = warp.thread(insn, static_cast<int>(line % kWarpSize));
    Place place;
    if (!access<Checks>(cluster, who, form.at.space, start + static_cast<uint64_t>(line) * stride, line_bytes,
                        element_bytes, kind, place))
      return false;
    Statistics& s = cluster.statistics();
    if (place.space == Space::kGlobal)
      (is_write(kind) ? s.global_bytes_written : s.global_bytes_read) += line_bytes;
    else
      (is_write(kind) ? s.shared_bytes_written : s.shared_bytes_read) += line_bytes;
    visit(place.host, line);
  }
  return true;
}

template <class Checks>
Step exec_load(Warp& warp, const Instruction& insn, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  const MoveForm& form = insn.form<MoveForm>();
  const Fragment& f = form.fragment;
  const size_t bytes = static_cast<size_t>(f.bits / 8);
  const int64_t length = form.column_major ? f.rows : f.columns;
  std::byte matrix[kMostElements * 8] = {};
  for_each_line<Checks>(warp, insn, form, AccessKind::kRead, [&](const std::byte* host, int64_t line) {
    read_bytes(matrix + static_cast<size_t>(line * length) * bytes, host,
               static_cast<size_t>(length) * bytes);
  });
  if (!form.column_major) {
    from_rows(warp, f, matrix);
    return Step::kNext;
  }
  std::byte rows[kMostElements * 8];
  transpose(matrix, f.columns, f.rows, f.bits, rows);
  from_rows(warp, f, rows);
  return Step::kNext;
}

template <class Checks>
Step exec_store(Warp& warp, const Instruction& insn, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  const MoveForm& form = insn.form<MoveForm>();
  const Fragment& f = form.fragment;
  const size_t bytes = static_cast<size_t>(f.bits / 8);
  const int64_t length = form.column_major ? f.rows : f.columns;
  std::byte matrix[kMostElements * 8] = {};
  to_rows(warp, f, matrix);
  if (form.column_major) {
    std::byte columns[kMostElements * 8];
    transpose(matrix, f.rows, f.columns, f.bits, columns);
    std::memcpy(matrix, columns, static_cast<size_t>(f.elements()) * bytes);
  }
  for_each_line<Checks>(warp, insn, form, AccessKind::kWrite, [&](std::byte* host, int64_t line) {
    write_bytes(host, matrix + static_cast<size_t>(line * length) * bytes,
                static_cast<size_t>(length) * bytes);
  });
  warp.cta().cluster().note_progress();
  return Step::kNext;
}

// Products ------------------------------------------------------------------------------------------------

struct ProductForm {
  ProductSpec spec;
  arith::Rounding rounding = arith::Rounding::kNearestEven;  // of f64
  Fragment a, b, c, d;                                       // b as k rows of n columns
};

Step exec_mma(Warp& warp, const Instruction& insn, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  const ProductForm& form = insn.form<ProductForm>();
  const auto [m, n, k] = form.spec.shape;
  Cluster& cluster = warp.cta().cluster();
  cluster.statistics().tensor_flops += 2 * m * n * k;
  if (form.spec.d == float64) {
    double a[kMostElements], b[kMostElements], d[kMostElements];
    const auto gather = [&](const Fragment& f, bool transposed, double* out) {
      for_each_element(f, [&, rows = f.rows](int lane, int64_t i, int64_t row, int64_t column) {
        out[transposed ? column * rows + row : row * f.columns + column] =
            std::bit_cast<double>(element(warp, f, lane, i));
      });
    };
    gather(form.a, false, a);
    gather(form.b, true, b);
    gather(form.c, false, d);
    arith::multiply_accumulate_f64({m, n, k}, a, b, d, d, form.rounding);
    for_each_element(form.d, [&, n = n](int lane, int64_t i, int64_t row, int64_t column) {
      set_element(warp, form.d, lane, i, std::bit_cast<uint64_t>(d[row * n + column]));
    });
    return Step::kNext;
  }
  alignas(16) std::byte a[kMostElements * 4], b[kMostElements * 4], b_rows[kMostElements * 4];
  uint32_t tile[kMostElements];
  to_rows(warp, form.a, a);
  to_rows(warp, form.b, b_rows);
  transpose(b_rows, form.b.rows, form.b.columns, form.b.bits, b);
  if (form.c.bits == 32)
    to_rows(warp, form.c, reinterpret_cast<std::byte*>(tile));
  else
    for_each_element(form.c, [&, n = n](int lane, int64_t i, int64_t row, int64_t column) {
      uint32_t value = static_cast<uint32_t>(element(warp, form.c, lane, i));
      if (form.c.bits == 16 && form.spec.d == float32)
        value = std::bit_cast<uint32_t>(arith::f16_to_f32(static_cast<uint16_t>(value)));
      tile[row * n + column] = value;
    });
  // tf32 goes in steps of k = 4 (measured on H200), everything else in one.
  const int64_t step = form.spec.a == tfloat32 ? 4 : k;
  const int64_t row_bytes = k * form.a.bits / 8, step_bytes = step * form.a.bits / 8;
  alignas(16) uint8_t a_step[kMostElements * 4], b_step[kMostElements * 4];
  for (int64_t first = 0; first < row_bytes; first += step_bytes) {
    for (int64_t row = 0; row < m; ++row)
      std::memcpy(a_step + row * step_bytes, a + row * row_bytes + first, static_cast<size_t>(step_bytes));
    for (int64_t row = 0; row < n; ++row)
      std::memcpy(b_step + row * step_bytes, b + row * row_bytes + first, static_cast<size_t>(step_bytes));
    ProductSpec spec = form.spec;
    spec.shape.k = step;
    TensorProduct product(spec, cluster.launch().options.tensor_math);
    if (!product.problem().empty()) {
      cluster.report_fatal(FindingKind::kIllegalInstruction, warp.thread(insn, -1), 0, product.problem());
      return Step::kNext;
    }
    product.load_a(a_step, Major::kK);
    product.load_b(b_step, Major::kK);
    product.multiply(0, m, 0, n, tile, n, true);
  }
  if (form.d.bits == 32)
    from_rows(warp, form.d, reinterpret_cast<const std::byte*>(tile));
  else
    for_each_element(form.d, [&, n = n](int lane, int64_t i, int64_t row, int64_t column) {
      set_element(warp, form.d, lane, i, tile[row * n + column]);
    });
  return Step::kNext;
}

// Decoding --------------------------------------------------------------------------------------------------

enum class Role : uint8_t { kA, kB, kAccumulator };

Fragment fragment(Decoder& decoder, size_t index, ScalarType type, Role role, bool is_destination) {
  if (ptx::bits(type) < 8) decoder.refuse("wmma of elements narrower than a byte is not modelled");
  const ptx::Shape shape = decoder.insn().shape();
  Fragment f;
  f.rows = role == Role::kB ? shape.k : shape.m;
  f.columns = role == Role::kA ? shape.k : shape.n;
  f.bits = type == ScalarType::tf32 ? 32 : ptx::bits(type);
  const ScalarType word = f.bits == 64 ? ScalarType::b64 : ScalarType::b32;
  const ptx::Operand& operand = decoder.operand(index);
  const std::span<const ptx::Operand> elements =
      operand.kind == ptx::OperandKind::vector ? decoder.elements(operand) : std::span(&operand, 1);
  for (const ptx::Operand& e : elements)
    f.registers.push_back(is_destination ? decoder.destination(e, word) : decoder.source(e, word));
  if (f.elements() > kMostElements || f.per_lane() * kWarpSize % f.elements() != 0)
    decoder.refuse(
        fmt::format("{} registers do not hold a {} x {} matrix", f.registers.size(), f.rows, f.columns));
  return f;
}

void decode_move(Decoder& decoder, Instruction& out, Role role, bool is_load) {
  MoveForm form;
  form.fragment = fragment(decoder, is_load ? 0 : 1, decoder.type(), role, is_load);
  form.at = decoder.address(is_load ? 1 : 0);
  form.column_major = decoder.has(Mod::col);
  const int64_t dense = form.column_major ? form.fragment.rows : form.fragment.columns;
  form.stride = decoder.operand_count() > 2 ? decoder.source(2, ScalarType::u32)
                                            : decoder.constant32(static_cast<uint32_t>(dense));
  out.extra = decoder.keep(std::move(form));
  if (is_load)
    set_bodies(out, exec_load<Unchecked>, exec_load<Checked>);
  else
    set_bodies(out, exec_store<Unchecked>, exec_store<Checked>);
}

DataType data_type(const Decoder& decoder, ScalarType type) {
  switch (type) {
    case ScalarType::f16:
      return float16;
    case ScalarType::bf16:
      return bfloat16;
    case ScalarType::tf32:
      return tfloat32;
    case ScalarType::f32:
      return float32;
    case ScalarType::f64:
      return float64;
    case ScalarType::s8:
      return int8;
    case ScalarType::u8:
      return uint8;
    case ScalarType::s32:
      return int32;
    default:
      decoder.refuse("wmma of this type is not modelled");
  }
}

void decode_product(Decoder& decoder, Instruction& out) {
  // f16 products name the types of D and C only.
  const bool halves = decoder.insn().type_count() == 2;
  const ScalarType d = decoder.type(0), a = halves ? ScalarType::f16 : decoder.type(1);
  const ScalarType b = halves ? ScalarType::f16 : decoder.type(2), c = decoder.type(halves ? 1 : 3);
  const ptx::Shape shape = decoder.insn().shape();
  ProductForm form;
  form.spec.instruction = arith::TensorInstruction::kMma;
  form.spec.sm = decoder.target_sm();
  form.spec.a = data_type(decoder, a);
  form.spec.b = data_type(decoder, b);
  form.spec.d = data_type(decoder, d);
  form.spec.shape = {shape.m, shape.n, shape.k};
  form.spec.saturate = decoder.has(Mod::satfinite);
  if (decoder.has(Mod::rz)) form.rounding = arith::Rounding::kTowardZero;
  if (decoder.has(Mod::rm)) form.rounding = arith::Rounding::kDown;
  if (decoder.has(Mod::rp)) form.rounding = arith::Rounding::kUp;
  form.d = fragment(decoder, 0, d, Role::kAccumulator, true);
  form.a = fragment(decoder, 1, a, Role::kA, false);
  form.b = fragment(decoder, 2, b, Role::kB, false);
  form.c = fragment(decoder, 3, c, Role::kAccumulator, false);
  if (c != d && !(c == ScalarType::f16 && d == ScalarType::f32))
    decoder.refuse("C of another type than D is not modelled, but for f16 added to f32");
  out.extra = decoder.keep(std::move(form));
  set_body(out, exec_mma);
}

}  // namespace

bool decode_wmma(Decoder& decoder, Instruction& out) {
  switch (decoder.op()) {
    case Op::wmma_load_a:
      decode_move(decoder, out, Role::kA, true);
      return true;
    case Op::wmma_load_b:
      decode_move(decoder, out, Role::kB, true);
      return true;
    case Op::wmma_load_c:
      decode_move(decoder, out, Role::kAccumulator, true);
      return true;
    case Op::wmma_store_d:
      decode_move(decoder, out, Role::kAccumulator, false);
      return true;
    case Op::wmma_mma:
      decode_product(decoder, out);
      return true;
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu

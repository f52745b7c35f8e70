// SPDX-License-Identifier: Apache-2.0
#include "vgpu/tensor_cores/tcgen05_descriptor.h"

#include <fmt/format.h>

#include <optional>

namespace imbrex::vgpu {
namespace {

uint32_t field(uint32_t bits, int high, int low) { return bits >> low & ((1u << (high - low + 1)) - 1); }

std::optional<DataType> operand_type(MmaKind kind, uint32_t code) {
  switch (kind) {
    case MmaKind::kF16:
      if (code <= 1) return code == 0 ? float16 : bfloat16;
      break;
    case MmaKind::kTF32:
      if (code == 2) return tfloat32;
      break;
    case MmaKind::kI8:
      if (code <= 1) return code == 0 ? uint8 : int8;
      break;
    case MmaKind::kF8F6F4:
    case MmaKind::kMxF8F6F4:
      switch (code) {
        case 0:
          return float8_e4m3;
        case 1:
          return float8_e5m2;
        case 3:
          return float6_e2m3;
        case 4:
          return float6_e3m2;
        case 5:
          return float4_e2m1;
        default:
          break;
      }
      break;
    case MmaKind::kMxF4:
    case MmaKind::kMxF4NvF4:
      if (code == 1) return float4_e2m1;
      break;
  }
  return std::nullopt;
}

std::optional<DataType> result_type(MmaKind kind, uint32_t code, DataType a) {
  switch (kind) {
    case MmaKind::kF16:
      if (code == 0 && a == float16) return float16;
      if (code == 1) return float32;
      break;
    case MmaKind::kF8F6F4:
      if (code <= 1) return code == 0 ? float16 : float32;
      break;
    case MmaKind::kTF32:
      if (code == 1) return float32;
      break;
    case MmaKind::kI8:
      if (code == 2) return int32;
      break;
    default:
      return float32;  // block-scaled kinds have no such field
  }
  return std::nullopt;
}

uint32_t dense_k(MmaKind kind) {
  switch (kind) {
    case MmaKind::kF16:
      return 16;
    case MmaKind::kTF32:
      return 8;
    case MmaKind::kMxF4:
    case MmaKind::kMxF4NvF4:
      return 64;
    default:
      return 32;
  }
}

std::string shape_problem(const MmaForm& form, uint32_t m, uint32_t n) {
  const bool pair = form.cta_group == 2;
  bool m_ok = false;
  uint32_t step = 0, least = 0;
  if (form.weight_stationary) {
    m_ok = m == 32 || m == 64 || m == 128;
    const bool n_ok = n == 64 || n == 128 || (n == 256 && !form.sparse);
    if (m_ok && n_ok) return "";
    return fmt::format("shape {}x{}: .ws takes M 32, 64, 128 and N 64, 128{}", m, n,
                       form.sparse ? "" : ", 256");
  }
  if (is_block_scaled(form.kind)) {
    m_ok = pair ? m == 256 || (m == 128 && !form.sparse) : m == 128;
  } else {
    m_ok = pair ? m == 128 || m == 256 : m == 64 || m == 128;
  }
  step = least = pair ? 16 : 8;
  if (form.kind == MmaKind::kI8 && pair) step = least = 32;
  bool n_ok = n >= least && n <= 256 && n % step == 0;
  if (form.kind == MmaKind::kI8 && !pair && n > 32) n_ok = n_ok && n % 16 == 0;
  if (m_ok && n_ok) return "";
  return fmt::format("shape {}x{} does not exist for this kind with cta_group::{}", m, n, form.cta_group);
}

}  // namespace

DecodedShape decode_instruction_descriptor(const MmaForm& form, uint32_t bits) {
  DecodedShape out;
  MmaShape& s = out.shape;
  const bool scaled = is_block_scaled(form.kind);
  const bool packed_4bit = form.kind == MmaKind::kMxF4 || form.kind == MmaKind::kMxF4NvF4;
  const uint32_t a_code = field(bits, 9, 7);
  const uint32_t b_code = packed_4bit ? field(bits, 11, 10) : field(bits, 12, 10);

  const std::optional<DataType> a = operand_type(form.kind, a_code), b = operand_type(form.kind, b_code);
  if (!a || !b) {
    out.problem = fmt::format("type code {} of {} (bits {}) does not exist for this kind",
                              !a ? a_code : b_code, !a ? "A" : "B", !a ? "9:7" : "12:10");
    return out;
  }
  s.a = *a;
  s.b = *b;
  if (form.kind == MmaKind::kF16 && s.a != s.b) {
    out.problem =
        fmt::format("A is {} and B is {}; kind::f16 multiplies equal types", s.a.name(), s.b.name());
    return out;
  }
  const std::optional<DataType> d = result_type(form.kind, field(bits, 5, 4), s.a);
  if (!d) {
    out.problem = fmt::format("type code {} of D (bits 5:4) does not exist for {} operands of this kind",
                              field(bits, 5, 4), s.a.name());
    return out;
  }
  s.d = *d;
  s.negate_a = field(bits, 13, 13) != 0;
  s.negate_b = field(bits, 14, 14) != 0;
  s.a_major = field(bits, 15, 15) != 0 ? Major::kMn : Major::kK;
  s.b_major = field(bits, 16, 16) != 0 ? Major::kMn : Major::kK;
  s.n = field(bits, 22, 17) << 3;
  s.k = dense_k(form.kind) * (form.sparse ? 2 : 1);
  if (scaled) {
    s.m = field(bits, 28, 27) << 7;
    s.scale_b_id = field(bits, 5, 4);
    s.scale_a_id = field(bits, 30, 29);
    s.scale_is_ue8m0 = field(bits, 23, 23) != 0;
    if (!s.scale_is_ue8m0 && form.kind != MmaKind::kMxF4NvF4)
      out.problem = "scale type 0 (ue4m3, bit 23) exists for kind::mxf4nvf4 only";
    if (packed_4bit && field(bits, 31, 31) != 0) out.problem = "K = 96 (bit 31) exists on sm_103a only";
  } else {
    s.m = field(bits, 28, 24) << 4;
    s.sparsity_selector = field(bits, 1, 0);
    s.saturate = field(bits, 3, 3) != 0;
    if (s.saturate && form.kind != MmaKind::kI8) out.problem = "saturation (bit 3) exists for kind::i8 only";
    if (form.kind == MmaKind::kI8 && (s.negate_a || s.negate_b))
      out.problem = "kind::i8 has no negation (bits 13, 14)";
    for (int bit : {6, 23, 29})
      if (field(bits, bit, bit) != 0) out.problem = fmt::format("bit {} must be 0", bit);
  }
  if ((field(bits, 2, 2) != 0) != form.sparse)
    out.problem = fmt::format("the descriptor's sparse bit is {} and the instruction {} .sp",
                              field(bits, 2, 2), form.sparse ? "has" : "has no");
  const bool has_transpose = s.a_major == Major::kMn || s.b_major == Major::kMn;
  if (packed_4bit && has_transpose) out.problem = "packed 4-bit operands are K-major (bits 15, 16)";
  if (out.problem.empty()) out.problem = shape_problem(form, s.m, s.n);
  // Transposed 8-bit B needs wider steps of N.
  const bool narrow = s.b.bits() <= 8 && !packed_4bit;
  const uint32_t step = form.cta_group == 2 ? 32 : 16;
  if (out.problem.empty() && narrow && s.b_major == Major::kMn && s.n % step != 0)
    out.problem = fmt::format("N = {}: an 8-bit MN-major B takes multiples of {}", s.n, step);
  return out;
}

std::vector<TensorSegment> accumulator_segments(const MmaForm& form, uint32_t m, uint32_t n, uint32_t lane) {
  std::vector<TensorSegment> segments;
  const uint32_t ctas = form.cta_group == 2 ? 2 : 1;
  const uint32_t rows = m / ctas;  // of one CTA
  for (uint32_t cta = 0; cta < ctas; ++cta) {
    const uint32_t first = cta * rows;
    // How many lane groups of `rows` lanes the columns are spread over.
    const bool spread = form.weight_stationary || (ctas == 2 && !form.sparse);
    if (rows == 128) {
      segments.push_back({first, rows, 0, n, cta, 0, 0});
    } else if (spread) {
      const uint32_t parts = 128 / rows;
      for (uint32_t p = 0; p < parts; ++p)
        segments.push_back({first, rows, p * (n / parts), n / parts, cta, p * rows, 0});
    } else {
      for (uint32_t quarter = 0; quarter < 4; ++quarter)
        segments.push_back({first + quarter * 16, 16, 0, n, cta, quarter * 32 + lane, 0});
    }
  }
  return segments;
}

std::vector<TensorSegment> operand_a_segments(const MmaForm& form, uint32_t m, uint32_t columns,
                                              uint32_t lane) {
  if (form.weight_stationary && m != 128) return {};
  const uint32_t ctas = form.cta_group == 2 ? 2 : 1;
  const uint32_t rows = m / ctas;
  std::vector<TensorSegment> segments;
  for (uint32_t cta = 0; cta < ctas; ++cta) {
    const uint32_t first = cta * rows;
    // A pair with 64 rows each keeps every row twice, in lanes r and r + 64; one of them is read. The rows of a sparse
    // pair lie as those of one CTA with 64.
    if (rows == 128 || (ctas == 2 && !form.sparse)) {
      segments.push_back({first, rows, 0, columns, cta, 0, 0});
    } else {
      for (uint32_t quarter = 0; quarter < 4; ++quarter)
        segments.push_back({first + quarter * 16, 16, 0, columns, cta, quarter * 32 + lane, 0});
    }
  }
  return segments;
}

}  // namespace imbrex::vgpu

// SPDX-License-Identifier: Apache-2.0
#include "vgpu/tensor_cores/tcgen05_operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "vgpu/tensor_cores/chunk_expansion.h"
#include "vgpu/tensor_cores/operand_reader.h"

namespace imbrex::vgpu {
namespace {

// How elements lie in the 16-byte chunks of shared memory.
enum class Packing : uint8_t {
  kPlain,    // 8, 16, 32 bits
  kPadded4,  // 16 four-bit elements in the first 8 bytes
  kPadded6,  // 16 six-bit elements in the first 12 bytes
  kPacked4,  // 32 four-bit elements
};

Packing packing_of(MmaKind kind, DataType type) {
  if (type.bits() > 6) return Packing::kPlain;
  if (kind == MmaKind::kMxF4 || kind == MmaKind::kMxF4NvF4) return Packing::kPacked4;
  return type.bits() == 4 ? Packing::kPadded4 : Packing::kPadded6;
}

// Bytes one element takes in memory, times two (packed 4-bit elements take half a byte).
uint32_t half_bytes(Packing packing, DataType type) {
  if (packing == Packing::kPacked4) return 1;
  return packing == Packing::kPlain ? 2 * static_cast<uint32_t>(type.bytes()) : 2;
}

// Chunks of sub-byte elements to one pattern a byte.
void unpack_chunks(Packing packing, const uint8_t* chunks, size_t count, uint8_t* out) {
  for (size_t c = 0; c < count; ++c, chunks += 16) {
    if (packing == Packing::kPacked4) {
      for (uint32_t i = 0; i < 32; ++i) *out++ = chunks[i / 2] >> i % 2 * 4 & 0xF;
    } else {
      const ChunkPadding padding =
          packing == Packing::kPadded4 ? ChunkPadding::kPadded4 : ChunkPadding::kPadded6;
      for (uint32_t i = 0; i < 16; ++i) *out++ = chunk_element(padding, chunks, i);
    }
  }
}

bool read_chunks(Cluster& cluster, const Who& who, Cta& cta, const OperandAddresses& addresses,
                 uint32_t lines, uint32_t chunks, Packing packing, const char* what, uint8_t* out,
                 OperandBoxes& boxes) {
  if (packing == Packing::kPlain)
    return read_operand(cluster, who, cta, addresses, lines, chunks, what, out, 16, &boxes);
  std::vector<uint8_t> raw(size_t{lines} * chunks * 16);
  const uint32_t used = packing == Packing::kPadded4 ? 8 : packing == Packing::kPadded6 ? 12 : 16;
  if (!read_operand(cluster, who, cta, addresses, lines, chunks, what, raw.data(), used, &boxes))
    return false;
  unpack_chunks(packing, raw.data(), size_t{lines} * chunks, out);
  return true;
}

}  // namespace

bool check_defined(Cluster& cluster, const Who& who, const TensorMemory& memory, uint32_t lane,
                   uint32_t lanes, uint32_t column, uint32_t columns, const char* what) {
  for (uint32_t l = lane; l < lane + lanes; ++l) {
    if (memory.is_defined(l, column, columns)) continue;
    for (uint32_t c = column; c < column + columns; ++c) {
      if (memory.is_defined(l, c)) continue;
      cluster.report(FindingKind::kUninitializedRead, who, TensorAddress{l, c}.bits(),
                     fmt::format("{}: tensor memory lane {}, column {} has not been written", what, l, c));
      return false;
    }
  }
  return true;
}

bool fetch_shared_operand(Cluster& cluster, const Who& who, const CtaPair& ctas, uint64_t descriptor,
                          MmaKind kind, DataType type, Major major, uint32_t extent, uint32_t k,
                          const char* what, OperandPatterns& out) {
  const DecodedDescriptor decoded = decode_tcgen05_descriptor(descriptor);
  std::string problem = decoded.problem;
  const bool atom_32 = decoded.descriptor.swizzle == Swizzle::k128BAtom32B;
  if (problem.empty() && major == Major::kMn && (type.bits() == 32) != atom_32)
    problem = type.bits() == 32
                  ? "an MN-major operand of 32-bit elements needs the 128B swizzle with 32B atom"
                  : "the 128B swizzle with 32B atom is for MN-major operands of 32-bit elements";
  if (!problem.empty()) {
    cluster.report_fatal(FindingKind::kIllegalInstruction, who, 0,
                         fmt::format("descriptor {:#x} of operand {}: {}", descriptor, what, problem));
    return false;
  }
  const Packing packing = packing_of(kind, type);
  const OperandAddresses addresses(decoded.descriptor, major);
  const uint32_t halves = ctas.odd == nullptr ? 1 : 2;
  const uint32_t own_extent = extent / halves;
  const uint32_t lines = major == Major::kK ? own_extent : k;
  const uint32_t inner = major == Major::kK ? k : own_extent;  // elements of a line in one CTA
  const uint32_t line_half_bytes = inner * half_bytes(packing, type);
  if (line_half_bytes % 32 != 0) {
    // 8 columns of 8-bit elements fill half a chunk; the shape table has no such MN-major operand.
    cluster.report_fatal(
        FindingKind::kIllegalInstruction, who, 0,
        fmt::format("operand {}: lines of {} elements are not a multiple of 16 bytes", what, inner));
    return false;
  }
  const uint32_t chunks = line_half_bytes / 32;
  const size_t pattern = type.bits() <= 8 ? 1 : static_cast<size_t>(type.bytes());
  const size_t line_bytes = inner * pattern;
  out.major = major;
  out.boxes.k_major = major == Major::kK;
  out.boxes.boxes.clear();
  out.bytes.resize(size_t{lines} * line_bytes * halves);
  if (major == Major::kK || halves == 1) {
    for (uint32_t h = 0; h < halves; ++h)
      if (!read_chunks(cluster, who, ctas.at(h), addresses, lines, chunks, packing, what,
                       out.bytes.data() + h * lines * line_bytes, out.boxes))
        return false;
    return true;
  }
  // MN-major from two CTAs: every line is one half from each.
  std::vector<uint8_t> part(lines * line_bytes);
  for (uint32_t h = 0; h < halves; ++h) {
    if (!read_chunks(cluster, who, ctas.at(h), addresses, lines, chunks, packing, what, part.data(),
                     out.boxes))
      return false;
    for (uint32_t line = 0; line < lines; ++line)
      std::memcpy(out.bytes.data() + (line * halves + h) * line_bytes, part.data() + line * line_bytes,
                  line_bytes);
  }
  return true;
}

bool fetch_tensor_operand(Cluster& cluster, const Who& who, const CtaPair& ctas, const MmaForm& form,
                          TensorAddress address, const MmaShape& shape, bool shift, OperandPatterns& out) {
  constexpr uint32_t kColumns = 8;  // one step of K, whatever the type
  const bool packed_4bit = form.kind == MmaKind::kMxF4 || form.kind == MmaKind::kMxF4NvF4;
  const std::vector<TensorSegment> segments = operand_a_segments(form, shape.m, kColumns, address.lane);
  if (segments.empty() || shape.a_major != Major::kK) {
    cluster.report_fatal(
        FindingKind::kIllegalInstruction, who, address.bits(),
        segments.empty()
            ? fmt::format(".ws with A in tensor memory: the layout for M = {} is not modelled", shape.m)
            : "A in tensor memory is K-major");
    return false;
  }
  const size_t row_bytes = kColumns * 4;
  std::vector<uint8_t> raw(shape.m * row_bytes);
  for (const TensorSegment& s : segments) {
    Cta& cta = ctas.at(s.cta);
    if (!check_allocated(cluster, who, cta, address.column, kColumns)) return false;
    TensorMemory& memory = tensor_unit(cta).memory;
    if (cluster.checks().uninitialized)
      check_defined(cluster, who, memory, s.lane, s.rows, address.column, kColumns, "operand A");
    cluster.observe().tensor_touched(who, cta, s.lane, s.rows, address.column, kColumns,
                                     TensorAccess::kOperand);
    for (uint32_t r = 0; r < s.rows; ++r) {
      uint32_t lane = s.lane + r;
      if (shift && lane % 32 != 31) ++lane;  // the last lane of a quarter has no next one
      std::memcpy(raw.data() + (s.row + r) * row_bytes, memory.row(lane) + address.column, row_bytes);
    }
  }
  out.major = Major::kK;
  out.boxes.boxes.clear();
  if (packed_4bit) {
    out.bytes.resize(raw.size() * 2);
    unpack_chunks(Packing::kPacked4, raw.data(), raw.size() / 16, out.bytes.data());
    return true;
  }
  // Six-bit containers hold the element in bits 5:0, four-bit ones in bits 5:2.
  if (shape.a.bits() == 6)
    for (uint8_t& byte : raw) byte &= 0x3F;
  if (shape.a.bits() == 4)
    for (uint8_t& byte : raw) byte = byte >> 2 & 0xF;
  out.bytes = std::move(raw);
  return true;
}

bool fetch_scales(Cluster& cluster, const Who& who, const CtaPair& ctas, TensorAddress a_address,
                  TensorAddress b_address, const MmaShape& shape, uint32_t per_row, ScaleFactors& out) {
  const uint32_t halves = ctas.odd == nullptr ? 1 : 2;
  const uint32_t rows = shape.m / halves;
  // SFB of a pair with 64 rows each: the halves of N lie 64 lanes apart.
  const bool split_n = halves == 2 && shape.m == 128;
  const uint32_t n_columns = split_n ? shape.n / 2 : shape.n;
  out.a.resize(size_t{shape.m} * per_row);
  out.b.resize(size_t{shape.n} * per_row);

  const auto factor = [&](Cta& cta, TensorAddress at, uint32_t lane, uint32_t column, uint32_t byte) {
    return static_cast<uint8_t>(tensor_unit(cta).memory.at(lane, at.column + column) >> 8 * byte);
  };
  const auto usable = [&](Cta& cta, TensorAddress at, uint32_t extent, const char* what) {
    const uint32_t columns = (extent + 31) / 32;
    if (!check_allocated(cluster, who, cta, at.column, columns)) return false;
    if (cluster.checks().uninitialized)
      for (uint32_t c = 0; c < columns; ++c)
        check_defined(cluster, who, tensor_unit(cta).memory, 0, std::min(extent - 32 * c, 32u), at.column + c,
                      1, what);
    cluster.observe().tensor_touched(who, cta, 0, TensorMemory::kLanes, at.column, columns,
                                     TensorAccess::kOperand);
    return true;
  };
  for (uint32_t h = 0; h < halves; ++h) {
    if (!usable(ctas.at(h), a_address, rows, "scale factors of A")) return false;
    if (!usable(ctas.at(h), b_address, n_columns, "scale factors of B")) return false;
    for (uint32_t i = 0; i < rows; ++i)
      for (uint32_t s = 0; s < per_row; ++s)
        out.a[(h * rows + i) * per_row + s] =
            factor(ctas.at(h), a_address, i % 32, i / 32, shape.scale_a_id + s);
  }
  // Both CTAs of a pair hold the factors of all of B; the even one's are read.
  for (uint32_t j = 0; j < shape.n; ++j)
    for (uint32_t s = 0; s < per_row; ++s) {
      const uint32_t lane = j % 32 + (split_n ? 64 * (j / n_columns) : 0);
      const uint32_t column = split_n ? j / 32 % (shape.n / 64) : j / 32;
      out.b[j * per_row + s] = factor(*ctas.even, b_address, lane, column, shape.scale_b_id + s);
    }
  return true;
}

}  // namespace imbrex::vgpu

// SPDX-License-Identifier: Apache-2.0
// ldmatrix, stmatrix and movmatrix: 8 x 8 matrices of 16-bit elements between shared memory, whose rows the
// lanes address, and the fragments of mma.sync. Lane l: g = l / 4, q = l % 4.
#include <fmt/format.h>

#include <cstring>

#include "vgpu/machine/access.h"
#include "vgpu/program/decode.h"
#include "vgpu/tensor_cores/chunk_expansion.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

constexpr int kRowBytes = 16;

struct MatrixForm {
  AddressSource at;
  std::vector<Slot> registers;  // one per matrix
  bool transposed = false;
  ChunkPadding padding = ChunkPadding::kNone;
};

using Row = uint8_t[kRowBytes];

// The 16-bit element (row, column) of a matrix that half `h` of lane l's register is.
struct Element {
  int row, column;
};
/// Without a transposition the registers, lane by lane, are the rows one after the other.
constexpr Element element_of(int l, int h, bool transposed) {
  return transposed ? Element{2 * (l % 4) + h, l / 4} : Element{l / 4, 2 * (l % 4) + h};
}

/// Finds the rows that the first `count` lanes give. False after a finding.
bool find_rows(Warp& warp, const Instruction& insn, const MatrixForm& form, int count, AccessKind kind,
               Place* places) {
  Cta& cta = warp.cta();
  for (int lane = 0; lane < count; ++lane) {
    const uint64_t address = warp.address(form.at, lane);
    if (is_own_shared(cta, form.at.space, address, kRowBytes))
      places[lane] = shared_place(cta, shared_offset(static_cast<uint32_t>(address)));
    else if (!locate(cta.cluster(), warp.thread(insn, lane), form.at.space, address, kRowBytes, kRowBytes,
                     kind, places[lane]))
      return false;
  }
  return true;
}

/// Tells the checkers of them. `rows`: what is written there.
void touch_rows(Warp& warp, const Instruction& insn, int count, AccessKind kind, const Place* places,
                const Row* rows) {
  const auto is_same = [&](int lane) { return std::memcmp(places[lane].host, rows[lane], kRowBytes) == 0; };
  LaneTouches touches(kRowBytes);
  for (int lane = 0; lane < count; ++lane) {
    const Place& place = places[lane];
    if (place.space == Space::kSharedCta && place.cta == &warp.cta()) {
      touches.add(lane, place.address, kRowBytes);
      continue;
    }
    const bool same = kind == AccessKind::kWrite && is_same(lane);
    Checked::touched(warp.cta().cluster(), warp.thread(insn, lane), place, kRowBytes,
                     same ? AccessKind::kSameWrite : kind);
  }
  Who who = warp.thread(insn, 0);
  who.lanes = kAllLanes >> (kWarpSize - count);
  WritesTheSame same;
  if (kind == AccessKind::kWrite)
    same = [&is_same](const LaneTouch& touch) {
      bool all = true;
      for_each_lane(touch.lanes, [&](int lane) { all = all && is_same(lane); });
      return all;
    };
  Checked::lanes_touched(warp.cta(), who, Space::kSharedCta, touches, kind, same);
}

/// The rows that the first `count` lanes gave have been moved.
void count_rows(Warp& warp, const Instruction& insn, const std::byte* const* host, int count, bool writes) {
  Cluster& cluster = warp.cta().cluster();
  Statistics& s = cluster.statistics();
  (writes ? s.shared_bytes_written : s.shared_bytes_read) += count * kRowBytes;
  const Mask lanes = kAllLanes >> (kWarpSize - count);
  cluster.observe().accessed(warp, insn, Space::kSharedCta, host, lanes, kRowBytes, BankAccess::kMatrix,
                             writes);
}

template <class Checks>
Step exec_load(Warp& warp, const Instruction& insn, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  const MatrixForm& form = insn.form<MatrixForm>();
  Row rows[32];
  const std::byte* host[kWarpSize] = {};
  const int count = static_cast<int>(form.registers.size()) * 8;
  Place places[kWarpSize];
  if (!find_rows(warp, insn, form, count, AccessKind::kRead, places)) return Step::kNext;
  if constexpr (Checks::kIndex != 0) touch_rows(warp, insn, count, AccessKind::kRead, places, nullptr);
  for (int lane = 0; lane < count; ++lane) {
    host[lane] = places[lane].host;
    if (form.padding == ChunkPadding::kNone)
      std::memcpy(rows[lane], host[lane], kRowBytes);
    else
      expand_chunk(form.padding, reinterpret_cast<const uint8_t*>(host[lane]), rows[lane]);
  }
  count_rows(warp, insn, host, count, false);
  for (size_t j = 0; j < form.registers.size(); ++j) {
    uint32_t* to = warp.reg<uint32_t>(form.registers[j]);
    if (!form.transposed) {
      std::memcpy(to, rows[8 * j], sizeof(uint32_t) * kWarpSize);
      continue;
    }
    for (int l = 0; l < kWarpSize; ++l) {
      uint32_t word = 0;
      for (int h = 0; h < 2; ++h) {
        const Element e = element_of(l, h, form.transposed);
        uint16_t value;
        std::memcpy(&value, rows[8 * j + static_cast<size_t>(e.row)] + 2 * e.column, 2);
        word |= static_cast<uint32_t>(value) << 16 * h;
      }
      to[l] = word;
    }
  }
  return Step::kNext;
}

template <class Checks>
Step exec_store(Warp& warp, const Instruction& insn, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  const MatrixForm& form = insn.form<MatrixForm>();
  Row rows[32];
  for (size_t j = 0; j < form.registers.size(); ++j) {
    const uint32_t* from = warp.reg<uint32_t>(form.registers[j]);
    if (!form.transposed) {
      std::memcpy(rows[8 * j], from, sizeof(uint32_t) * kWarpSize);
      continue;
    }
    for (int l = 0; l < kWarpSize; ++l)
      for (int h = 0; h < 2; ++h) {
        const Element e = element_of(l, h, form.transposed);
        const auto value = static_cast<uint16_t>(from[l] >> 16 * h);
        std::memcpy(rows[8 * j + static_cast<size_t>(e.row)] + 2 * e.column, &value, 2);
      }
  }
  const std::byte* host[kWarpSize] = {};
  const int count = static_cast<int>(form.registers.size()) * 8;
  Place places[kWarpSize];
  if (!find_rows(warp, insn, form, count, AccessKind::kWrite, places)) return Step::kNext;
  if constexpr (Checks::kIndex != 0) touch_rows(warp, insn, count, AccessKind::kWrite, places, rows);
  for (int lane = 0; lane < count; ++lane) {
    std::memcpy(places[lane].host, rows[lane], kRowBytes);
    host[lane] = places[lane].host;
  }
  count_rows(warp, insn, host, count, true);
  warp.cta().cluster().note_progress();
  return Step::kNext;
}

Step exec_transpose(Warp& warp, const Instruction& insn, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  uint16_t matrix[8][8];
  const uint32_t* from = warp.reg<uint32_t>(insn.a);
  for (int l = 0; l < kWarpSize; ++l)
    for (int h = 0; h < 2; ++h) matrix[l / 4][2 * (l % 4) + h] = static_cast<uint16_t>(from[l] >> 16 * h);
  uint32_t* to = warp.reg<uint32_t>(insn.d);
  for (int l = 0; l < kWarpSize; ++l)
    to[l] = matrix[2 * (l % 4)][l / 4] | static_cast<uint32_t>(matrix[2 * (l % 4) + 1][l / 4]) << 16;
  return Step::kNext;
}

bool decode_move(Decoder& decoder, Instruction& out, bool is_load) {
  MatrixForm form;
  form.at = decoder.address(is_load ? 1 : 0);
  form.transposed = decoder.has(Mod::trans);
  if (decoder.has_type(ScalarType::b4x16_p64)) form.padding = ChunkPadding::kPadded4;
  if (decoder.has_type(ScalarType::b6x16_p32)) form.padding = ChunkPadding::kPadded6;
  if (decoder.has(Mod::m16n16) || decoder.has(Mod::m16n8) ||
      (decoder.has(Mod::m8n16) && form.padding == ChunkPadding::kNone))
    decoder.refuse("the transposing 8-bit forms are not modelled");
  const ptx::Operand& data = decoder.operand(is_load ? 0 : 1);
  const std::span<const ptx::Operand> elements =
      data.kind == ptx::OperandKind::vector ? decoder.elements(data) : std::span(&data, 1);
  const size_t expected = decoder.has(Mod::x4) ? 4 : decoder.has(Mod::x2) ? 2 : 1;
  if (elements.size() != expected)
    decoder.refuse(fmt::format("{} registers given, {} matrices take as many", elements.size(), expected));
  for (const ptx::Operand& element : elements)
    form.registers.push_back(is_load ? decoder.destination(element, ScalarType::b32)
                                     : decoder.source(element, ScalarType::b32));
  out.extra = decoder.keep(std::move(form));
  if (is_load)
    set_bodies(out, exec_load<Unchecked>, exec_load<Checked>);
  else
    set_bodies(out, exec_store<Unchecked>, exec_store<Checked>);
  return true;
}

}  // namespace

bool decode_matrix_moves(Decoder& decoder, Instruction& out) {
  switch (decoder.op()) {
    case Op::ldmatrix:
      return decode_move(decoder, out, true);
    case Op::stmatrix:
      return decode_move(decoder, out, false);
    case Op::movmatrix:
      out.d = decoder.destination(0, ScalarType::b32);
      out.a = decoder.source(1, ScalarType::b32);
      set_body(out, exec_transpose);
      return true;
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu

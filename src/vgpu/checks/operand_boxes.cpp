// SPDX-License-Identifier: Apache-2.0
#include "vgpu/checks/operand_boxes.h"

#include <fmt/format.h>

namespace imbrex::vgpu {

namespace {

constexpr const char* kNames[] = {"A", "B"};

void note_direction(ChunkOrigins::Kept& kept, int operand, const ChunkOrigins::Use& now) {
  ChunkOrigins::Use& first = kept.first[operand];
  if (first.insn == nullptr || first.accumulator != now.accumulator)
    first = now;
  else if (first.k_major != now.k_major && kept.turned.insn == nullptr)
    kept.turned = now;
}

/// `read` came with an earlier phase of the barrier than `other`, the product's other operand: was there a
/// box of the same tensor with `other`?
void note_older(ChunkOrigins& origins, const ChunkOrigins::Box& read, const ChunkOrigins::Box& other,
                const ChunkOrigins::Use& now) {
  if (read.barrier == 0 || read.barrier != other.barrier || read.phase >= other.phase) return;
  if (ChunkOrigins::Kept* unread = origins.find_unread(other.barrier, other.phase, read))
    if (unread->passed_over.insn == nullptr) unread->passed_over = now;
}

void report_passed_over(const TileContext& tiles, const ChunkOrigins::Kept& kept) {
  const ChunkOrigins::Use& use = kept.passed_over;
  const Who who{&tiles.cta, use.warp, -1, use.insn, "tensor core"};
  const Who loader = Who{&tiles.cta, kept.box.warp, -1, kept.box.insn}.as_unit("TMA");
  Finding* finding = tiles.log.open(FindingKind::kOperandLayout, who, kept.box.offset, &loader);
  if (finding == nullptr) return;
  finding->message = fmt::format(
      "operand {}: reads a box that came with an earlier phase of the mbarrier than the other operand did; "
      "the "
      "box of the same tensor that came with it, to shared {:#x}, is never read",
      kNames[use.operand], kept.box.offset);
  finding->hint = "load the box to where the product reads it";
}

void report_turned(const TileContext& tiles, const ChunkOrigins::Kept& kept) {
  const ChunkOrigins::Use& use = kept.turned;
  const Who who{&tiles.cta, use.warp, -1, use.insn, "tensor core"};
  const Who loader = Who{&tiles.cta, kept.box.warp, -1, kept.box.insn}.as_unit("TMA");
  Finding* finding = tiles.log.open(FindingKind::kOperandLayout, who, kept.box.offset, &loader);
  if (finding == nullptr) return;
  const char* extent = use.operand == 0 ? "m" : "n";
  finding->message = fmt::format(
      "operand {}: takes the rows of a loaded box for {}, which a product before it, into the same "
      "accumulator, "
      "took for {}; {} of the box's {} pieces of 16 bytes are never read",
      kNames[use.operand], use.k_major ? extent : "k", use.k_major ? "k" : extent, kept.size - kept.read,
      kept.size);
  finding->hint = "make the major-ness of the products agree with the tensor's";
}

}  // namespace

void note_product(const Who& who, const OperandBoxes& a, const OperandBoxes& b, uint64_t accumulator) {
  const OperandBoxes* const operands[] = {&a, &b};
  for (int operand = 0; operand < 2; ++operand) {
    const ChunkOrigins::Use now{who.insn, who.warp, operand, operands[operand]->k_major, accumulator};
    for (const auto& [origins, box] : operands[operand]->boxes) {
      if (accumulator != 0) note_direction(origins->kept(box), operand, now);
      for (const auto& [other_origins, other] : operands[1 - operand]->boxes)
        if (other_origins == origins)
          note_older(*origins, origins->kept(box).box, origins->kept(other).box, now);
    }
  }
}

void report_unread_boxes(const TileContext& tiles) {
  for (const ChunkOrigins::Kept& kept : tiles.origins.take_suspects())
    kept.is_passed_over() ? report_passed_over(tiles, kept) : report_turned(tiles, kept);
}

}  // namespace imbrex::vgpu

// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk.tensor from global to shared memory: boxes of a tensor, to one CTA or to several of the
// cluster, with the bytes announced to an mbarrier. And the prefetch forms, which change nothing that a
// kernel could see.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "core/float_formats.h"
#include "vgpu/machine/touch_many.h"
#include "vgpu/memory/raced_bytes.h"
#include "vgpu/units/mbarrier_ops.h"
#include "vgpu/units/tma.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::OperandKind;
using ptx::ScalarType;

constexpr uint32_t kDestinationAlignment = 128;
constexpr uint32_t kMaxRowBytes = 2048;  // 256 elements of 8 bytes

struct LoadForm {
  AddressSource to, barrier;
  TensorOperand tensor;
  int rank;
  TileMode mode;
  bool multicast = false;
  bool pair = false;  // .cta_group::2
  Slot mask = 0;
};

// tf32 maps round to nearest even at 10 fraction bits.
uint32_t rounded_tf32(uint32_t bits) {
  return static_cast<uint32_t>(arith::encode(arith::kTF32, std::bit_cast<float>(bits)));
}

// 16 elements of 4 or 6 bits, spread to 16 bytes each group: data first, padding undefined (here zero).
void spread_groups(const std::byte* from, uint32_t data_bytes, uint32_t groups, std::byte* to) {
  for (uint32_t g = 0; g < groups; ++g) {
    read_bytes(to + g * 16, from + g * data_bytes, data_bytes);
    std::memset(to + g * 16 + data_bytes, 0, 16 - data_bytes);
  }
}

class BoxLoad : public AsyncOp {
 public:
  BoxLoad(Who who, const TensorBox& box, Cta& to, uint32_t offset, Cta& barrier_cta, uint32_t barrier,
          bool multicast, bool is_first)
      : AsyncOp(who),
        box_(box),
        to_(&to),
        offset_(offset),
        barrier_cta_(&barrier_cta),
        barrier_(barrier),
        multicast_(multicast),
        is_first_(is_first) {}

  bool run(Cluster& cluster) override {
    // Where nothing is multiplied and no thread reads it, nobody misses the data.
    const LaunchContext& launch = cluster.launch();
    UnitTouches reads(who, *to_, Space::kGlobal, AccessKind::kRead);
    if (launch.options.tensor_math != TensorMath::kNone || launch.program.habits.reads_shared)
      box_.for_each_row(offset_, [&](const BoxRow& row) { load_row(cluster, row, reads); });
    reads.flush();
    if (is_one_stretch())
      touch(cluster, who, shared_place(*to_, offset_), box_.footprint(), AccessKind::kWrite);
    if (cluster.checks().layouts) note_origins();
    cluster.statistics().tma_bytes_loaded += box_.bytes();
    if (!is_first_) cluster.statistics().tma_bytes_repeated += box_.bytes();
    deliver_bytes(cluster, who, *barrier_cta_, barrier_, box_.bytes());
    return true;
  }

  std::string describe() const override {
    return fmt::format("load of a {} to shared {:#x}", box_.text(), offset_);
  }
  WorkDemand demand() const override {
    const BoxTraffic traffic = box_.traffic();
    return {.kind = WorkDemand::Kind::kTmaLoad,
            .bytes = box_.bytes(),
            .clocks = delay(),
            .sectors = static_cast<int16_t>(traffic.sectors),
            .partial_lines = static_cast<int16_t>(traffic.partial_lines),
            .mapped = true,
            .multicast = multicast_,
            .repeated = !is_first_,
            .block = box_.identity(),
            .address = box_.address()};
  }
  bool fills(const Cta& cta, uint32_t at) const override {
    return &cta == to_ && at - offset_ < box_.footprint();
  }
  Completion completion() const override {
    return {CompletedBy::kMbarrier, sync_key(SyncKind::kMbarrier, barrier_cta_->rank(), barrier_)};
  }

 private:
  void load_row(Cluster& cluster, const BoxRow& row, UnitTouches& reads);
  void note_origins();
  /// Clocks of the engine beyond those of rows that begin with a line: others straddle two, and those that do not begin
  /// with a sector are fetched in smaller pieces. Measured on an H200, of each 128 bytes (docs/measurements/2026-11-25-tiles.md).
  double delay() const {
    constexpr double kHalves = 0.6, kSectors = 0.84, kPieces = 1.7, kLine = 128;
    uint64_t all = box_.map.address;
    for (size_t d = 1; d < static_cast<size_t>(box_.map.rank); ++d) all |= box_.map.strides[d];
    const double each = all % 128 == 0 ? 0 : all % 64 == 0 ? kHalves : all % 32 == 0 ? kSectors : kPieces;
    return each * static_cast<double>(box_.bytes()) / kLine;
  }
  /// Its rows fill the destination without gaps, so that the checkers take all of them at once.
  bool is_one_stretch() const {
    const uint32_t span = facts(box_.map.swizzle).span, bytes = box_.map.row_bytes();
    return bytes == box_.map.row_pitch() && (span == 0 || bytes == span);
  }

  TensorBox box_;
  Cta* to_;
  uint32_t offset_;
  Cta* barrier_cta_;
  uint32_t barrier_;
  bool multicast_;
  bool is_first_;  // of a multicast's destinations
};

void BoxLoad::load_row(Cluster& cluster, const BoxRow& row, UnitTouches& reads) {
  const TensorMapFields& map = box_.map;
  const TensorMapTypeFacts& type = facts(map.type);
  const uint32_t bytes = map.row_bytes();
  const auto global_bytes = [&](int64_t elements) { return elements * type.eighths_in_global / 8; };
  std::byte buffer[kMaxRowBytes];
  const bool is_whole = row.begin == 0 && row.end == map.box[0];
  const bool is_padded =
      map.type == TensorMapType::kPacked16U4Padded || map.type == TensorMapType::kPacked16U6Padded;

  if (row.begin < row.end) {
    const uint64_t from =
        row.global + static_cast<uint64_t>(global_bytes(box_.coordinates[0] + int64_t{row.begin}));
    const auto count = static_cast<uint32_t>(global_bytes(int64_t{row.end} - row.begin));
    Place place;
    if (!locate(cluster, who, Space::kGlobal, from, count, 1, AccessKind::kRead, place)) return;
    reads.add(from, count);
    if (is_padded)
      spread_groups(place.host, type.eighths_in_global * 2u, (row.end - row.begin) / 16, buffer + row.begin);
    else
      read_bytes(buffer + global_bytes(row.begin), place.host, count);
    if (map.type == TensorMapType::kTFloat32 || map.type == TensorMapType::kTFloat32Ftz) {
      for (uint32_t i = row.begin; i < row.end; ++i) {
        uint32_t word;
        std::memcpy(&word, buffer + i * 4, 4);
        word = rounded_tf32(word);
        std::memcpy(buffer + i * 4, &word, 4);
      }
    }
  }
  if (!is_whole) {
    // Outside elements: zeros, or in every 16 bits the pattern 0x7FF7.
    const uint32_t per_element = type.shared_bytes == 0 ? 0 : type.shared_bytes;
    const uint32_t begin = per_element == 0 ? row.begin / 2 : row.begin * per_element;
    const uint32_t end = per_element == 0 ? row.end / 2 : row.end * per_element;
    const auto fill = [&](uint32_t at) {
      const bool low = at % 2 == 0;
      buffer[at] = !map.fill_with_nan ? std::byte{0} : low ? std::byte{0xF7} : std::byte{0x7F};
    };
    for (uint32_t at = 0; at < begin; ++at) fill(at);
    for (uint32_t at = end; at < bytes; ++at) fill(at);
  }

  SharedMemory& shared = to_->shared();
  if (map.swizzle == Swizzle::kNone) {
    std::memcpy(shared.at(row.shared), buffer, bytes);
  } else if (swizzle_piece(map.swizzle) == 16) {
    for (uint32_t at = 0; at < bytes; at += 16)
      std::memcpy(shared.at(swizzle_address(map.swizzle, row.shared + at)), buffer + at, 16);
  } else {
    for (uint32_t at = 0; at < bytes; at += 8)
      std::memcpy(shared.at(swizzle_address(map.swizzle, row.shared + at)), buffer + at, 8);
  }
  if (!is_one_stretch()) touch_row(cluster, who, *to_, map, row.shared, AccessKind::kWrite);
}

void BoxLoad::note_origins() {
  const TensorMapFields& map = box_.map;
  if (swizzle_piece(map.swizzle) != 16) return;
  ChunkOrigins& origins = to_->units().chunk_origins;
  const uint32_t rows = box_.mode == TileMode::kFourRows ? 4 : map.rows(), chunks = map.row_bytes() / 16;
  const int64_t eighths = facts(map.type).eighths_in_global;
  const Mbarrier* barrier = barrier_cta_->units().mbarriers.find(barrier_);
  const uint32_t box = origins.add_box({who.insn, who.warp, map.swizzle, rows, chunks, map.address,
                                        int64_t{box_.coordinates[0]} * eighths / 8, false, offset_,
                                        sync_key(SyncKind::kMbarrier, barrier_cta_->rank(), barrier_),
                                        barrier == nullptr ? 0 : barrier->phase()});
  uint32_t index = 0;
  box_.for_each_row(offset_, [&](const BoxRow& row) {
    origins.set_row(box, index++, chunks,
                    [&](uint32_t chunk) { return swizzle_address(map.swizzle, row.shared + chunk * 16); });
  });
}

// Whose barrier a copy into CTA `to` signals.
Cta* barrier_owner(Cluster& cluster, const LoadForm& form, const Cta& to, const Cta& named) {
  if (!form.pair)
    return form.multicast ? cluster.cta(static_cast<uint32_t>(to.rank()))
                          : cluster.cta(static_cast<uint32_t>(named.rank()));
  // In each pair the CTA of the same parity as the one that holds the named barrier.
  const auto rank = static_cast<uint32_t>(to.rank());
  return cluster.cta((rank & ~1u) | (static_cast<uint32_t>(named.rank()) & 1u));
}

void load(Cluster& cluster, Warp& warp, const Instruction& insn, const LoadForm& form, int lane) {
  const Who who = warp.thread(insn, lane).as_unit(kTmaUnit);
  TensorBox box;
  if (!read_box(cluster, who, warp, form.tensor, form.rank, form.mode, lane, box)) return;
  Place to, barrier;
  if (!locate(cluster, who, form.to.space, warp.address(form.to, lane), box.footprint(),
              kDestinationAlignment, AccessKind::kWrite, to) ||
      !locate(cluster, who, form.barrier.space, warp.address(form.barrier, lane), 8, 8, AccessKind::kAtomic,
              barrier))
    return;
  const auto offset = static_cast<uint32_t>(to.address);
  const bool same_pair = (to.cta->rank() ^ barrier.cta->rank()) <= 1;
  if (!form.multicast && to.cta != barrier.cta && !(form.pair && same_pair)) {
    cluster.report_fatal(
        FindingKind::kIllegalInstruction, who, barrier.address,
        fmt::format("the copy goes to the CTA of rank {} and its mbarrier is in the CTA of rank {}",
                    to.cta->rank(), barrier.cta->rank()),
        form.pair ? "the barrier may be in the destination or its peer"
                  : "the barrier must be in the CTA that gets the data");
    return;
  }
  uint32_t ranks = 1u << to.cta->rank();
  if (form.multicast) ranks = warp.reg<uint32_t>(form.mask)[lane] & 0xFFFF;
  if (ranks >> cluster.ctas().size() != 0) {
    cluster.report_fatal(FindingKind::kIllegalInstruction, who, to.address,
                         fmt::format("multicast mask {:#x} names CTAs outside the cluster of {}", ranks,
                                     cluster.ctas().size()));
    return;
  }
  for (uint32_t rank = 0; rank < cluster.ctas().size(); ++rank) {
    if ((ranks >> rank & 1) == 0) continue;
    Cta* target = cluster.cta(rank);
    Place check;
    if (!locate_shared(who, *target, offset, box.footprint(), kDestinationAlignment, AccessKind::kWrite,
                       check))
      return;
    Cta* owner = barrier_owner(cluster, form, *target, *barrier.cta);
    const bool is_first = (ranks & ((1u << rank) - 1)) == 0;
    cluster.async().submit(std::make_unique<BoxLoad>(
        who, box, *target, offset, *owner, static_cast<uint32_t>(barrier.address), form.multicast, is_first));
  }
}

Step exec_load(Warp& warp, const Instruction& insn, Mask active) {
  const LoadForm& form = insn.form<LoadForm>();
  for_each_lane(active, [&](int lane) { load(warp.cta().cluster(), warp, insn, form, lane); });
  return Step::kNext;
}

struct PrefetchForm {
  TensorOperand tensor;
  int rank;
  TileMode mode;
};

// Only the operands are looked at: what would be illegal in a load is reported here too.
Step exec_prefetch(Warp& warp, const Instruction& insn, Mask active) {
  const PrefetchForm& form = insn.form<PrefetchForm>();
  for_each_lane(active, [&](int lane) {
    TensorBox box;
    read_box(warp.cta().cluster(), warp.thread(insn, lane).as_unit(kTmaUnit), warp, form.tensor, form.rank,
             form.mode, lane, box);
  });
  return Step::kNext;
}

}  // namespace

bool decode_tma_load(Decoder& decoder, Instruction& out) {
  if (decoder.op() == Op::cp_async_bulk_prefetch_tensor) {
    const TileMode mode = tile_mode_of(decoder);
    PrefetchForm form{tensor_operand(decoder, decoder.operand(0)), rank_of(decoder), mode};
    if (mode == TileMode::kIm2col) take_offsets(decoder, 1, form.tensor);
    out.extra = decoder.keep(std::move(form));
    set_body(out, exec_prefetch);
    return true;
  }
  if (decoder.op() != Op::cp_async_bulk_tensor || decoder.operand(0).kind == OperandKind::tensor)
    return false;
  LoadForm form;
  form.mode = tile_mode_of(decoder);
  const Space window = decoder.has(Mod::shared_cta) ? Space::kSharedCta : Space::kSharedCluster;
  form.to = decoder.address_in(decoder.operand(0), window);
  form.tensor = tensor_operand(decoder, decoder.operand(1));
  form.barrier = decoder.address_in(decoder.operand(2), Space::kSharedCluster);
  form.rank = rank_of(decoder);
  form.pair = decoder.has(Mod::cta_group_2);
  form.multicast = decoder.has(Mod::multicast_cluster);
  size_t next = 3;
  if (form.mode == TileMode::kIm2col) take_offsets(decoder, next++, form.tensor);
  if (form.multicast) {
    if (decoder.operand_count() <= next) decoder.refuse(".multicast::cluster needs a mask of CTAs");
    form.mask = decoder.source(next, ScalarType::b16);
  }
  out.extra = decoder.keep(std::move(form));
  set_body(out, exec_load);
  return true;
}

}  // namespace imbrex::vgpu

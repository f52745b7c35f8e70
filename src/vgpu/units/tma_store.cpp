// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory, completed through bulk
// groups.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "vgpu/checks/staged_tile.h"
#include "vgpu/memory/element_reduction.h"
#include "vgpu/memory/raced_bytes.h"
#include "vgpu/units/bulk_groups.h"
#include "vgpu/units/reduce_words.h"
#include "vgpu/units/tma.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::OperandKind;

struct StoreForm {
  TensorOperand tensor;
  AddressSource from;
  int rank;
  TileMode mode;
  ReduceOp reduce = ReduceOp::kNone;
};

std::optional<ReduceType> reduce_type(TensorMapType type) {
  switch (type) {
    case TensorMapType::kUInt32:
      return ReduceType::kU32;
    case TensorMapType::kInt32:
      return ReduceType::kS32;
    case TensorMapType::kUInt64:
      return ReduceType::kU64;
    case TensorMapType::kInt64:
      return ReduceType::kS64;
    case TensorMapType::kFloat16:
      return ReduceType::kF16;
    case TensorMapType::kBFloat16:
      return ReduceType::kBF16;
    // Neither rounds to tf32; subnormals go with the map's ftz.
    case TensorMapType::kFloat32:
    case TensorMapType::kTFloat32:
      return ReduceType::kF32;
    case TensorMapType::kFloat32Ftz:
    case TensorMapType::kTFloat32Ftz:
      return ReduceType::kF32Ftz;
    default:
      return std::nullopt;
  }
}

class BoxStore : public BulkStore {
 public:
  BoxStore(Who who, Warp& warp, const TensorBox& box, uint32_t from, ReduceOp reduce)
      : BulkStore(who, warp), box_(box), from_(from), reduce_(reduce) {}

  std::string describe() const override {
    return fmt::format("{} of a {} from shared {:#x}", reduces() ? "reduction" : "store", box_.text(), from_);
  }
  WorkDemand demand() const override {
    const BoxTraffic traffic = box_.traffic();
    return {.kind = WorkDemand::Kind::kTmaStore,
            .bytes = box_.bytes(),
            .sectors = static_cast<int16_t>(traffic.sectors),
            .partial_lines = static_cast<int16_t>(traffic.partial_lines),
            .mapped = true,
            .reduces = reduces(),
            .block = box_.identity(),
            .address = box_.address()};
  }

 protected:
  bool reduces() const override { return reduce_ != ReduceOp::kNone; }
  void read(Cluster& cluster) override {
    const TensorMapFields& map = box_.map;
    const uint32_t bytes = map.row_bytes(), piece = swizzle_piece(map.swizzle);
    if (cluster.checks().layouts) check_staged_tile(source().tiles(), who, box_, from_);
    data_.resize(box_.shared_bytes());
    std::byte* to = data_.data();
    box_.for_each_row(from_, [&](const BoxRow& row) {
      // Rows outside the tensor are not read either.
      if (row.begin < row.end) touch_row(cluster, who, source(), map, row.shared, AccessKind::kRead);
      for (uint32_t at = 0; at < bytes; at += piece)
        std::memcpy(to + at, source().shared().at(swizzle_address(map.swizzle, row.shared + at)), piece);
      to += bytes;
    });
  }

  // Dimension 0 ends at the next multiple of 16 bytes: a row's last 16 bytes are written whole, and what the
  // box has beyond the tensor lands behind it (measured on H200; loads do stop at the last element).
  uint32_t written_end(const BoxRow& row, int64_t eighths) const {
    const int64_t end = (box_.coordinates[0] + int64_t{row.end}) * eighths;
    const int64_t rounded = (end + 127) / 128 * 128 / eighths - box_.coordinates[0];
    return static_cast<uint32_t>(std::min<int64_t>(rounded, box_.map.box[0]));
  }

  void write(Cluster& cluster) override {
    const TensorMapFields& map = box_.map;
    const auto eighths = static_cast<int64_t>(facts(map.type).eighths_in_global);
    const std::byte* from = data_.data();
    box_.for_each_row(from_, [&](const BoxRow& row) {
      const std::byte* values = from;
      from += map.row_bytes();
      if (row.begin >= row.end) return;
      const uint64_t to =
          row.global + static_cast<uint64_t>((box_.coordinates[0] + int64_t{row.begin}) * eighths / 8);
      const auto bytes = static_cast<uint32_t>((written_end(row, eighths) - row.begin) * eighths / 8);
      Place place;
      AccessKind kind = reduces() ? AccessKind::kAtomic : AccessKind::kWrite;
      if (!locate(cluster, who, Space::kGlobal, to, bytes, 1, kind, place)) return;
      values += row.begin * eighths / 8;
      if (reduces()) {
        const ReduceType type = *reduce_type(map.type);
        reduce_elements(reduce_, type, place.host, values, bytes / bytes_of(type));
      } else {
        kind = kind_of_write(cluster, place, values, bytes);
        write_bytes(place.host, values, bytes);
      }
      touch(cluster, who, place, bytes, kind);
      cluster.statistics().tma_bytes_stored += bytes;
    });
  }

 private:
  TensorBox box_;
  uint32_t from_;
  ReduceOp reduce_;
  std::vector<std::byte> data_;
};

// What the map says against the instruction; "" when they go together.
std::string refuse_store(const TensorBox& box, ReduceOp reduce) {
  const TensorMapFields& map = box.map;
  if (map.type == TensorMapType::kPacked16U4Padded || map.type == TensorMapType::kPacked16U6Padded)
    return fmt::format("stores of {} elements are not modelled", facts(map.type).name);
  if (reduce != ReduceOp::kNone) {
    const std::optional<ReduceType> type = reduce_type(map.type);
    if (!type || !is_reduction(reduce, *type))
      return fmt::format("this reduction does not exist for {} elements", facts(map.type).name);
  }
  for (size_t d = 1; box.mode == TileMode::kIm2col && d < static_cast<size_t>(map.rank - 1); ++d)
    if (map.first_pixel(d) < 0 || map.last_pixel(d) >= static_cast<int64_t>(map.dims[d]))
      return fmt::format(
          "the pixel box of dimension {} goes from {} to {}, beyond the tensor's {} elements, which ends the "
          "kernel "
          "on the hardware",
          d, map.first_pixel(d), map.last_pixel(d), map.dims[d]);
  const int coordinates = box.mode == TileMode::kFourRows ? 5 : map.rank;
  for (int d = 0; d < coordinates; ++d)
    if (box.coordinates[static_cast<size_t>(d)] < 0)
      return fmt::format("coordinate {} of dimension {} is negative, which ends the kernel on the hardware",
                         box.coordinates[static_cast<size_t>(d)], d);
  return "";
}

Step exec_store(Warp& warp, const Instruction& insn, Mask active) {
  const StoreForm& form = insn.form<StoreForm>();
  Cluster& cluster = warp.cta().cluster();
  for_each_lane(active, [&](int lane) {
    const Who who = warp.thread(insn, lane).as_unit(kTmaUnit);
    TensorBox box;
    if (!read_box(cluster, who, warp, form.tensor, form.rank, form.mode, lane, box)) return;
    if (const std::string why = refuse_store(box, form.reduce); !why.empty()) {
      cluster.report_fatal(FindingKind::kIllegalInstruction, who, 0, "tensor store: " + why);
      return;
    }
    Place from;
    if (!locate(cluster, who, Space::kSharedCta, warp.address(form.from, lane), box.footprint(), 128,
                AccessKind::kRead, from))
      return;
    cluster.async().submit(
        std::make_unique<BoxStore>(who, warp, box, static_cast<uint32_t>(from.address), form.reduce));
  });
  return Step::kNext;
}

}  // namespace

bool decode_tma_store(Decoder& decoder, Instruction& out) {
  const bool is_reduce = decoder.op() == Op::cp_reduce_async_bulk_tensor;
  if (!is_reduce &&
      (decoder.op() != Op::cp_async_bulk_tensor || decoder.operand(0).kind != OperandKind::tensor))
    return false;
  StoreForm form;
  form.mode = tile_mode_of(decoder);
  form.tensor = tensor_operand(decoder, decoder.operand(0));
  form.from = decoder.address_in(decoder.operand(1), Space::kSharedCta);
  form.rank = rank_of(decoder);
  if (is_reduce) form.reduce = reduce_op_of(decoder);
  out.extra = decoder.keep(std::move(form));
  set_body(out, exec_store);
  return true;
}

}  // namespace imbrex::vgpu

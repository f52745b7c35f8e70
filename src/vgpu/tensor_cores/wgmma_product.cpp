// SPDX-License-Identifier: Apache-2.0
#include "vgpu/tensor_cores/wgmma_product.h"

#include <fmt/format.h>

#include <cstring>

#include "core/tensor_arith.h"
#include "vgpu/tensor_cores/fragments.h"
#include "vgpu/tensor_cores/operand_reader.h"

namespace imbrex::vgpu {
namespace {

constexpr int64_t kWarpRows = 16;
constexpr int64_t kRows = kWarpRows * kWarpgroupWarps;
constexpr int64_t kRowBytes = 32;  // of K in one product, whatever the type; of what is stored of a sparse A

}  // namespace

WarpgroupProduct::WarpgroupProduct(Who who, Warpgroup& group, const WgmmaForm& form, int64_t number)
    : AsyncOp(who), group_(&group), form_(&form), number_(number) {
  if (form.spec.sparse)
    places_.emplace(sparsity_of(form.spec.a.bits(), true), MetadataOrder::kAscending, kRows,
                    form.spec.shape.k);
}

bool WarpgroupProduct::join(Warp& warp, const Operands& operands) {
  if (joined_ > 0 && !(operands == operands_)) return false;
  operands_ = operands;
  const int64_t position = warp.index() % kWarpgroupWarps;
  warps_[static_cast<size_t>(position)] = &warp;
  // The assembler makes a write to A's registers wait until the product has read them.
  if (!form_->a.empty()) {
    a_rows_.resize(kRows * kRowBytes);
    const uint32_t* registers[4];
    for (size_t r = 0; r < 4; ++r) registers[r] = warp.reg<uint32_t>(form_->a[r]);
    gather_a(registers, 4, a_rows_.data() + position * kWarpRows * kRowBytes, kRowBytes);
  }
  if (places_)
    read_warp_metadata(warp.reg<uint32_t>(form_->metadata), form_->spec.a.bits(), form_->selector,
                       position * kWarpRows, *places_);
  ++joined_;
  return true;
}

std::string WarpgroupProduct::describe() const {
  const arith::MatrixShape& s = form_->spec.shape;
  std::string text = fmt::format("wgmma m{}n{}k{}", s.m, s.n, s.k);
  if (joined_ < kWarpgroupWarps) text += fmt::format(" (issued by {} of 4 warps)", joined_);
  return text;
}

bool WarpgroupProduct::run(Cluster& cluster) {
  multiply(cluster);
  group_->pending.pop_front();
  ++group_->first;
  ++group_->done;
  cluster.note_progress();
  return true;
}

bool WarpgroupProduct::read_a(Cluster& cluster, std::vector<uint8_t>& out, OperandBoxes& boxes) {
  boxes.boxes.clear();
  boxes.k_major = form_->a_major == Major::kK;
  if (!form_->a.empty()) {
    out = a_rows_;
    return true;
  }
  out.resize(kRows * kRowBytes);
  const OperandAddresses addresses(decode_wgmma_descriptor(operands_.a_descriptor).descriptor,
                                   form_->a_major);
  const bool k_major = form_->a_major == Major::kK;
  const int64_t stored_k = form_->spec.sparse ? form_->spec.shape.k / 2 : form_->spec.shape.k;
  const auto lines = static_cast<uint32_t>(k_major ? kRows : stored_k);
  const auto chunks = static_cast<uint32_t>(k_major ? kRowBytes / 16 : kRows * 2 / 16);  // MN-major: 16 bits
  return read_operand(cluster, who, warps_[0]->cta(), addresses, lines, chunks, "A", out.data(), 16, &boxes);
}

bool WarpgroupProduct::read_b(Cluster& cluster, std::vector<uint8_t>& out, OperandBoxes& boxes) {
  const int64_t n = form_->spec.shape.n;
  out.resize(static_cast<size_t>(n * b_row_bytes()));
  boxes.boxes.clear();
  boxes.k_major = form_->b_major == Major::kK;
  const OperandAddresses addresses(decode_wgmma_descriptor(operands_.b_descriptor).descriptor,
                                   form_->b_major);
  const bool k_major = form_->b_major == Major::kK;
  const auto lines = static_cast<uint32_t>(k_major ? n : form_->spec.shape.k);
  const auto chunks = static_cast<uint32_t>(k_major ? b_row_bytes() / 16 : n * 2 / 16);
  return read_operand(cluster, who, warps_[0]->cta(), addresses, lines, chunks, "B", out.data(), 16, &boxes);
}

void WarpgroupProduct::gather(uint32_t* tile) {
  const int64_t n = form_->spec.shape.n;
  const bool half = form_->spec.d == float16;
  const size_t per_block = half ? 2 : 4;  // registers of 8 columns
  for (size_t w = 0; w < warps_.size(); ++w)
    for (int64_t block = 0; block < n / 8; ++block) {
      const uint32_t* registers[4];
      for (size_t r = 0; r < per_block; ++r)
        registers[r] = warps_[w]->reg<uint32_t>(form_->d[static_cast<size_t>(block) * per_block + r]);
      uint32_t* at = tile + static_cast<int64_t>(w) * kWarpRows * n + block * 8;
      half ? gather_d16(registers, at, n) : gather_d(registers, at, n);
    }
}

void WarpgroupProduct::scatter(const uint32_t* tile) {
  const int64_t n = form_->spec.shape.n;
  const bool half = form_->spec.d == float16;
  const size_t per_block = half ? 2 : 4;
  for (size_t w = 0; w < warps_.size(); ++w)
    for (int64_t block = 0; block < n / 8; ++block) {
      uint32_t* registers[4];
      for (size_t r = 0; r < per_block; ++r)
        registers[r] = warps_[w]->reg<uint32_t>(form_->d[static_cast<size_t>(block) * per_block + r]);
      const uint32_t* at = tile + static_cast<int64_t>(w) * kWarpRows * n + block * 8;
      half ? scatter_d16(at, n, registers) : scatter_d(at, n, registers);
    }
}

/// Where registers were set to zero in place of a product that does not add, nothing is known.
uint64_t WarpgroupProduct::accumulator() {
  const uint32_t d = form_->d_numbers.front();
  if (!operands_.add)
    group_->sums[d] = static_cast<uint64_t>(warps_[0]->index()) << 48 | static_cast<uint64_t>(number_ + 1);
  return group_->sums[d];
}

bool WarpgroupProduct::multiply(Cluster& cluster) {
  thread_local std::vector<uint8_t> a, b;
  std::vector<uint32_t>& tile = group_->tile;
  const arith::MatrixShape& shape = form_->spec.shape;
  if (cluster.launch().options.tensor_math == TensorMath::kNone) {
    cluster.statistics().tensor_flops += 2 * shape.m * shape.n * shape.k;
    return true;
  }
  thread_local OperandBoxes a_boxes, b_boxes;
  if (!read_a(cluster, a, a_boxes) || !read_b(cluster, b, b_boxes)) return false;
  if (cluster.checks().layouts) note_product(who, a_boxes, b_boxes, accumulator());
  tile.resize(static_cast<size_t>(kRows * shape.n));
  if (operands_.add && !group_->tile_has_results) gather(tile.data());
  if (form_->is_bits) {
    multiply_bits(a.data(), b.data(), tile.data());
  } else {
    TensorProduct product(form_->spec, cluster.launch().options.tensor_math);
    if (!product.problem().empty()) {
      cluster.report_fatal(FindingKind::kIllegalInstruction, who, 0, product.problem());
      return false;
    }
    product.load_a(a.data(), form_->a.empty() ? form_->a_major : Major::kK);
    if (places_) {
      if (!places_->problem().empty())
        cluster.report(FindingKind::kIllegalInstruction, who, 0, places_->problem());
      product.load_places(places_->data());
    }
    product.load_b(b.data(), form_->b_major);
    product.multiply(0, kRows, 0, shape.n, tile.data(), shape.n, operands_.add);
  }
  // Products into the same registers come in chains. What is between them stays here once every warp has issued
  // the next one: then none can look at the registers before that is done.
  group_->tile_has_results = group_->pending.size() > 1 && group_->pending[1]->form_->d == form_->d &&
                             group_->pending[1]->joined_ == kWarpgroupWarps;
  if (!group_->tile_has_results) scatter(tile.data());
  cluster.statistics().operand_bytes += static_cast<int64_t>(b.size() + (form_->a.empty() ? a.size() : 0));
  cluster.statistics().tensor_flops += 2 * shape.m * shape.n * shape.k;
  return true;
}

void WarpgroupProduct::multiply_bits(const uint8_t* a, const uint8_t* b, uint32_t* tile) {
  const arith::MatrixShape words{kRows, form_->spec.shape.n, kRowBytes / 4};
  auto* d = reinterpret_cast<int32_t*>(tile);
  arith::multiply_accumulate_bits(words, reinterpret_cast<const uint32_t*>(a),
                                  reinterpret_cast<const uint32_t*>(b), operands_.add ? d : nullptr, d,
                                  false);
}

}  // namespace imbrex::vgpu

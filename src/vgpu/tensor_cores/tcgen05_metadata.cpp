// SPDX-License-Identifier: Apache-2.0
// Where tensor memory holds the metadata of a sparse A. It lies in the lanes of A's rows, 16 of them together: with
// 16- and 32-bit elements, one column; the first eight lanes have the first half of k, the others the second, each
// lane 16 bits for row i and 16 for row i + 8. With narrower elements a lane has 64 bits for its own row. Written down
// from the layouts that public kernels use; no Blackwell GPU was asked.
#include <fmt/format.h>

#include "vgpu/tensor_cores/tcgen05_operands.h"

namespace imbrex::vgpu {
namespace {

constexpr uint32_t kGroup = 16;  // rows and lanes

/// Column of a 16- or 32-bit product's metadata: the selector chooses among four.
uint32_t first_column(TensorAddress address, const MmaShape& shape) {
  return address.column / 4 * 4 + (address.column + shape.sparsity_selector) % 4;
}

}  // namespace

bool fetch_metadata(Cluster& cluster, const Who& who, const CtaPair& ctas, const MmaForm& form,
                    TensorAddress address, const MmaShape& shape, std::optional<StoredPlaces>& out) {
  const bool packed_4bit = form.kind == MmaKind::kMxF4 || form.kind == MmaKind::kMxF4NvF4;
  const bool shares_lane = shape.a.bits() >= 16;
  const uint32_t columns = shares_lane ? 1 : 2;
  const std::vector<TensorSegment> segments = operand_a_segments(form, shape.m, columns, address.lane);
  if (segments.empty()) {
    cluster.report_fatal(
        FindingKind::kIllegalInstruction, who, address.bits(),
        fmt::format(".ws.sp: where the metadata of M = {} lies is not documented and not modelled", shape.m),
        "M = 128 is modelled");
    return false;
  }
  if (!shares_lane && shape.sparsity_selector != 0) {
    cluster.report_fatal(
        FindingKind::kIllegalInstruction, who, address.bits(),
        fmt::format("sparsity selector {} (bits 1:0 of the instruction descriptor): elements of {} "
                    "bits have 0",
                    shape.sparsity_selector, shape.a.bits()));
    return false;
  }
  const uint32_t column = shares_lane ? first_column(address, shape) : address.column;
  out.emplace(sparsity_of(shape.a.bits(), packed_4bit), MetadataOrder::kAscending, shape.m, shape.k);
  const int64_t codes = out->codes_per_row();
  for (const TensorSegment& s : segments) {
    Cta& cta = ctas.at(s.cta);
    if (!check_allocated(cluster, who, cta, column, columns)) return false;
    TensorMemory& memory = tensor_unit(cta).memory;
    if (cluster.checks().uninitialized)
      check_defined(cluster, who, memory, s.lane, s.rows, column, columns, "sparsity metadata");
    cluster.observe().tensor_touched(who, cta, s.lane, s.rows, column, columns, TensorAccess::kOperand);
    for (uint32_t r = 0; r < s.rows; ++r)
      for (int64_t c = 0; c < codes; ++c) {
        const auto word = static_cast<uint32_t>(shares_lane ? 0 : c / 8);
        uint32_t lane = s.lane + r, bit = static_cast<uint32_t>(c % 8) * 4;
        if (shares_lane) {
          lane = s.lane + r / kGroup * kGroup + static_cast<uint32_t>(c / 4) * 8 + r % 8;
          bit = r / 8 % 2 * 16 + static_cast<uint32_t>(c % 4) * 4;
        }
        out->set(s.row + r, c, memory.at(lane, column + word) >> bit & 0xF);
      }
  }
  if (!out->problem().empty())
    cluster.report(FindingKind::kIllegalInstruction, who, address.bits(), out->problem());
  return true;
}

}  // namespace imbrex::vgpu

// SPDX-License-Identifier: Apache-2.0
// Operands of tcgen05.mma, fetched from shared and tensor memory of the CTAs concerned and brought into the
// form TensorProduct takes.
#pragma once

#include <optional>
#include <vector>

#include "vgpu/checks/operand_boxes.h"
#include "vgpu/machine/access.h"
#include "vgpu/program/decode.h"
#include "vgpu/tensor_cores/sparse_metadata.h"
#include "vgpu/tensor_cores/tcgen05_descriptor.h"
#include "vgpu/tensor_cores/tensor_unit.h"

namespace imbrex::vgpu {

/// One matrix: patterns line by line (rows of k when K-major, lines of m or n when MN-major).
struct OperandPatterns {
  std::vector<uint8_t> bytes;
  Major major = Major::kK;
  OperandBoxes boxes;
};

/// A or B from shared memory: `extent` is M or N, half of which comes from each CTA of a pair. False after a
/// finding.
bool fetch_shared_operand(Cluster& cluster, const Who& who, const CtaPair& ctas, uint64_t descriptor,
                          MmaKind kind, DataType type, Major major, uint32_t extent, uint32_t k,
                          const char* what, OperandPatterns& out);

/// A from tensor memory. `shift`: rows come from the next lane (.ashift).
bool fetch_tensor_operand(Cluster& cluster, const Who& who, const CtaPair& ctas, const MmaForm& form,
                          TensorAddress address, const MmaShape& shape, bool shift, OperandPatterns& out);

/// The metadata of a sparse A from tensor memory. False after a finding that ends the launch; a code that means
/// nothing is reported.
bool fetch_metadata(Cluster& cluster, const Who& who, const CtaPair& ctas, const MmaForm& form,
                    TensorAddress address, const MmaShape& shape, std::optional<StoredPlaces>& out);

/// Scale factors of a block-scaled product: a[m][per_row], b[n][per_row].
struct ScaleFactors {
  std::vector<uint8_t> a, b;
};
bool fetch_scales(Cluster& cluster, const Who& who, const CtaPair& ctas, TensorAddress a_address,
                  TensorAddress b_address, const MmaShape& shape, uint32_t per_row, ScaleFactors& out);

/// Reports the first cell of a rectangle that nobody has written. `what` names it: "scale factors of A".
bool check_defined(Cluster& cluster, const Who& who, const TensorMemory& memory, uint32_t lane,
                   uint32_t lanes, uint32_t column, uint32_t columns, const char* what);

}  // namespace imbrex::vgpu

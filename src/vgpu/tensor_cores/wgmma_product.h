// SPDX-License-Identifier: Apache-2.0
// One wgmma.mma_async: issued by four warps, carried out when all have.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "vgpu/checks/operand_boxes.h"
#include "vgpu/machine/access.h"
#include "vgpu/machine/wgmma_unit.h"
#include "vgpu/program/decode.h"
#include "vgpu/tensor_cores/sparse_metadata.h"
#include "vgpu/tensor_cores/tensor_core.h"
#include "vgpu/timeline/cost_model.h"

namespace imbrex::vgpu {

/// The instruction, decoded.
struct WgmmaForm {
  ProductSpec spec;      // shape 64 x N x K; negations and types included
  bool is_bits = false;  // b1: K counts bits, products are and + popc
  std::vector<Slot> d;
  std::vector<Slot> a;  // empty: A is in shared memory
  Slot metadata = 0;    // of a sparse A
  int selector = 0;
  Slot a_descriptor = 0, b_descriptor = 0;
  Major a_major = Major::kK, b_major = Major::kK;
  bool has_scale_d = false;  // a predicate; else always_add
  PredicateSource scale_d = {};
  bool always_add = true;
  std::vector<uint32_t> d_numbers, a_numbers;  // dense register numbers
};

class WarpgroupProduct : public AsyncOp {
 public:
  /// `number`: of the warp's products.
  WarpgroupProduct(Who who, Warpgroup& group, const WgmmaForm& form, int64_t number);

  /// What every warp must give alike.
  struct Operands {
    const WgmmaForm* form;
    uint64_t a_descriptor, b_descriptor;
    bool add;
    friend bool operator==(const Operands&, const Operands&) = default;
  };
  /// A warp has issued it. False when it gives something else than the warps before.
  bool join(Warp& warp, const Operands& operands);

  bool ready(Cluster&) override { return joined_ == kWarpgroupWarps; }
  bool run(Cluster& cluster) override;
  std::string describe() const override;
  WorkDemand demand() const override {
    return {.kind = WorkDemand::Kind::kMatrix,
            .clocks = wgmma_clocks(static_cast<double>(form_->spec.shape.n), !form_->a.empty())};
  }
  Completion completion() const override {
    return {CompletedBy::kWgmmaGroup, 0, static_cast<uint64_t>(number_)};
  }

 private:
  bool multiply(Cluster& cluster);
  void multiply_bits(const uint8_t* a, const uint8_t* b, uint32_t* tile);
  bool read_a(Cluster& cluster, std::vector<uint8_t>& out, OperandBoxes& boxes);
  bool read_b(Cluster& cluster, std::vector<uint8_t>& out, OperandBoxes& boxes);
  int64_t b_row_bytes() const { return form_->spec.sparse ? 64 : 32; }  // of K
  uint64_t accumulator();
  void gather(uint32_t* tile);
  void scatter(const uint32_t* tile);

  Warpgroup* group_;
  const WgmmaForm* form_;
  int64_t number_;
  Operands operands_{};
  int joined_ = 0;
  std::vector<uint8_t> a_rows_;         // A from registers, as it was when each warp issued the product
  std::optional<StoredPlaces> places_;  // of a sparse A
  std::array<Warp*, kWarpgroupWarps> warps_{};
};

}  // namespace imbrex::vgpu

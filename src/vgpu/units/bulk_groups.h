// SPDX-License-Identifier: Apache-2.0
// The stores and reductions out of shared memory that threads wait for by bulk group.
#pragma once

#include "vgpu/machine/access.h"
#include "vgpu/machine/copy_groups.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

BulkGroups& bulk_groups_of(Warp& warp);

/// Work of a bulk_group instruction: read() first, write() some time later.
class BulkStore : public AsyncOp {
 public:
  BulkStore(Who who, Warp& warp);
  bool run(Cluster& cluster) final;
  bool takes_turn() const final { return has_read_ && reduces(); }
  /// Its source has been read; what is left is global memory's business.
  bool may_outlive_cta() const final { return has_read_; }
  Completion completion() const final { return {CompletedBy::kBulkGroup, 0, number_}; }

 protected:
  /// True when write() joins its values with what is there.
  virtual bool reduces() const = 0;
  virtual void read(Cluster& cluster) = 0;
  virtual void write(Cluster& cluster) = 0;
  /// What write() does to bytes that are now those at `to`: a checker asks whether it changes anything.
  static AccessKind kind_of_write(const Cluster& cluster, const Place& to, const void* bytes, size_t count);
  /// The CTA whose shared memory is the source.
  Cta& source() const { return warp_->cta(); }

 private:
  Warp* warp_;
  CopyGroups::Number number_;
  bool has_read_ = false;
};

}  // namespace imbrex::vgpu

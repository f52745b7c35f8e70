// SPDX-License-Identifier: Apache-2.0
// What a unit touches in many places at once: one call to the checkers for all of them.
#pragma once

#include <utility>
#include <vector>

#include "vgpu/machine/access.h"

namespace imbrex::vgpu {

/// Pieces of the shared memory of a CTA, or rows of global memory. Whoever made it calls flush() in the end.
class UnitTouches {
 public:
  UnitTouches(const Who& who, Cta& cta, Space space, AccessKind kind)
      : who_(who), cta_(&cta), space_(space), kind_(kind), touches_(std::move(spare())) {}
  ~UnitTouches() {
    touches_.clear();
    spare() = std::move(touches_);
  }
  UnitTouches(const UnitTouches&) = delete;
  UnitTouches& operator=(const UnitTouches&) = delete;
  /// Pieces of shared memory that lie side by side become one.
  void add(uint64_t address, uint32_t bytes) {
    if (space_ == Space::kSharedCta && !touches_.empty() &&
        touches_.back().address + touches_.back().bytes == address)
      touches_.back().bytes += bytes;
    else
      touches_.push_back({.address = address, .bytes = bytes, .lane = who_.lane, .lanes = who_.lanes});
  }
  void flush();

 private:
  /// The list of one that is no more, for its memory.
  static std::vector<LaneTouch>& spare() {
    static thread_local std::vector<LaneTouch> list;
    return list;
  }

  const Who& who_;
  Cta* cta_;
  Space space_;
  AccessKind kind_;
  std::vector<LaneTouch> touches_;
};

}  // namespace imbrex::vgpu

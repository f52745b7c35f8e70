// SPDX-License-Identifier: Apache-2.0
// Sums over all rows of a call, one result per column: room for the parts of the CTAs, and the launch that adds them up.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "imbrex/runtime/workspace.h"
#include "rows/row_call.h"

namespace imbrex {

class ColumnSums {
 public:
  /// Each a name and a dense tensor of [columns], or null. LaunchError for one that does not fit, and for rows that are too
  /// long to be held whole. `read`: what the kernel reads row by row, of the last of which a thread takes `thread_bytes`; it
  /// says how many CTAs there is room for.
  ColumnSums(const RowCall& call, std::vector<std::pair<std::string, const DeviceTensor*>> results,
             const std::vector<const DeviceTensor*>& read, int thread_bytes, const Stream& stream);

  /// Whether what adds up the parts can start while they are computed.
  bool overlaps() const { return overlaps_; }
  /// Bytes of a multiprocessor's shared memory for tiles that are loaded ahead.
  int room() const { return room_; }
  /// Whether rows are WideRows.
  bool are_wide() const { return are_wide_; }
  /// CTAs that share the rows, and how many of them begin when others end (PersistentRows).
  int64_t ctas() const { return ctas_; }
  int64_t late_ctas() const { return late_ctas_; }
  bool has(size_t i) const { return !results_[i].second->is_null(); }
  /// The address of parts [ctas, columns], float32; of no use where has() is false.
  uint64_t parts(size_t i) const { return has(i) ? parts_[i].address() : parts_.back().address(); }
  /// Adds up the parts; returns `report`, or the first one that is not clean.
  LaunchReport add_up(LaunchReport report) const;

 private:
  const RowCall& call_;
  std::vector<std::pair<std::string, const DeviceTensor*>> results_;
  Stream stream_;
  int64_t ctas_, late_ctas_ = 0;
  bool overlaps_, are_wide_;
  int room_;
  std::vector<Workspace> parts_;  // a last one of no size for those that are not asked for
};

}  // namespace imbrex

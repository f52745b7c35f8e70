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
  /// long to be held whole. `bytes` of an element, of which a thread takes `thread_bytes`: how many CTAs there is room for.
  ColumnSums(const RowCall& call, std::vector<std::pair<std::string, const DeviceTensor*>> results, int bytes,
             int thread_bytes, const Stream& stream);

  /// CTAs that share the rows.
  int64_t ctas() const { return ctas_; }
  bool has(size_t i) const { return !results_[i].second->is_null(); }
  /// The address of parts [ctas, columns], float32; of no use where has() is false.
  uint64_t parts(size_t i) const { return has(i) ? parts_[i].address() : parts_.back().address(); }
  /// Adds up the parts; returns `report`, or the first one that is not clean.
  LaunchReport add_up(LaunchReport report) const;

 private:
  const RowCall& call_;
  std::vector<std::pair<std::string, const DeviceTensor*>> results_;
  Stream stream_;
  int64_t ctas_;
  std::vector<Workspace> parts_;  // a last one of no size for those that are not asked for
};

}  // namespace imbrex

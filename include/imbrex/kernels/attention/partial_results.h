// SPDX-License-Identifier: Apache-2.0
// Columns of attention that are divided among CTAs: where each leaves its result, and how the last one to end merges them.
#pragma once

#include <limits>
#include <vector>

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// How the results of the parts become one.
enum class Division : uint8_t {
  kNone,    ///< there is one part
  kMerged,  ///< the last of the CTAs that share rows of Q merges what all of them left
  kLeft,  ///< a launch of MergeAttention does, which has a CTA for each row: better where there is much to merge
};

/// A parameter of a kernel. Rows are those of Q that share one head of K and V, q_rows of them; `groups` is the number of such
/// heads in all sequences. What is merged is summed in the order of the parts: equal calls give equal bits.
struct PartialResults {
  using Parameters = ParameterList<Division, bool, Ptr<float32>, Ptr<float32>, Ptr<int32>, Ptr<float32>>;
  Division division;
  bool wants_log_sum;            ///< of kMerged: whether to write to all_log_sum_ptr
  Ptr<float32> value_ptr;        ///< [parts, groups, q_rows, value size]; with kNone not written
  Ptr<float32> log_sum_ptr;      ///< [parts, groups, q_rows]
  Ptr<int32> ticket_ptr;         ///< of kMerged: one for each tile of rows, zero, and zero again at the end
  Ptr<float32> all_log_sum_ptr;  ///< [groups, q_rows]

  bool is_divided() const { return division != Division::kNone; }

  /// The rows of one tile of one group.
  struct Rows {
    const Int32 &parts, &group, &groups, &first, &q_rows;
    int size, value_size;  ///< of the tile, of which rows beyond q_rows are not there
    GlobalTensor view(const Ptr<float32>& pointer, const ScalarArg& columns) const {
      return global_view(pointer, {parts, groups, q_rows, columns});
    }
  };
  void store_log_sum(const Rows& at, const Int32& part, const RegisterBase& log_sum) const {
    store_global(at.view(log_sum_ptr, 1)[part][at.group], log_sum, {at.first, 0});
  }
  /// `values`: columns from `column` on.
  void store_values(const Rows& at, const Int32& part, const RegisterBase& values, int column = 0) const {
    store_global(at.view(value_ptr, at.value_size)[part][at.group], values, {at.first, column});
  }

  /// Of kMerged, when the calling threads have stored everything: merges if this part is the last. `store(result, row)` gets
  /// kMergedRows rows of float32, from `row` on.
  template <class Store>
  void merge_if_last(const Int32& tile, const Store& store, const Rows& at) const {
    if (division != Division::kMerged) return;
    Int32 tiles = cdiv(at.q_rows, at.size);
    auto ticket = global_view(ticket_ptr, {at.groups * tiles})[at.group * tiles + tile];
    // Releases this part's results; the last one acquires those of all.
    auto ended = atomic::add(ticket, 1, {.sem = Sem::kAcqRel});
    if (auto last = when(ended == at.parts - 1)) {
      atomic::exch(ticket, 0);
      for (Int32 row : range(at.first, min(at.first + at.size, at.q_rows), kMergedRows))
        merge(at, row, store);
    }
  }
  static constexpr int kMergedRows = 8;

 private:
  template <class Store>
  void merge(const Rows& at, const Int32& row, const Store& store) const {
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    constexpr int kAtOnce =
        8;  // parts, whose loads do not wait for each other; 16 leave no registers to a second CTA
    auto g_values = at.view(value_ptr, at.value_size), g_log_sum = at.view(log_sum_ptr, 1);
    RegisterTensor sums = zeros(float32, {kMergedRows, at.value_size});
    RegisterTensor largest = full(float32, {kMergedRows, 1}, -1e30f),
                   total = zeros(float32, {kMergedRows, 1});
    for (Int32 part : range(0, at.parts, kAtOnce)) {
      std::vector<RegisterValue> logs, values;
      for (int i = 0; i < kAtOnce; ++i) {
        logs.push_back(load_global(g_log_sum, {part + i, at.group, row, 0}, {kMergedRows, 1},
                                   {.other = kNone, .dims = {2, 3}}));
        values.push_back(load_global(g_values, {part + i, at.group, row, 0}, {kMergedRows, at.value_size},
                                     {.dims = {2, 3}}));
      }
      RegisterTensor larger = largest;
      for (const RegisterValue& log : logs) larger = max(larger, log);
      auto shrink = exp(largest - larger);
      sums = sums * shrink;
      total = total * shrink;
      for (int i = 0; i < kAtOnce; ++i) {
        auto weight = exp(logs[static_cast<size_t>(i)] - larger);
        sums = sums + values[static_cast<size_t>(i)] * weight;
        total = total + weight;
      }
      largest = larger;
    }
    store(sums * select(total > 0, 1 / total, 0), row);
    if (wants_log_sum) {
      auto g_all = global_view(all_log_sum_ptr, {at.groups, at.q_rows, 1});
      store_global(g_all[at.group], select(total > 0, largest + log(total), kNone), {row, 0});
    }
  }
};

}  // namespace imbrex::kernels

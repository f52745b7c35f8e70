// SPDX-License-Identifier: Apache-2.0
// What attention does to its scores before the softmax: masks and modifications as C++ structs, fused into the kernels'
// loops.
//
// A step is a struct whose parameters (imbrex/lang/kernel_parameters.h) stand in the launch in its place. It has one or
// more of these members, all const:
//
//   RegisterValue sees(const ScoreTile& at)             a mask: a bool tile, which row sees which column
//   Expr sees_all(const ScoreBox& box)                  whether all rows of the box see all its columns; then the
//                                                       mask of that block is left out
//   ColumnRange columns(const RowRange& rows)           columns that any of the rows sees; blocks outside are skipped
//   SeeingRows rows(const ColumnSpan& columns)            the same for the backward pass: rows that see any of the columns
//   static constexpr bool sees_no_later = true          no row sees a column behind its own; then no row that is there sees
//                                                       one behind the last, which need not be checked
//   RegisterValue change(const RegisterBase& scores, const ScoreTile& at)
//                                                       other scores, from those that were scaled
//   RegisterValue slope(const RegisterBase& changed, const ScoreTile& at)
//                                                       for the backward pass: the derivative of change(), from what
//                                                       it gave; 1 where a step has none
//   RegisterValue sink(const ScoreTile& at)             a score of each row that takes part in the sum of weights,
//                                                       and has no value
//
// Rows and columns are counted alike: row i of Q is at position i + (rows of K) - (rows of Q), so that causal attention
// is `column <= row`.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// A tile of scores. Each call makes a new tile, which broadcasts to the scores' shape.
struct ScoreTile {
  std::function<RegisterValue()> row, column;  ///< positions, int32
  std::function<RegisterValue()> head;         ///< of Q, int32
  ScalarArg batch;
};
/// The tile of `rows` rows of Q, from first_row on, of one head, and `columns` columns, from first_column on. `shift`: from
/// rows to positions. It refers to its arguments.
inline ScoreTile score_tile(int rows, const Int32& first_row, const Int32& shift, int columns,
                            const auto& first_column, const Int32& head, const ScalarArg& batch) {
  return {[&, rows] {
            return register_tensor(int32, {rows, 1}, [&](auto r, auto) { return first_row + r + shift; });
          },
          [&, columns] {
            return register_tensor(int32, {1, columns}, [&](auto, auto c) { return first_column + c; });
          },
          [&] {
            return register_tensor(int32, {1, 1}, [&](auto, auto) { return head + 0; });
          },
          batch};
}
/// The same transposed: rows of Q lie side by side.
inline ScoreTile transposed_score_tile(int rows, const Int32& first_row, const Int32& shift, int columns,
                                       const Int32& first_column, const Int32& head, const ScalarArg& batch) {
  return {[&, rows] {
            return register_tensor(int32, {1, rows}, [&](auto, auto r) { return r + (first_row + shift); });
          },
          [&, columns] {
            return register_tensor(int32, {columns, 1}, [&](auto c, auto) { return first_column + c; });
          },
          [&] {
            return register_tensor(int32, {1, 1}, [&](auto, auto) { return head + 0; });
          },
          batch};
}

/// Positions first ... last.
struct RowRange {
  ScalarArg first, last, batch;
};
struct ColumnSpan {
  ScalarArg first, last, batch;
};
/// Rows that see some columns. Open where a step leaves a member out.
struct SeeingRows {
  std::optional<ScalarArg> first = {}, last = {};
};
/// Columns begin ... end - 1. Open where a step leaves a member out.
struct ColumnRange {
  std::optional<ScalarArg> begin = {}, end = {};
};
/// Rows and columns of a block, the last ones included.
struct ScoreBox {
  ScalarArg first_row, last_row, first_column, last_column, batch;
};

/// The steps of a kernel, a parameter of it.
template <class... Steps>
class ScoreSteps {
 public:
  using Parameters = ParameterList<Steps...>;
  static constexpr float kHidden = -std::numeric_limits<float>::infinity();
  explicit ScoreSteps(Steps... steps) : steps_(std::move(steps)...) {}

  /// Whether a step changes scores: then they are scaled before.
  bool changes() const {
    bool any = false;
    each([&](const auto& step) {
      if constexpr (requires(const RegisterBase& x, const ScoreTile& at) { step.change(x, at); })
        any |= is_used(step);
    });
    return any;
  }
  /// Whether every row sees every column.
  bool masks() const {
    bool any = false;
    each([&](const auto& step) {
      if constexpr (requires(const ScoreTile& at) { step.sees(at); }) any |= is_used(step);
    });
    return any;
  }

  /// Whether masks hide what is behind the last column, as a mask does that hides what is behind a row's own.
  bool hide_beyond() const {
    bool any = false;
    each([&](const auto& step) {
      if constexpr (requires { step.sees_no_later; }) any |= is_used(step) && step.sees_no_later;
    });
    return any;
  }

  /// Narrows [begin, end) to what any of the rows sees.
  void narrow(const RowRange& rows, Int32& begin, Int32& end) const {
    each([&](const auto& step) {
      if constexpr (requires { step.columns(rows); }) {
        if (!is_used(step)) return;
        const ColumnRange range = step.columns(rows);
        if (range.begin) begin = max(begin, *range.begin);
        if (range.end) end = min(end, *range.end);
      }
    });
  }
  /// Narrows [first, last] to rows that see any of the columns.
  void narrow_rows(const ColumnSpan& columns, Int32& first, Int32& last) const {
    each([&](const auto& step) {
      if constexpr (requires { step.rows(columns); }) {
        if (!is_used(step)) return;
        const SeeingRows range = step.rows(columns);
        if (range.first) first = max(first, *range.first);
        if (range.last) last = min(last, *range.last);
      }
    });
  }
  /// Narrows [first, last], rows from 0 on whose positions begin at `shift`, to those that see any of the columns; `first` to a
  /// multiple of `block`.
  void narrow_blocks(const ColumnSpan& columns, const Int32& shift, int block, Int32& first,
                     Int32& last) const {
    Int32 first_position = shift, last_position = last + shift;
    narrow_rows(columns, first_position, last_position);
    first = max(first_position - shift, 0) / block * block;
    last = min(last_position - shift, last);
  }
  /// Whether some row of the box does not see some column.
  Bool is_edge(const ScoreBox& box) const {
    Bool edge = false;
    each([&](const auto& step) {
      if constexpr (requires(const ScoreTile& at) { step.sees(at); }) {
        if (is_used(step)) edge = edge || !step.sees_all(box);
      }
    });
    return edge;
  }
  /// Whether some row of the box does not see some column, or the box ends behind the last of `columns` columns.
  Bool is_edge(const ScoreBox& box, const Int32& columns) const {
    Bool edge = is_edge(box);
    if (!hide_beyond()) edge = edge || box.last_column >= columns;
    return edge;
  }
  /// Sets the scores that are not seen to `hidden`, and those behind the last of `columns` columns.
  void mask(RegisterTensor& scores, const ScoreTile& at, const Int32& columns, float hidden = kHidden) const {
    if (!hide_beyond()) scores = select(at.column() < columns, scores, hidden);
    mask_seen(scores, at, hidden);
  }
  /// The same where no column is behind the last, or nothing comes of those.
  void mask_seen(RegisterTensor& scores, const ScoreTile& at, float hidden = kHidden) const {
    each([&](const auto& step) {
      if constexpr (requires { step.sees(at); }) {
        if (is_used(step)) scores = select(step.sees(at), scores, hidden);
      }
    });
  }
  /// Changes scores that are scaled, and multiplies `slopes` by the derivatives of the changes.
  void change_with_slopes(RegisterTensor& scores, RegisterTensor& slopes, const ScoreTile& at) const {
    each([&](const auto& step) {
      if constexpr (requires { step.change(scores, at); }) {
        if (is_used(step)) scores = step.change(scores, at);
      }
      if constexpr (requires { step.slope(scores, at); }) {
        if (is_used(step)) slopes = slopes * step.slope(scores, at);
      }
    });
  }
  /// Whether a change has another derivative than 1.
  bool has_slopes() const {
    bool any = false;
    each([&](const auto& step) {
      if constexpr (requires(const RegisterBase& x, const ScoreTile& at) { step.slope(x, at); })
        any |= is_used(step);
    });
    return any;
  }
  /// Changes scores that are scaled.
  void change(RegisterTensor& scores, const ScoreTile& at) const {
    each([&](const auto& step) {
      if constexpr (requires { step.change(scores, at); }) {
        if (is_used(step)) scores = step.change(scores, at);
      }
    });
  }
  /// `use(tile)` with the rows' sink, where a step has one.
  template <class Use>
  void with_sink(const ScoreTile& at, const Use& use) const {
    each([&](const auto& step) {
      if constexpr (requires { step.sink(at); }) {
        if (is_used(step)) use(step.sink(at));
      }
    });
  }

 private:
  template <class Step>
  static bool is_used(const Step& step) {
    if constexpr (requires { step.used; })
      return step.used;
    else
      return true;
  }
  template <class F>
  void each(const F& f) const {
    std::apply([&](const auto&... step) { (f(step), ...); }, steps_);
  }

  std::tuple<Steps...> steps_;
};

/// A step that a library uses or leaves out: each choice is a compiled kernel.
template <class Step>
struct OptionalScore : Step {
  using Parameters = ParameterList<bool, Step>;
  OptionalScore(bool used, Step step) : Step(std::move(step)), used(used) {}
  bool used;
};

/// Each row sees the columns up to its own.
struct CausalMask {
  using Parameters = ParameterList<>;
  static constexpr bool sees_no_later = true;
  RegisterValue sees(const ScoreTile& at) const { return at.column() <= at.row(); }
  Expr sees_all(const ScoreBox& box) const { return box.last_column <= box.first_row; }
  ColumnRange columns(const RowRange& rows) const { return {.end = rows.last + 1}; }
  SeeingRows rows(const ColumnSpan& columns) const { return {.first = columns.first}; }
};

/// Each row sees `left` columns before its own, its own, and `right` ones behind it.
struct WindowMask {
  using Parameters = ParameterList<Int32, Int32>;
  Int32 left, right;
  RegisterValue sees(const ScoreTile& at) const {
    auto distance = at.column() - at.row();
    return distance >= -left && distance <= right;
  }
  Expr sees_all(const ScoreBox& box) const {
    return box.first_column >= box.last_row - left && box.last_column <= box.first_row + right;
  }
  ColumnRange columns(const RowRange& rows) const {
    return {.begin = rows.first - left, .end = rows.last + right + 1};
  }
  SeeingRows rows(const ColumnSpan& columns) const {
    return {.first = columns.first - right, .last = columns.last + left};
  }
};

/// Each row sees the first `length` columns, and those up to its own.
struct PrefixMask {
  using Parameters = ParameterList<Int32>;
  Int32 length;
  RegisterValue sees(const ScoreTile& at) const { return at.column() <= max(at.row(), length - 1); }
  Expr sees_all(const ScoreBox& box) const { return box.last_column <= max(box.first_row, length - 1); }
  ColumnRange columns(const RowRange& rows) const { return {.end = max(rows.last + 1, length)}; }
};

/// cap * tanh(score / cap).
struct SoftCap {
  using Parameters = ParameterList<Float32>;
  Float32 cap;
  RegisterValue change(const RegisterBase& scores, const ScoreTile&) const {
    return tanh(scores * (1 / cap)) * cap;
  }
  RegisterValue slope(const RegisterBase& changed, const ScoreTile&) const {
    auto part = changed * (1 / cap);
    return 1 - part * part;
  }
};

/// score + slope of the head * (column - row).
struct AlibiBias {
  using Parameters = ParameterList<Ptr<float32>, Int32>;
  Ptr<float32> slope_ptr;
  Int32 heads;
  RegisterValue change(const RegisterBase& scores, const ScoreTile& at) const {
    auto head = at.head();
    auto slope = gather(global_view(slope_ptr, {heads, 1}), {head, 0}, {head.shape(0), 1}, {.dims = {-1, 1}});
    return scores + slope * (at.column() - at.row()).to(float32);
  }
};

/// A score of each head that takes part in the sum of weights and has no value.
struct AttentionSink {
  using Parameters = ParameterList<Ptr<float32>, Int32>;
  Ptr<float32> sink_ptr;
  Int32 heads;
  RegisterValue sink(const ScoreTile& at) const {
    auto head = at.head();
    return gather(global_view(sink_ptr, {heads, 1}), {head, 0}, {head.shape(0), 1}, {.dims = {-1, 1}});
  }
};

}  // namespace imbrex::kernels

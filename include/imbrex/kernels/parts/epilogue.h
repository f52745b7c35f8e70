// SPDX-License-Identifier: Apache-2.0
// What a matmul does to its product before it is stored (or to A when it is loaded): steps, one after the
// other, on the tile of sums in registers, so that nothing between product and result goes through memory.
//
//   Kernel<HopperMatmulH7<Scale, ColumnBias, Gelu>> layer({}, device);
//   layer(m, n, k, bfloat16, a, b, c, 0.5f, float32, bias);   // c = gelu(0.5 a b^T + bias)
//
// A step is a struct whose parameters (imbrex/lang/kernel_parameters.h) stand in the launch in its place, in
// order, and whose operator() takes a tile and returns a tile. At most one step of a kernel reduces rows; then
// a tile is as wide as the matrix. A kernel without steps compiles to the same code as one written without
// them.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "imbrex/kernels/parts/batch.h"
#include "imbrex/kernels/parts/steps/activations.h"
#include "imbrex/kernels/parts/steps/convert.h"
#include "imbrex/kernels/parts/steps/linear.h"
#include "imbrex/kernels/parts/steps/optional.h"
#include "imbrex/kernels/parts/steps/row_steps.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// The steps of a kernel, a parameter of it.
template <class... Steps>
class Epilogue {
 public:
  using Parameters = ParameterList<Steps...>;
  static constexpr bool kEmpty = sizeof...(Steps) == 0;
  static constexpr bool kReducesRows = (RowStep<Steps> || ...);
  static_assert((0 + ... + RowStep<Steps>) <= 1, "one step of a kernel may reduce rows");

  explicit Epilogue(Steps... steps) : steps_(std::move(steps)...) {}

  /// The result's type, where the operands are of type `operands`.
  DataType output_type(DataType operands) const {
    DataType dtype = operands;
    std::apply([&](const auto&... step) { (take_type(step, dtype), ...); }, steps_);
    return dtype;
  }

  /// The Batch among the steps; null where there is none.
  const Batch* batch() const {
    const Batch* found = nullptr;
    const auto look = [&](const auto& step) {
      if (found == nullptr) found = detail::batch_of(step);
    };
    std::apply([&](const auto&... step) { (look(step), ...); }, steps_);
    return found;
  }

  /// The step of this type; null where there is none.
  template <class Step>
  const Step* find() const {
    if constexpr ((std::is_same_v<Step, Steps> || ...))
      return &std::get<Step>(steps_);
    else
      return nullptr;
  }

  /// CompileError at the kernel's line if a step reduces rows that are wider than the tile.
  void check(int64_t n_size, int64_t block_n, SourceLocation where = SourceLocation::current()) const {
    require({!kReducesRows || n_size <= block_n, where},
            "rows of {} columns are reduced, tiles have {}: take a tile as wide as the matrix, or make the "
            "steps from the one that reduces on a kernel of their own, ApplySteps "
            "(imbrex/kernels/parts/apply_steps.h)",
            n_size, block_n);
  }

  /// The rows of one tile, which the kernel passes to the steps in parts.
  class Rows {
   public:
    Rows(const Epilogue& epilogue, int64_t rows)
        : epilogue_(epilogue),
          statistics_(std::apply([&](const auto&... step) { return Statistics{begin(step, rows)...}; },
                                 epilogue.steps_)) {}

    /// Takes note of a part for the reductions. With kReducesRows, of every part before the first is finished.
    void look(const RegisterBase& sums, const OutputTile& at) { look_from<0>(sums, at); }
    /// The part as it is to be stored.
    RegisterValue operator()(const RegisterBase& sums, const OutputTile& at) const {
      return run<0>(sums, at);
    }

   private:
    using Statistics = std::tuple<typename detail::StatisticsOf<Steps>::Type...>;
    template <class Step>
    static auto begin(const Step& step, int64_t rows) {
      if constexpr (RowStep<Step>)
        return step.begin(rows);
      else
        return detail::NoStatistics();
    }
    template <size_t I>
    RegisterValue step(const RegisterBase& x, const OutputTile& at) const {
      if constexpr (RowStep<std::tuple_element_t<I, std::tuple<Steps...>>>)
        return std::get<I>(epilogue_.steps_)(std::get<I>(statistics_), x, at);
      else
        return std::get<I>(epilogue_.steps_)(x, at);
    }
    template <size_t I>
    void look_from([[maybe_unused]] const RegisterBase& x, [[maybe_unused]] const OutputTile& at) {
      if constexpr (I < sizeof...(Steps)) {
        if constexpr (RowStep<std::tuple_element_t<I, std::tuple<Steps...>>>)
          std::get<I>(epilogue_.steps_).look(std::get<I>(statistics_), x, at);
        else
          look_from<I + 1>(step<I>(x, at), at);
      }
    }
    template <size_t I>
    RegisterValue run(const RegisterBase& x, const OutputTile& at) const {
      if constexpr (I == sizeof...(Steps))
        return x.to(at.dtype);
      else
        return run<I + 1>(step<I>(x, at), at);
    }

    const Epilogue& epilogue_;
    Statistics statistics_;
  };
  Rows rows(int64_t rows) const { return Rows(*this, rows); }

  /// A whole tile of sums as it is to be stored.
  RegisterValue operator()(const RegisterBase& sums, const OutputTile& at) const {
    Rows rows(*this, sums.shape(0));
    if constexpr (kReducesRows) rows.look(sums, at);
    return rows(sums, at);
  }

 private:
  template <class Step>
  static void take_type(const Step& step, DataType& dtype) {
    if constexpr (requires { step.output_type(dtype); }) dtype = step.output_type(dtype);
  }

  std::tuple<Steps...> steps_;
};

}  // namespace imbrex::kernels

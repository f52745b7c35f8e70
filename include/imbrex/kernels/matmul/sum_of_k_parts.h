// SPDX-License-Identifier: Apache-2.0
// The sum of what CTAs that divide k have left in memory, with the steps of the product: the second of two launches. A tile is
// one block of columns wide, so that it may have scales of its own.
#pragma once

#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/fused_results.h"
#include "imbrex/kernels/parts/operand.h"
#include "imbrex/kernels/parts/product_sizes.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C = steps(the sum over parts of X), X float32 [parts, m, n], of a batch [matrices * parts, m, n]. Parts are added in
/// their order. QuantiseBlocks among the steps is carried out, and GatedBy, with which X has two of n.
template <class... Steps>
struct SumOfKParts {
  static constexpr const char* target = "sm_90a";
  int block_m = 16, block_n = 128, num_warps = 8;

  static auto space() {
    return Space<SumOfKParts>()
        .template choose<&SumOfKParts::block_m, &SumOfKParts::block_n, &SumOfKParts::num_warps>(
            {{16, 128, 8}});
  }

  void operator()(ProductSizes sizes, Int32 parts, DataType dtype, Ptr<float32> sum_ptr, Ptr<> c_ptr,
                  Epilogue<Steps...> finish) const {
    static_assert(!Epilogue<Steps...>::kReducesRows, "a tile need not have whole rows");
    constexpr int kAtOnce = 4;  // parts whose loads are under way
    const Batch* batch = finish.batch();
    const ScalarArg matrices = batch ? ScalarArg(batch->matrices) : ScalarArg(1);
    grid(cdiv(sizes.n(), block_n), cdiv(sizes.m, block_m), matrices);
    warps(num_warps);
    Int32 row = block_m * block_idx.y, column = block_n * block_idx.x;
    const ScalarArg matrix = block_idx.z;
    const DataType c_type = finish.output_type(dtype);
    const GatedBy* gate = used_step<GatedBy>(finish);
    const QuantiseBlocks* quantise = used_step<QuantiseBlocks>(finish);
    require(!quantise || block_n == QuantiseBlocks::kBlock, "tiles of {} columns; a scale belongs to {}",
            block_n, QuantiseBlocks::kBlock);
    const ScalarArg columns = gate ? ScalarArg(2 * sizes.n()) : ScalarArg(sizes.n());
    auto g_parts = global_view(sum_ptr, {matrices, parts, sizes.m, columns})[matrix];
    auto g_c = matrix_of(batch, result_view(c_ptr, c_type, sizes.m, sizes.n(), batch), matrix);
    griddepcontrol::wait();  // the grid before writes the parts
    griddepcontrol::launch_dependents();
    // The tile that begins at a column, with the steps.
    const auto tile = [&](const ScalarArg& first_column) {
      // Behind the last part there are zeros.
      const auto part = [&](const ScalarArg& i) {
        return load_global(g_parts, {i, row, first_column}, {1, block_m, block_n})
            .reshape({block_m, block_n});
      };
      RegisterTensor sum = zeros(float32, {block_m, block_n});
      for (Int32 first : range(0, parts, kAtOnce)) {
        std::vector<RegisterTensor> some;
        for (int i = 0; i < kAtOnce; ++i) some.push_back(part(first + i));
        for (const RegisterTensor& x : some) sum += x;
      }
      return finish(sum, {sizes.m, columns, gate || quantise ? float32 : c_type, row, first_column, matrix});
    };
    RegisterTensor value = tile(column);
    if (gate) value = gate->apply(value, tile(column + sizes.n()));
    if (quantise) {
      // Behind the last column there are zeros; of two products, those of the other one times zeros.
      const RegisterTensor largest = QuantiseBlocks::largest_of(value);
      quantise->store(largest, sizes.m, sizes.n(), row, column);
      value = value * QuantiseBlocks::factor_of(largest);
    }
    store_global(g_c, gate || quantise ? RegisterTensor(value.to(c_type)) : value, {row, column});
  }
};

}  // namespace imbrex::kernels

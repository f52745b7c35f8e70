// SPDX-License-Identifier: Apache-2.0
// The sum of what CTAs that divide k have left in memory, with the steps of the product: the second of two launches. A tile is
// one block of columns wide, so that it may have scales of its own.
#pragma once

#include "imbrex/kernels/grouped/fused_results.h"
#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/operand.h"
#include "imbrex/kernels/parts/product_sizes.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// C = steps(the sum over parts of X), X float32 [parts, m, n], of a batch [matrices * parts, m, n]. Parts are added in
/// their order. QuantiseBlocks among the steps is carried out.
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
    auto g_parts = global_view(sum_ptr, {matrices, parts, sizes.m, sizes.n()})[matrix];
    auto g_c = matrix_of(batch, result_view(c_ptr, c_type, sizes.m, sizes.n(), batch), matrix);
    griddepcontrol::wait();  // the grid before writes the parts
    griddepcontrol::launch_dependents();
    // Behind the last part there are zeros.
    const auto part = [&](const ScalarArg& i) {
      return load_global(g_parts, {i, row, column}, {1, block_m, block_n}).reshape({block_m, block_n});
    };
    RegisterTensor sum = zeros(float32, {block_m, block_n});
    for (Int32 first : range(0, parts, kAtOnce)) {
      std::vector<RegisterTensor> some;
      for (int i = 0; i < kAtOnce; ++i) some.push_back(part(first + i));
      for (const RegisterTensor& x : some) sum += x;
    }
    if (const QuantiseBlocks* quantise = used_step<QuantiseBlocks>(finish)) {
      require(block_n == QuantiseBlocks::kBlock, "tiles of {} columns; a scale belongs to {}", block_n,
              QuantiseBlocks::kBlock);
      const RegisterTensor value = finish(sum, {sizes.m, sizes.n(), float32, row, column, matrix});
      const RegisterTensor largest = QuantiseBlocks::largest_of(value);
      quantise->store(largest, sizes.m, sizes.n(), row, column);
      store_global(g_c, (value * QuantiseBlocks::factor_of(largest)).to(c_type), {row, column});
    } else {
      store_global(g_c, finish(sum, {sizes.m, sizes.n(), c_type, row, column, matrix}), {row, column});
    }
  }
};

}  // namespace imbrex::kernels

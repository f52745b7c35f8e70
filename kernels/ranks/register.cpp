// SPDX-License-Identifier: Apache-2.0
// Collectives and the products fused with them, in bfloat16, for predictions of their times.
#include <algorithm>

#include "imbrex/parallel/all_gather.h"
#include "imbrex/parallel/all_reduce.h"
#include "imbrex/parallel/rank_registry.h"
#include "ranks/fused_products.h"

namespace imbrex::parallel {
namespace {

using Sizes = std::map<std::string, int64_t>;

const SizeOption kElements{"n", 1 << 20, "elements on each rank"}, kRows{"m", 1024, "rows of all ranks"},
    kColumns{"n", 8192, "columns"}, kInner{"k", 8192, "inner size, before it is dealt out"};

const RanksRegistration all_reduce({{"all_reduce", "y = the sum of all ranks' x", {kElements}},
                                    [](Communicator& ranks, const Sizes& sizes) {
                                      AllReduce call(ranks);
                                      const int64_t n = sizes.at("n");
                                      const SymmetricTensor x = ranks.symmetric(bfloat16, {n}),
                                                            y = ranks.symmetric(bfloat16, {n});
                                      ranks.barrier();
                                      return call(x, y);
                                    }});
const RanksRegistration all_gather({{"all_gather", "y = the x of all ranks", {kElements}},
                                    [](Communicator& ranks, const Sizes& sizes) {
                                      AllGather call(ranks);
                                      const int64_t n = sizes.at("n");
                                      const DeviceTensor x =
                                          DeviceTensor::empty(ranks.device(), bfloat16, {n});
                                      const SymmetricTensor y = ranks.symmetric(bfloat16, {ranks.size(), n});
                                      ranks.barrier();
                                      return call(x, y);
                                    }});
const RanksRegistration reduce_scatter(
    {{"reduce_scatter", "y = this rank's part of the sum of all ranks' x", {kElements}},
     [](Communicator& ranks, const Sizes& sizes) {
       ReduceScatter call(ranks);
       const int64_t n = std::max<int64_t>(sizes.at("n") / ranks.size(), 1);
       const SymmetricTensor x = ranks.symmetric(bfloat16, {ranks.size(), n});
       const DeviceTensor y = DeviceTensor::empty(ranks.device(), bfloat16, {n});
       ranks.barrier();
       return call(x, y);
     }});

/// The fused kernel, also of so few rows that the public function launches two.
const RanksRegistration all_gather_matmul(
    {{"all_gather_matmul", "c = [x of all ranks] b^T, b's columns dealt out", {kRows, kColumns, kInner}},
     [](Communicator& ranks, const Sizes& sizes) {
       const Device& device = ranks.device();
       const int64_t m = sizes.at("m"), n = std::max<int64_t>(sizes.at("n") / ranks.size(), 1),
                     k = sizes.at("k");
       const int64_t rows = RowsOfRank::of(m, ranks.size(), ranks.rank()).count;
       GatheredProduct product(ranks, {.m = m, .k = k}, SourceLocation::current());
       const auto x = DeviceTensor::empty(device, bfloat16, {rows, k}),
                  b = DeviceTensor::empty(device, bfloat16, {n, k}),
                  c = DeviceTensor::empty(device, bfloat16, {m, n});
       ranks.barrier();
       return product.run(Until::kLaunched, product.choose(m, n, k), x, b, c, {}, SourceLocation::current());
     }});

LaunchReport multiply_and_add(Communicator& ranks, const Sizes& sizes, bool to_all) {
  const Device& device = ranks.device();
  const int64_t m = sizes.at("m"), n = sizes.at("n"), k = std::max<int64_t>(sizes.at("k") / ranks.size(), 1);
  ScatteredProduct product(ranks, {.m = m, .n = n}, SourceLocation::current());
  const auto a = DeviceTensor::empty(device, bfloat16, {m, k}),
             b = DeviceTensor::empty(device, bfloat16, {n, k});
  const SymmetricTensor all = to_all ? ranks.symmetric(bfloat16, {m, n}) : SymmetricTensor();
  const int64_t rows = RowsOfRank::of(m, ranks.size(), ranks.rank()).count;
  const DeviceTensor y = to_all ? all.mine() : DeviceTensor::empty(device, bfloat16, {rows, n});
  ranks.barrier();
  return product.run(Until::kLaunched, product.choose(m, n, k, Carrier::kKernel), a, b, y, {},
                     SourceLocation::current(), Carrier::kKernel, to_all ? &all : nullptr);
}
const RanksRegistration matmul_reduce_scatter(
    {{"matmul_reduce_scatter",
      "y = the rank's rows of the sum of all ranks' a b^T, k dealt out",
      {kRows, kColumns, kInner}},
     [](Communicator& ranks, const Sizes& sizes) { return multiply_and_add(ranks, sizes, false); }});
const RanksRegistration matmul_all_reduce(
    {{"matmul_all_reduce", "y = the sum of all ranks' a b^T, k dealt out", {kRows, kColumns, kInner}},
     [](Communicator& ranks, const Sizes& sizes) { return multiply_and_add(ranks, sizes, true); }});

}  // namespace
}  // namespace imbrex::parallel

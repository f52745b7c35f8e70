// SPDX-License-Identifier: Apache-2.0
// Two linear layers on several GPUs, whose products travel while they are computed: y = relu(x W1^T) W2^T. Each rank holds
// some rows of x and of y, and a part of the hidden columns. The first product gathers the rows of x, the second one adds up
// the ranks' parts of y and deals its rows out.
//
//   example_sequence_parallel [RANKS]        on a virtual node: no GPU is needed, and races between ranks are found
//   example_sequence_parallel cuda [RANKS]   on the GPUs of this machine
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/imbrex.h"
#include "imbrex/parallel.h"

using namespace imbrex;
using namespace imbrex::parallel;

namespace {

constexpr int64_t kRows = 50, kWidth = 64, kHiddenOfRank = 96;

/// Rows `begin` and following of a matrix.
HostTensor rows(const HostTensor& matrix, int64_t begin, int64_t count) {
  const int64_t columns = matrix.shape()[1];
  HostTensor part(matrix.dtype(), {count, columns});
  for (int64_t i = 0; i < count * columns; ++i) part.set(i, matrix.get(begin * columns + i));
  return part;
}

/// A rank's weights: its rows of W1, and its columns of W2.
HostTensor weights(int rank, bool second) {
  return HostTensor::random(float16,
                            second ? std::vector{kWidth, kHiddenOfRank} : std::vector{kHiddenOfRank, kWidth},
                            static_cast<uint64_t>(10 + 2 * rank + second));
}

/// The layers in float64, the hidden values rounded as the GPUs round them.
std::vector<double> reference(const HostTensor& x, int ranks) {
  std::vector<double> y(kRows * kWidth);
  HostTensor hidden(float16, {kHiddenOfRank});
  for (int rank = 0; rank < ranks; ++rank) {
    const HostTensor w1 = weights(rank, false), w2 = weights(rank, true);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t h = 0; h < kHiddenOfRank; ++h) {
        double sum = 0;
        for (int64_t k = 0; k < kWidth; ++k) sum += x.get(i * kWidth + k) * w1.get(h * kWidth + k);
        hidden.set(h, std::max(sum, 0.0));
      }
      for (int64_t j = 0; j < kWidth; ++j)
        for (int64_t h = 0; h < kHiddenOfRank; ++h)
          y[static_cast<size_t>(i * kWidth + j)] += hidden.get(h) * w2.get(j * kHiddenOfRank + h);
    }
  }
  return y;
}

int run(const Ranks& where) {
  const HostTensor all_x = HostTensor::random(float16, {kRows, kWidth}, 1);
  const std::vector<double> wanted = reference(all_x, where.count());
  double largest = 0;
  for (const double value : wanted) largest = std::max(largest, std::abs(value));
  std::vector<double> errors(static_cast<size_t>(where.count()));

  run_ranks(where, [&](Communicator& ranks) {
    const Device& device = ranks.device();
    const RowsOfRank mine = RowsOfRank::of(kRows, ranks.size(), ranks.rank());
    const DeviceTensor x = DeviceTensor::from_host(device, rows(all_x, mine.first, mine.count));
    const DeviceTensor w1 = DeviceTensor::from_host(device, weights(ranks.rank(), false));
    const DeviceTensor w2 = DeviceTensor::from_host(device, weights(ranks.rank(), true));
    const DeviceTensor hidden = DeviceTensor::empty(device, float16, {kRows, kHiddenOfRank});
    const DeviceTensor y = DeviceTensor::empty(device, float16, {mine.count, kWidth});

    AllGatherMatmul up(ranks, {.m = kRows, .k = kWidth, .dtype = float16});  // as large as the largest call
    MatmulReduceScatter down(ranks, {.m = kRows, .n = kWidth, .dtype = float16});
    up(x, w1, hidden, {.activation = Activation::kRelu}).expect_clean();
    down(hidden, w2, y).expect_clean();
    ranks.synchronize();

    const HostTensor got = y.to_host();
    double& error = errors[static_cast<size_t>(ranks.rank())];
    for (int64_t i = 0; i < mine.count * kWidth; ++i) {
      const double one = std::abs(got.get(i) - wanted[static_cast<size_t>(mine.first * kWidth + i)]);
      if (!(one <= error)) error = one;  // NaN stays
    }
  });

  bool is_good = true;
  for (int rank = 0; rank < where.count(); ++rank) {
    const double error = errors[static_cast<size_t>(rank)];
    std::printf("rank %d of %d: largest error %.1e, of values up to %.0f\n", rank, where.count(), error,
                largest);
    is_good = is_good && error < 2e-3 * largest;  // false for NaN
  }
  return is_good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  const bool is_cuda = argc > 1 && std::strcmp(argv[1], "cuda") == 0;
  const int at = is_cuda ? 2 : 1;
  const int count = argc > at ? std::atoi(argv[at]) : is_cuda ? Ranks::cuda_devices() : 3;
  return run(is_cuda ? Ranks::cuda(count) : Ranks::virtual_node(count, {.target = "sm_90a", .seed = 1}));
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

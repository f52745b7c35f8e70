// SPDX-License-Identifier: Apache-2.0
// Two linear layers on several GPUs (tensor parallelism): y = relu(x W1^T) W2^T. Each rank holds a part of the hidden
// columns, that is some rows of W1 and the same columns of W2, and computes a partial y; an all-reduce adds them up.
//
//   example_tensor_parallel [RANKS]        on a virtual node: no GPU is needed, and races between ranks are found
//   example_tensor_parallel cuda [RANKS]   on the GPUs of this machine
//   imbrex launch -n 3 -- example_tensor_parallel processes    the same with a process per rank, which is how torchrun,
//                                          mpirun and srun start programs; on GPUs where there is one for each
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/imbrex.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/parallel.h"

using namespace imbrex;
using namespace imbrex::parallel;

namespace {

constexpr int64_t kRows = 48, kWidth = 64, kHidden = 192;

/// Columns `begin` to `end` of a matrix (or its rows, transposed): a dense copy.
HostTensor part(const HostTensor& matrix, bool of_rows, int64_t begin, int64_t end) {
  const int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  HostTensor out(matrix.dtype(), {of_rows ? end - begin : rows, of_rows ? columns : end - begin});
  int64_t at = 0;
  for (int64_t i = of_rows ? begin : 0; i < (of_rows ? end : rows); ++i)
    for (int64_t j = of_rows ? 0 : begin; j < (of_rows ? columns : end); ++j)
      out.set(at++, matrix.get(i * columns + j));
  return out;
}

/// The layers in float64 on the host, the hidden values rounded as the GPUs round them.
std::vector<double> reference(const HostTensor& x, const HostTensor& w1, const HostTensor& w2) {
  std::vector<double> y(kRows * kWidth);
  HostTensor hidden(float16, {kHidden});
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t h = 0; h < kHidden; ++h) {
      double sum = 0;
      for (int64_t k = 0; k < kWidth; ++k) sum += x.get(i * kWidth + k) * w1.get(h * kWidth + k);
      hidden.set(h, std::max(sum, 0.0));
    }
    for (int64_t j = 0; j < kWidth; ++j)
      for (int64_t h = 0; h < kHidden; ++h)
        y[static_cast<size_t>(i * kWidth + j)] += hidden.get(h) * w2.get(j * kHidden + h);
  }
  return y;
}

int run(const Ranks& where) {
  const HostTensor x = HostTensor::random(float16, {kRows, kWidth}, 1);
  const HostTensor w1 = HostTensor::random(float16, {kHidden, kWidth}, 2);
  const HostTensor w2 = HostTensor::random(float16, {kWidth, kHidden}, 3);
  const std::vector<double> wanted = reference(x, w1, w2);
  std::vector<double> errors(static_cast<size_t>(where.count()), -1);

  run_ranks(where, [&](Communicator& ranks) {
    const Device& device = ranks.device();
    // Parts need not be equal: here in steps of 8 columns, as TMA wants rows of 16 bytes.
    const int64_t begin = kHidden / 8 * ranks.rank() / ranks.size() * 8;
    const int64_t end = kHidden / 8 * (ranks.rank() + 1) / ranks.size() * 8;
    const DeviceTensor my_x = DeviceTensor::from_host(device, x);
    const DeviceTensor my_w1 = DeviceTensor::from_host(device, part(w1, true, begin, end));
    const DeviceTensor my_w2 = DeviceTensor::from_host(device, part(w2, false, begin, end));
    const DeviceTensor hidden = DeviceTensor::empty(device, float16, {kRows, end - begin});
    const SymmetricTensor partial = ranks.symmetric(float32, {kRows, kWidth});
    const SymmetricTensor y = ranks.symmetric(float32, {kRows, kWidth});
    AllReduce all_reduce(ranks, 8);

    matmul(my_x, my_w1, hidden, {.activation = Activation::kRelu}).expect_clean();
    matmul(hidden, my_w2, partial.mine()).expect_clean();
    all_reduce(partial, y).expect_clean();
    ranks.synchronize();

    const HostTensor got = y.mine().to_host();
    double& error = errors[static_cast<size_t>(ranks.rank())] = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double one = std::abs(got.get(static_cast<int64_t>(i)) - wanted[i]);
      if (!(one <= error)) error = one;  // NaN stays
    }
  });

  double largest = 0;
  for (const double value : wanted) largest = std::max(largest, std::abs(value));
  bool is_good = true;
  for (int rank = 0; rank < where.count(); ++rank) {
    const double error = errors[static_cast<size_t>(rank)];
    if (error < 0) continue;  // the rank is another process
    std::printf("rank %d of %d: largest error %.1e, of values up to %.0f\n", rank, where.count(), error,
                largest);
    is_good = is_good && error < 1e-3 * largest;  // false for NaN
  }
  return is_good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1 && std::strcmp(argv[1], "processes") == 0)
    return run(Ranks::from_environment("auto", {.target = "sm_90a", .seed = 1}));
  const bool is_cuda = argc > 1 && std::strcmp(argv[1], "cuda") == 0;
  const int at = is_cuda ? 2 : 1;
  const int count = argc > at ? std::atoi(argv[at]) : is_cuda ? Ranks::cuda_devices() : 3;
  return run(is_cuda ? Ranks::cuda(count) : Ranks::virtual_node(count, {.target = "sm_90a", .seed = 1}));
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

// SPDX-License-Identifier: Apache-2.0
#include "matmul/make_launch.h"

namespace imbrex {
namespace {

using kernels::Optional;

/// As Dense, with strides.
template <template <class...> class K>
struct Batched {
  using Kernel = K<kernels::Batch, kernels::ScaleByFactors, kernels::ScaleByFactors, Optional<kernels::Scale>,
                   Optional<kernels::ColumnBias>, Optional<kernels::RowBias>,
                   Optional<kernels::BatchResidual>, kernels::Activate, kernels::Convert>;
  using Parts = K<kernels::Batch, kernels::PartsOfK>;
  struct OfParts {
    explicit OfParts(const Product& p) : batch(p.strides->batch), parts(p.parts) {}
    kernels::BatchArguments batch;
    int64_t parts;
    auto arguments() const { return std::tie(batch, parts); }
  };
};

struct BatchedArguments {
  explicit BatchedArguments(const Product& p)
      : batch(p.strides->batch),
        before(p),
        has_residual(p.beta != 0),
        beta(p.beta),
        residual(p.residual),
        matrices(batch.matrices),
        residual_strides(p.strides->residual),
        activation(p.activation),
        result(p.c_type) {}
  kernels::BatchArguments batch;
  FactorsAndBiases before;
  bool has_residual;
  float beta;
  uint64_t residual;
  int64_t matrices;
  kernels::MatrixStridesArguments residual_strides;
  Activation activation;
  DataType result;
  auto arguments() const {
    return std::tie(batch, before, has_residual, beta, residual, matrices, residual_strides, activation,
                    result);
  }
};

}  // namespace

Launch make_batch_launch(const Variant& variant, const std::optional<Device>& device) {
  return make_launch<Batched>(variant, device, [](const Product& p) { return BatchedArguments(p); });
}

}  // namespace imbrex

// SPDX-License-Identifier: Apache-2.0
#include "matmul/make_launch.h"

namespace imbrex {
namespace {

using kernels::Optional;

/// All the steps that options can ask for, in order: one kernel type; unused steps add no instructions.
template <template <class...> class K>
struct Dense {
  using Kernel = K<kernels::ScaleByFactors, kernels::ScaleByFactors, Optional<kernels::Scale>,
                   Optional<kernels::ColumnBias>, Optional<kernels::RowBias>, Optional<kernels::Residual>,
                   kernels::Activate, kernels::Convert>;
  using Parts = K<kernels::PartsOfK>;
  struct OfParts {
    explicit OfParts(const Product& p) : parts(p.parts) {}
    int64_t parts;
    auto arguments() const { return std::tie(parts); }
  };
};

struct DenseArguments {
  explicit DenseArguments(const Product& p)
      : before(p),
        has_residual(p.beta != 0),
        beta(p.beta),
        residual(p.residual),
        activation(p.activation),
        result(p.c_type) {}
  FactorsAndBiases before;
  bool has_residual;
  float beta;
  uint64_t residual;
  Activation activation;
  DataType result;
  auto arguments() const { return std::tie(before, has_residual, beta, residual, activation, result); }
};

}  // namespace

Launch make_dense_launch(const Variant& variant, const std::optional<Device>& device) {
  return make_launch<Dense>(variant, device, [](const Product& p) { return DenseArguments(p); });
}

}  // namespace imbrex

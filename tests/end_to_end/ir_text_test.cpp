// SPDX-License-Identifier: Apache-2.0
// The text of the IR is exact: every registered kernel, as traced and after each pass, reads back as itself.
#include <gtest/gtest.h>

#include "imbrex/runtime/registry.h"
#include "ir/ir.h"
#include "passes/pipeline.h"

namespace imbrex {
namespace {

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const auto& [name, kernel] : registered_kernels()) names.push_back(name);
  return names;
}

class IrText : public testing::TestWithParam<std::string> {};

TEST_P(IrText, ReadsBackAfterEveryPass) {
  const RegisteredKernel& kernel = registered_kernel(GetParam());
  std::map<std::string, int64_t> sizes;
  for (const SizeOption& size : kernel.description.sizes) sizes[size.name] = size.otherwise;
  const auto expect_reads_back = [](const std::string& stage, const ir::Function& function) {
    SCOPED_TRACE(stage);
    const std::string text = ir::print(function);
    const std::unique_ptr<ir::Function> again = ir::parse(text);
    EXPECT_NO_THROW(ir::verify(*again));
    EXPECT_EQ(ir::print(*again), text);
  };
  for (const Configuration& configuration : kernel.space.configurations()) {
    Case traced(Case::Mode::kTrace, std::nullopt, sizes, 0);
    kernel.run(traced, std::nullopt, configuration);
    expect_reads_back("trace", *traced.function);
    for (const passes::Pass& pass : passes::pipeline()) {
      pass.run(*traced.function);
      expect_reads_back(std::string(pass.name), *traced.function);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, IrText, testing::ValuesIn(kernel_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace imbrex

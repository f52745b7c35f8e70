// SPDX-License-Identifier: Apache-2.0
// The Hopper ladder where k is one block: loops make a single trip, so that nothing but the barriers
// themselves keeps warps in step, and persistent CTAs go from tile to tile as fast as they ever do.
#include <gtest/gtest.h>

#include "imbrex/runtime/registry.h"

namespace imbrex {
namespace {

TEST(ShortK, IsRightUnderEverySchedule) {
  for (const auto& [name, kernel] : registered_kernels()) {
    if (!name.starts_with("hopper_matmul_")) continue;
    std::map<std::string, int64_t> sizes;
    for (const SizeOption& size : kernel.description.sizes) sizes[size.name] = size.otherwise;
    sizes["m"] = 600, sizes["n"] = 600, sizes["k"] = 40;
    Configuration configuration = kernel.space.configuration(0);
    if (name == "hopper_matmul_skinny")
      sizes["m"] = 16;
    else if (kernel.space.to_string(configuration).find("ctas=") != std::string::npos)
      configuration = kernel.space.parse("ctas=4");
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const Device device =
          Device::virtual_gpu({.target = kernel.target, .seed = seed, .checks = vgpu::CheckSet::all()});
      Case c(Case::Mode::kRun, device, sizes, seed);
      kernel.run(c, device, configuration);
      EXPECT_TRUE(c.verified()) << name << ", seed " << seed;
      EXPECT_TRUE(c.report.clean()) << name << ", seed " << seed << "\n" << c.report.virtual_report.format();
    }
  }
}

}  // namespace
}  // namespace imbrex

// SPDX-License-Identifier: Apache-2.0
// Our occupancy against the driver's, on a CUDA GPU: synthetic kernels over a grid of registers, threads and
// shared memory, and every kernel of the library. Prints what it compared.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "../skip.h"
#include "imbrex/inspect/occupancy.h"
#include "imbrex/runtime/compile.h"
#include "imbrex/runtime/device.h"
#include "imbrex/runtime/registry.h"
#include "runtime/assemble/assembler.h"
#include "runtime/compile/compile.h"
#include "runtime/driver/cuda_driver.h"

namespace imbrex::runtime {
namespace {

/// A kernel that keeps about `live` registers: loads that may not move, a barrier, stores.
std::string keeps_registers(int live, const std::string& target) {
  std::string body;
  for (int i = 0; i < live; ++i) body += fmt::format("  ld.volatile.global.b32 %r{}, [%p+{}];\n", i, 4 * i);
  body += "  bar.sync 0;\n";
  for (int i = 0; i < live; ++i) body += fmt::format("  st.volatile.global.b32 [%p+{}], %r{};\n", 4 * i, i);
  return fmt::format(
      ".version 8.0\n.target {}\n.address_size 64\n.extern .shared .align 16 .b8 dynamic[];\n"
      ".visible .entry k(.param .u64 a)\n{{\n  .reg .b32 %r<{}>;\n  .reg .b64 %p;\n  ld.param.u64 %p, [a];\n"
      "{}  ret;\n}}\n",
      target, live + 1, body);
}

struct Gpu {
  const CudaDriver* driver = nullptr;
  std::string target;
  int sms = 0;
  Gpu() {
    if (!Device::has_cuda()) return;
    static const Device device = Device::cuda();  // makes the context current
    device.synchronize();
    driver = CudaDriver::find(nullptr);
    target = device.target();
    sms = device.multiprocessors();
  }
  int attribute(CUfunction function, int which) const {
    int value = 0;
    driver->check(driver->cuFuncGetAttribute(&value, which, function), "attribute");
    return value;
  }
  CUfunction load(const std::string& code, const std::string& name) const {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    driver->check(driver->cuModuleLoadDataEx(&module, code.c_str(), 0, nullptr, nullptr), "load");
    driver->check(driver->cuModuleGetFunction(&function, module, name.c_str()), "function");
    return function;
  }
  int ctas_per_sm(CUfunction function, int threads, int64_t shared) const {
    int ctas = 0;
    driver->check(driver->cuOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, function, threads,
                                                                      static_cast<size_t>(shared)),
                  "occupancy");
    return ctas;
  }
};

TEST(DriverOccupancy, OfSyntheticKernels) {
  const Gpu gpu;
  if (gpu.driver == nullptr) IMBREX_SKIP(gpu);
  std::map<std::string, int64_t> limits;
  for (const auto& [name, limit] : occupancy_limits(gpu.target)) limits[name] = limit;
  const int64_t most_shared = limits.at("max_shared_bytes");
  int64_t compared = 0, different = 0;
  for (int live : {4,   12,  20,  24,  28,  36,  44,  52,  60,  68,  76,  84,  92,
                   100, 116, 124, 132, 148, 160, 164, 180, 196, 212, 228, 240, 248}) {
    const CUfunction function = gpu.load(keeps_registers(live, gpu.target), "k");
    gpu.driver->check(gpu.driver->cuFuncSetAttribute(function, kFunctionAttributeMaxDynamicShared,
                                                     static_cast<int>(most_shared)),
                      "dynamic shared memory");
    const int registers = gpu.attribute(function, kFunctionAttributeRegisters);
    const int most_threads = gpu.attribute(function, kFunctionAttributeMaxThreads);
    for (int threads = 1; threads <= most_threads; threads += threads == 1 ? 31 : 16)
      for (int64_t shared = 0; shared <= most_shared; shared = shared * 5 / 4 + (shared < 1000 ? 129 : 7)) {
        const Occupancy ours = occupancy(
            gpu.target, {.threads = threads, .registers_per_thread = registers, .shared_bytes = shared});
        const int theirs = gpu.ctas_per_sm(function, threads, shared);
        ++compared;
        if (ours.ctas_per_sm == theirs) continue;
        if (++different <= 20)
          ADD_FAILURE() << fmt::format("{} threads, {} registers, {} bytes: ours {}, the driver's {}",
                                       threads, registers, shared, ours.ctas_per_sm, theirs);
      }
  }
  fmt::print("synthetic: {} combinations of threads, registers and shared memory on {}, {} differ\n",
             compared, gpu.target, different);
  EXPECT_EQ(different, 0);
}

TEST(DriverOccupancy, OfTheLibrary) {
  const Gpu gpu;
  if (gpu.driver == nullptr) IMBREX_SKIP(gpu);
  const Assembler* ptxas = find_ptxas();
  if (ptxas == nullptr) IMBREX_SKIP(ptxas);
  fmt::print("{:28} {:>9} {:>9} {:>9} {:>6} {:>6} {:>9} {:>9}\n", "kernel", "estimated", "registers",
             "shared", "ours", "driver", "clusters", "driver");
  for (const auto& [name, kernel] : registered_kernels()) {
    if (!Device::cuda().can_run(kernel.target)) continue;
    std::map<std::string, int64_t> sizes;
    for (const SizeOption& size : kernel.description.sizes) sizes[size.name] = size.otherwise;
    for (size_t i : std::set<size_t>{0, kernel.space.size() - 1}) {
      Case traced(Case::Mode::kTrace, std::nullopt, sizes, 0),
          again(Case::Mode::kTrace, std::nullopt, sizes, 0);
      kernel.run(traced, std::nullopt, kernel.space.configuration(i));
      kernel.run(again, std::nullopt, kernel.space.configuration(i));
      const codegen::CompiledKernel compiled = compile(*traced.function);
      const KernelResources estimated = kernel_resources(*again.function);
      const Cubin cubin = ptxas->assemble(compiled, gpu.target);
      const CUfunction function = gpu.load(cubin.bytes, compiled.name);
      if (compiled.shared_bytes > 48 * 1024)
        gpu.driver->check(gpu.driver->cuFuncSetAttribute(function, kFunctionAttributeMaxDynamicShared,
                                                         static_cast<int>(compiled.shared_bytes)),
                          "dynamic shared memory");
      const int registers = gpu.attribute(function, kFunctionAttributeRegisters);
      const int fixed = gpu.attribute(function, kFunctionAttributeStaticShared);
      const int64_t cluster = estimated.cta.cluster_ctas;
      CtaResources real = estimated.cta;
      real.registers_per_thread = registers;
      const Occupancy ours = occupancy(gpu.target, real);
      const int theirs = gpu.ctas_per_sm(function, compiled.threads, compiled.shared_bytes);
      CUlaunchAttribute attribute;
      attribute.id = kLaunchAttributeClusterDimension;
      CUlaunchConfig config = {};
      for (size_t d = 0; d < 3; ++d) {
        attribute.value.cluster[d] = static_cast<unsigned>(compiled.cluster[d]);
        config.grid[d] = static_cast<unsigned>(compiled.cluster[d]);
        config.block[d] = d == 0 ? static_cast<unsigned>(compiled.threads) : 1;
      }
      config.grid[0] *= 1024;
      config.shared_bytes = static_cast<unsigned>(compiled.shared_bytes);
      config.attributes = &attribute;
      config.attribute_count = 1;
      int clusters = 0;
      gpu.driver->check(gpu.driver->cuOccupancyMaxActiveClusters(&clusters, function, &config), "clusters");
      const int64_t bound = ours.ctas_per_sm * gpu.sms / cluster;
      fmt::print("{:28} {:>9} {:>9} {:>9} {:>6} {:>6} {:>9} {:>9}  {}\n", name,
                 estimated.cta.registers_per_thread, registers, fixed + compiled.shared_bytes,
                 ours.ctas_per_sm, theirs, bound, clusters,
                 kernel.space.to_string(kernel.space.configuration(i)));
      EXPECT_EQ(fixed, 0) << name;  // all shared memory is what we placed
      EXPECT_EQ(ours.ctas_per_sm, theirs) << name;
      // SMs that a processing cluster has beyond a multiple of the cluster's size stay idle.
      EXPECT_LE(clusters, bound) << name;
    }
  }
}

}  // namespace
}  // namespace imbrex::runtime

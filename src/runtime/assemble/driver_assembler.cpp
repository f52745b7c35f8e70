// SPDX-License-Identifier: Apache-2.0
// The driver's own assembler, asked for the machine code instead of a loaded module, so that it can be kept.
#include <fmt/format.h>

#include <chrono>
#include <vector>

#include "imbrex/core/error.h"
#include "runtime/assemble/assembler.h"
#include "runtime/assemble/ptx_lines.h"
#include "runtime/host/files.h"

namespace imbrex::runtime {
namespace {

class DriverAssembler : public Assembler {
 public:
  explicit DriverAssembler(const CudaDriver& driver) : driver_(driver) {
    driver_.cuDriverGetVersion(&cuda_version_);
    // CUDA's version is not the driver's: two drivers of one CUDA version may assemble differently.
    module_version_ = read_file("/sys/module/nvidia/version").value_or("");
    while (!module_version_.empty() && module_version_.back() == '\n') module_version_.pop_back();
  }

  std::string name() const override {
    return fmt::format("driver {}.{}{}{}", cuda_version_ / 1000, cuda_version_ % 1000 / 10,
                       module_version_.empty() ? "" : " of ", module_version_);
  }
  int cuda_version() const override { return cuda_version_; }

  Cubin assemble(const codegen::CompiledKernel& kernel, const std::string&, bool) const override {
    std::vector<char> log(64 << 10), errors(64 << 10);
    int options[] = {kJitInfoLogBuffer, kJitInfoLogBytes, kJitErrorLogBuffer,
                     kJitErrorLogBytes, kJitLogVerbose,   kJitGenerateLineInfo};
    void* values[] = {log.data(),
                      reinterpret_cast<void*>(log.size()),
                      errors.data(),
                      reinterpret_cast<void*>(errors.size()),
                      reinterpret_cast<void*>(1),
                      reinterpret_cast<void*>(1)};
    const auto begin = std::chrono::steady_clock::now();
    CUlinkState state = nullptr;
    driver_.check(driver_.cuLinkCreate(6, options, values, &state), "assembler of the driver");
    void* bytes = nullptr;
    size_t size = 0;
    CUresult result = driver_.cuLinkAddData(state, kJitInputPtx, const_cast<char*>(kernel.ptx.c_str()),
                                            kernel.ptx.size() + 1, kernel.name.c_str(), 0, nullptr, nullptr);
    if (result == 0) result = driver_.cuLinkComplete(state, &bytes, &size);
    Cubin cubin;
    if (result == 0) cubin.bytes.assign(static_cast<const char*>(bytes), size);
    driver_.cuLinkDestroy(state);
    if (result != 0) throw assembly_error(kernel, errors.data(), driver_.describe(result));
    cubin.milliseconds =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    cubin.log_text = log.data();
    // What is linked may be part of a larger program, and the linker ignores setmaxnreg. Loaded by itself the PTX keeps it;
    // the driver then assembles it once more, and keeps the result in a cache of its own.
    if (cubin.log_text.find("'setmaxnreg' ignored") != std::string::npos) {
      cubin.bytes = kernel.ptx;
      cubin.log_text.clear();
    }
    cubin.assembler = name();
    return cubin;
  }

 private:
  const CudaDriver& driver_;
  int cuda_version_ = 0;
  std::string module_version_;
};

}  // namespace

std::unique_ptr<Assembler> driver_assembler(const CudaDriver& driver) {
  return std::make_unique<DriverAssembler>(driver);
}

}  // namespace imbrex::runtime

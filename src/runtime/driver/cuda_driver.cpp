// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "imbrex/core/error.h"

namespace imbrex::runtime {
namespace {

struct Loaded {
  CudaDriver driver;
  std::string why_not;

  Loaded() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      why_not = fmt::format("no CUDA driver: {}", dlerror());
      return;
    }
#define DRIVER_FN(name, symbol, parameters) \
  driver.name = reinterpret_cast<decltype(driver.name)>(dlsym(library, symbol));
#include "runtime/driver/driver.def"
#undef DRIVER_FN
    int version = 0, devices = 0;
    if (driver.cuInit == nullptr || driver.cuDriverGetVersion == nullptr) {
      why_not = "libcuda.so.1 lacks cuInit";
    } else if (CUresult result = driver.cuInit(0); result != 0) {
      why_not = fmt::format("cuInit: {}", driver.describe(result));
    } else if (driver.cuDriverGetVersion(&version); version < 12000) {
      why_not = fmt::format("the CUDA driver is of version {}.{}; Imbrex needs 12.0 or later", version / 1000,
                            version % 1000 / 10);
    } else if (driver.cuDeviceGetCount(&devices); devices == 0) {
      why_not = "the CUDA driver finds no device";
    }
#define DRIVER_FN(name, symbol, parameters) \
  if (why_not.empty() && driver.name == nullptr) why_not = "libcuda.so.1 lacks " symbol;
#include "runtime/driver/driver.def"
#undef DRIVER_FN
  }
};

}  // namespace

const CudaDriver* CudaDriver::find(std::string* why_not) {
  static Loaded loaded;
  if (why_not != nullptr) *why_not = loaded.why_not;
  return loaded.why_not.empty() ? &loaded.driver : nullptr;
}

const CudaDriver& CudaDriver::get(const std::string& help) {
  std::string why_not;
  const CudaDriver* const found = find(&why_not);
  if (found == nullptr) throw DeviceError(Diagnostic{{}, why_not, {}, help});
  return *found;
}

std::string CudaDriver::describe(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName == nullptr || cuGetErrorName(result, &name) != 0 || name == nullptr)
    return fmt::format("CUDA error {}", result);
  if (cuGetErrorString(result, &text) != 0 || text == nullptr) text = "";
  return fmt::format("{} ({})", name, text);
}

void CudaDriver::check(CUresult result, const std::string& what) const {
  if (result != 0) throw DeviceError(Diagnostic{{}, fmt::format("{}: {}", what, describe(result)), {}, ""});
}

}  // namespace imbrex::runtime

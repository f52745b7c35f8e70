// SPDX-License-Identifier: Apache-2.0
// cuLink: what real drivers assemble and link into machine code is linked as PTX here. The "machine code" that a program
// gets and loads afterwards is its text.
#include <fmt/format.h>

#include <cstring>

#include "cuda_host/driver/answer.h"
#include "cuda_host/host/jit_options.h"
#include "cuda_host/image/image.h"

using namespace imbrex::cuda;

namespace {

struct Link {
  JitLog log;
  std::vector<NamedPtx> modules;
  std::string result;
};
Handles<Link>& links() {
  static auto* all = new Handles<Link>("link");
  return *all;
}

/// The device runtime library is linked by habit; kernels that launch kernels are what would need it.
bool is_device_runtime(const char* name) {
  return name != nullptr && std::strstr(name, "cudadevrt") != nullptr;
}

void add(Link& link, int type, std::string_view bytes, const char* name) {
  if (is_device_runtime(name)) return;
  if (type != kJitInputPtx && type != kJitInputCubin && type != kJitInputFatBinary)
    refuse(CUDA_ERROR_NOT_SUPPORTED, fmt::format("'{}' is an object or a library: the virtual GPU links PTX",
                                                 name == nullptr ? "" : name));
  std::string called =
      name == nullptr || *name == '\0' ? fmt::format("module {}", link.modules.size() + 1) : name;
  link.modules.push_back({std::move(called), ptx_of_bytes(bytes, Host::get().settings.gpu.target)});
}

}  // namespace

CUDA_API cuLinkCreate_v2(unsigned count, int* options, void** values, CUlinkState* state) {
  return answer("cuLinkCreate", [&] {
    Link& made = links().make();
    made.log = JitLog(count, options, values);
    not_null(state, "state") = reinterpret_cast<CUlinkState>(&made);
  });
}
CUDA_API cuLinkAddData_v2(CUlinkState state, int type, void* data, size_t bytes, const char* name, unsigned,
                          int*, void**) {
  return answer("cuLinkAddData", [&] {
    Link& link = links().get(state);
    link.log.keep_errors([&] {
      add(link, type, {&not_null(static_cast<const char*>(data), "data"), bytes}, name);
    });
  });
}
CUDA_API cuLinkAddFile_v2(CUlinkState state, int type, const char* file, unsigned, int*, void**) {
  return answer("cuLinkAddFile", [&] {
    if (is_device_runtime(file)) return;  // which need not be there
    Link& link = links().get(state);
    link.log.keep_errors([&] { add(link, type, read_image_file(file), file); });
  });
}
CUDA_API cuLinkComplete(CUlinkState state, void** image, size_t* bytes) {
  return answer("cuLinkComplete", [&] {
    Link& link = links().get(state);
    link.log.keep_errors([&] {
      if (link.modules.empty()) refuse(CUDA_ERROR_INVALID_VALUE, "nothing was added to the link");
      link.result = link_ptx(std::move(link.modules));
      link.modules.clear();
    });
    not_null(image, "image") = link.result.data();
    if (bytes != nullptr) *bytes = link.result.size() + 1;  // with the NUL that ends the text
  });
}
CUDA_API cuLinkDestroy(CUlinkState state) {
  return answer("cuLinkDestroy", [&] { links().destroy(state); });
}

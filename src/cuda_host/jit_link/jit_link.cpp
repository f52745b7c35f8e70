// SPDX-License-Identifier: Apache-2.0
// Stands in for libnvJitLink under clients that link PTX into machine code before they load it, as Numba does: the
// "machine code" is the PTX, which libcuda.so.1 of the virtual GPU loads. It knows nothing of the host layer.
//
// nvJitLinkVersion is left out on purpose: without it clients take this for the first release, and give it PTX instead of
// the LTO-IR that only NVIDIA's own linker reads.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace {

// nvJitLinkResult and nvJitLinkInputType.
enum Result : int { kSuccess = 0, kInvalidInput = 3, kNotSupported = 8 };
enum Input : int {
  kCubin = 1,
  kPtx = 2,
  kLtoIr = 3,
  kFatBinary = 4,
  kObject = 5,
  kLibrary = 6,
  kIndex = 7,
  kAny = 10
};

struct Link {
  std::vector<std::string> texts;
  std::string result, errors;
};
std::set<Link*>& links() {
  static auto* all = new std::set<Link*>;
  return *all;
}
Link* find(void* handle) {
  auto* link = static_cast<Link*>(handle);
  return links().contains(link) ? link : nullptr;
}

Result fail(Link& link, const std::string& why) {
  link.errors = why;
  std::fprintf(stderr, "imbrex: nvJitLink: %s\n", why.c_str());
  return kNotSupported;
}

Result add(Link& link, int type, const std::string& bytes, const char* name) {
  const std::string what = name == nullptr || *name == '\0' ? "an input" : std::string("'") + name + "'";
  const bool is_machine_code = bytes.starts_with(
      "\x7f"
      "ELF");
  if ((type == kPtx || type == kCubin || type == kAny) && !is_machine_code) {
    link.texts.push_back(bytes.substr(0, bytes.find('\0')));
    return kSuccess;
  }
  // The device runtime library is linked by habit; kernels that launch kernels are what would need it.
  if (what.find("cudadevrt") != std::string::npos) return kSuccess;
  return fail(link, what + " is not PTX, and the virtual GPU links PTX only (no LTO, objects or libraries)");
}

Result copy_out(Link* link, const std::string Link::*text, void* to) {
  if (link == nullptr || to == nullptr) return kInvalidInput;
  std::memcpy(to, (link->*text).c_str(), (link->*text).size() + 1);
  return kSuccess;
}
Result size_out(Link* link, const std::string Link::*text, size_t* bytes) {
  if (link == nullptr || bytes == nullptr) return kInvalidInput;
  *bytes = (link->*text).size() + 1;
  return kSuccess;
}

}  // namespace

// Each function by its plain name, and by the name with the version that the header's inline functions call.
#define TEXT(x) #x
#define PASTE(name, major) TEXT(__##name##_##major##_0)
#define VERSIONED(name, major) PASTE(name, major)
#define JIT_LINK_API(name, ...)                                                                            \
  extern "C" __attribute__((visibility("default"))) int name(__VA_ARGS__);                                 \
  asm(".globl " VERSIONED(name, IMBREX_CUDART_MAJOR) "\n.set " VERSIONED(name,                             \
                                                                         IMBREX_CUDART_MAJOR) ", " #name); \
  int name(__VA_ARGS__)

JIT_LINK_API(nvJitLinkCreate, void** handle, uint32_t, const char**) {
  if (handle == nullptr) return kInvalidInput;
  auto* link = new Link;
  links().insert(link);
  *handle = link;
  return kSuccess;
}
JIT_LINK_API(nvJitLinkDestroy, void** handle) {
  Link* link = handle == nullptr ? nullptr : find(*handle);
  if (link == nullptr) return kInvalidInput;
  links().erase(link);
  delete link;
  *handle = nullptr;
  return kSuccess;
}
JIT_LINK_API(nvJitLinkAddData, void* handle, int type, const void* data, size_t bytes, const char* name) {
  Link* link = find(handle);
  if (link == nullptr || data == nullptr) return kInvalidInput;
  return add(*link, type, std::string(static_cast<const char*>(data), bytes), name);
}
JIT_LINK_API(nvJitLinkAddFile, void* handle, int type, const char* file) {
  Link* link = find(handle);
  if (link == nullptr || file == nullptr) return kInvalidInput;
  std::ifstream in(file, std::ios::binary);
  if (!in) return fail(*link, std::string("'") + file + "' cannot be read");
  return add(*link, type, std::string(std::istreambuf_iterator<char>(in), {}), file);
}
JIT_LINK_API(nvJitLinkComplete, void* handle) {
  Link* link = find(handle);
  if (link == nullptr) return kInvalidInput;
  if (link->texts.empty()) return fail(*link, "nothing was added to the link");
  // One behind the other: libcuda.so.1 links them when it loads them.
  link->result.clear();
  for (const std::string& text : link->texts) link->result += text + "\n";
  return kSuccess;
}
JIT_LINK_API(nvJitLinkGetLinkedCubinSize, void* handle, size_t* bytes) {
  return size_out(find(handle), &Link::result, bytes);
}
JIT_LINK_API(nvJitLinkGetLinkedCubin, void* handle, void* to) {
  return copy_out(find(handle), &Link::result, to);
}
JIT_LINK_API(nvJitLinkGetLinkedPtxSize, void* handle, size_t* bytes) {
  return size_out(find(handle), &Link::result, bytes);
}
JIT_LINK_API(nvJitLinkGetLinkedPtx, void* handle, char* to) {
  return copy_out(find(handle), &Link::result, to);
}
JIT_LINK_API(nvJitLinkGetErrorLogSize, void* handle, size_t* bytes) {
  return size_out(find(handle), &Link::errors, bytes);
}
JIT_LINK_API(nvJitLinkGetErrorLog, void* handle, char* to) {
  return copy_out(find(handle), &Link::errors, to);
}
JIT_LINK_API(nvJitLinkGetInfoLogSize, void* handle, size_t* bytes) {
  if (find(handle) == nullptr || bytes == nullptr) return kInvalidInput;
  *bytes = 1;
  return kSuccess;
}
JIT_LINK_API(nvJitLinkGetInfoLog, void* handle, char* to) {
  if (find(handle) == nullptr || to == nullptr) return kInvalidInput;
  *to = '\0';
  return kSuccess;
}

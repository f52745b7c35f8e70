// SPDX-License-Identifier: Apache-2.0
// cuGetExportTable: tables of functions, by UUID, that CUDA runtimes ask the driver for and that no header declares.
// What is known of them is what open-source drivers for other GPUs have published. A slot that nobody is known to call
// is null or refuses; those that a runtime may call and that do nothing here say so.
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <cstring>

#include "cuda_host/driver/answer.h"
#include "cuda_host/driver/integrity.h"
#include "cuda_host/host/device_attributes.h"
#include "cuda_host/image/image.h"

using namespace imbrex::cuda;

namespace {

using Slot = const void*;

template <class Function>
Slot slot(Function* function) {
  return reinterpret_cast<Slot>(function);
}
/// The first slot of most tables: their size in bytes.
Slot size_of(size_t slots) { return reinterpret_cast<Slot>(slots * sizeof(Slot)); }

// ---- the runtime's own interface

CUresult load(CUmodule* module, const void* image) {
  return answer("module of the runtime", [&] {
    Host& host = Host::get();
    not_null(module, "module") = reinterpret_cast<CUmodule>(
        &host.modules.make(ptx_of_image(image, host.settings.gpu.target), host.current().device));
  });
}
CUresult module_of_wrapper(CUmodule* module, const void* wrapper) { return load(module, wrapper); }
CUresult module_of_wrapper_linked(CUmodule* module, const void* wrapper, void*, void*, unsigned) {
  return load(module, wrapper);
}
CUresult module_of_binary(const void* binary, CUmodule* module, void*, void*, unsigned) {
  return load(module, binary);
}
CUresult primary_context(CUcontext* context, CUdevice device) {
  return answer("primary context of the runtime", [&] {
    Host& host = Host::get();
    Device& on = host.device(device);
    if (on.primary == nullptr) {
      host.retain_primary(device);
      on.primary_retained = 0;  // the runtime only asks which it is
    }
    not_null(context, "context") = handle_of(*on.primary);
  });
}
CUresult nothing_to_do(size_t) { return CUDA_SUCCESS; }
/// What runtimes since 13.2 ask when they start, and take for an error where it is not 0.
CUresult start() { return CUDA_SUCCESS; }
CUresult unknown() {
  return not_supported("export table", "a function of the runtime's own interface that nobody has published");
}

// ---- storage that the runtime keeps with a context

/// Runtimes ask before they have made a context, to find that they must.
Context& context_or_current(CUcontext context) {
  if (context != nullptr) return Host::get().context(context);
  Context* current = Host::get().current_or_null();
  if (current == nullptr) refuse(CUDA_ERROR_INVALID_CONTEXT);
  return *current;
}
CUresult storage_put(CUcontext context, void* key, void* value, void (*destroyed)(CUcontext, void*, void*)) {
  return answer("storage of contexts", [&] {
    context_or_current(context).storage[key] = {value, destroyed};
  });
}
CUresult storage_remove(CUcontext context, void* key) {
  return answer("storage of contexts", [&] { context_or_current(context).storage.erase(key); });
}
CUresult storage_get(void** value, CUcontext context, void* key) {
  return answer("storage of contexts", [&] {
    const Context& of = context_or_current(context);
    const auto at = of.storage.find(key);
    if (at == of.storage.end()) refuse(CUDA_ERROR_INVALID_HANDLE);  // how the runtime finds that it must put
    not_null(value, "value") = at->second.value;
  });
}

// ---- profilers' hooks: buffers that nobody fills

char g_hooks[1024 * sizeof(int)], g_more_hooks[14 * sizeof(int)];
void hooks(void** buffer, size_t* size) {
  *buffer = g_hooks;
  *size = sizeof g_hooks / sizeof(int);
}
void more_hooks(void** buffer, size_t* size) {
  *buffer = g_more_hooks;
  *size = sizeof g_more_hooks / sizeof(int);
}

// ---- checks of the runtime

CUresult integrity(unsigned version, uint64_t unix_seconds, uint64_t result[2]);
CUresult context_check(CUcontext, unsigned* first, const void** second) {
  if (first != nullptr) *first = 0;
  if (second != nullptr) *second = nullptr;
  return CUDA_SUCCESS;
}
unsigned answer_zero() { return 0; }

CUresult create_context_bypassing(CUcontext*, unsigned, CUdevice) {
  return not_supported("export table: contexts made past the API", "green contexts");
}
CUresult extended_attribute(CUdevice, unsigned, int, size_t result[2]) {
  result[0] = result[1] = 0;
  return CUDA_SUCCESS;
}
CUresult extended_answer(unsigned char* result, CUdevice) {
  *result = 0;
  return CUDA_SUCCESS;
}

struct HeapRecord {
  size_t first, second;
};
CUresult heap_allocate(const void** record, size_t first, size_t second) {
  *record = new HeapRecord{first, second};
  return CUDA_SUCCESS;
}
CUresult heap_free(const void* record, size_t* first) {
  const auto* kept = static_cast<const HeapRecord*>(record);
  if (first != nullptr) *first = kept->first;
  delete kept;
  return CUDA_SUCCESS;
}

const Slot g_runtime[16] = {size_of(16),
                            slot(module_of_wrapper),
                            slot(primary_context),
                            slot(unknown),
                            slot(unknown),
                            slot(unknown),
                            slot(module_of_wrapper_linked),
                            slot(nothing_to_do),
                            slot(module_of_binary),
                            slot(unknown),
                            slot(unknown),
                            slot(unknown),
                            slot(start),
                            slot(unknown),
                            slot(unknown),
                            slot(unknown)};
const Slot g_tools_storage[4] = {size_of(4)};
const Slot g_tools_hooks[7] = {size_of(7), nullptr, slot(hooks), nullptr, nullptr, nullptr, slot(more_hooks)};
const Slot g_storage[4] = {slot(storage_put), slot(storage_remove), slot(storage_get), nullptr};
const Slot g_bypass[2] = {size_of(2), slot(create_context_bypassing)};
const Slot g_heap[3] = {size_of(3), slot(heap_allocate), slot(heap_free)};
const Slot g_extended[26] = {
    size_of(26), nullptr, nullptr, nullptr, nullptr, slot(extended_attribute), nullptr, nullptr,
    nullptr,     nullptr, nullptr, nullptr, nullptr, slot(extended_answer)};
const Slot g_integrity[3] = {size_of(3), slot(integrity), nullptr};
const Slot g_checks[4] = {size_of(4), nullptr, slot(context_check), slot(answer_zero)};

CUresult integrity(unsigned version, uint64_t unix_seconds, uint64_t result[2]) {
  return answer("integrity check", [&] {
    const Host& host = Host::get();
    // Runtimes whose version ends so send a constant question.
    if (version % 10 < 2) {
      result[0] = version % 10 == 0 ? 0x3341181C03CB675C : 0x1841181C03CB675C;
      result[1] = 0x8ED383AA1F4CD1E8;
      return;
    }
    const IntegrityFacts facts{static_cast<uint32_t>(kDriverVersion),
                               version,
                               static_cast<uint32_t>(getpid()),
                               static_cast<uint32_t>(pthread_self()),
                               g_runtime,
                               g_integrity,
                               g_integrity[1],
                               unix_seconds};
    std::vector<IntegrityDevice> devices;
    for (int i = 0; i < host.settings.gpus; ++i) {
      IntegrityDevice device{{}, 0, i + 1, 0};
      const CUuuid uuid = device_uuid(i);
      std::memcpy(device.uuid, uuid.bytes, sizeof uuid.bytes);
      devices.push_back(device);
    }
    const Digest digest = integrity_answer(facts, devices);
    std::memcpy(result, digest.data(), digest.size());
  });
}

struct Table {
  unsigned char uuid[16];
  const Slot* slots;
};
const Table g_tables[] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
     g_runtime},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc},
     g_tools_storage},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66},
     g_tools_hooks},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93},
     g_storage},
    {{0x0c, 0xa5, 0x0b, 0x8c, 0x10, 0x04, 0x92, 0x9a, 0x89, 0xa7, 0xd0, 0xdf, 0x10, 0xe7, 0x72, 0x86},
     g_bypass},
    {{0x19, 0x5b, 0xcb, 0xf4, 0xd6, 0x7d, 0x02, 0x4a, 0xac, 0xc5, 0x1d, 0x29, 0xce, 0xa6, 0x31, 0xae},
     g_heap},
    {{0xb1, 0x05, 0x41, 0xe1, 0xf7, 0xc7, 0xc7, 0x4a, 0x9f, 0x64, 0xf2, 0x23, 0xbe, 0x99, 0xf1, 0xe2},
     g_extended},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2},
     g_integrity},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e},
     g_checks},
};

}  // namespace

CUDA_API cuGetExportTable(const void** table, const CUuuid* id) {
  return answer("cuGetExportTable", [&] {
    for (const Table& one : g_tables)
      if (std::memcmp(one.uuid, not_null(id, "id").bytes, sizeof one.uuid) == 0) {
        not_null(table, "table") = one.slots;
        return;
      }
    refuse(CUDA_ERROR_INVALID_VALUE);  // runtimes do without
  });
}

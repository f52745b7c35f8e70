// SPDX-License-Identifier: Apache-2.0
#include "c_api/handles.h"
#include "imbrex/core/version.h"
#include "runtime/device/backend.h"
#include "runtime/device/stream_handle.h"

using namespace imbrex;
using namespace imbrex::c;

// The header's numbers are the library's.
#define SAME(c_name, code) static_assert(static_cast<int>(c_name) == static_cast<int>(code))
SAME(IMBREX_BOOL, DataType::kBool);
SAME(IMBREX_INT8, DataType::kInt8);
SAME(IMBREX_INT64, DataType::kInt64);
SAME(IMBREX_UINT8, DataType::kUInt8);
SAME(IMBREX_UINT64, DataType::kUInt64);
SAME(IMBREX_FLOAT16, DataType::kFloat16);
SAME(IMBREX_BFLOAT16, DataType::kBFloat16);
SAME(IMBREX_TFLOAT32, DataType::kTFloat32);
SAME(IMBREX_FLOAT32, DataType::kFloat32);
SAME(IMBREX_FLOAT64, DataType::kFloat64);
SAME(IMBREX_FLOAT8_E4M3, DataType::kFloat8E4M3);
SAME(IMBREX_FLOAT8_E5M2, DataType::kFloat8E5M2);
SAME(IMBREX_FLOAT6_E2M3, DataType::kFloat6E2M3);
SAME(IMBREX_FLOAT6_E3M2, DataType::kFloat6E3M2);
SAME(IMBREX_FLOAT4_E2M1, DataType::kFloat4E2M1);
SAME(IMBREX_FLOAT8_E8M0, DataType::kFloat8E8M0);
SAME(IMBREX_FLOAT8_UE4M3, DataType::kFloat8UE4M3);
SAME(IMBREX_INT1, DataType::kInt1);
SAME(IMBREX_UINT1, DataType::kUInt1);
SAME(IMBREX_UINT7, DataType::kUInt7);
SAME(IMBREX_FLOAT3_E1M1, DataType::kFloat3E1M1);
SAME(IMBREX_FLOAT7_E5M1, DataType::kFloat7E5M1);
static_assert(IMBREX_FLOAT7_E5M1 + 1 == DataType::kCount);

namespace {

imbrex_status open(const char* function, imbrex_device** out, const std::function<Device()>& make) {
  return guard([&] {
    require_given(function, "out", out);
    *out = new imbrex_device{make()};
  });
}

/// The driver's handle of the caller's stream.
runtime::CUstream_st* handle(const Device& device, void* stream) {
  return runtime::handle_on(device, stream_of(device, stream), "imbrex");
}

void require_bytes(const char* function, int64_t bytes) {
  if (bytes < 0) refuse(function, std::to_string(bytes) + " bytes", "a size is 0 or more");
}

}  // namespace

extern "C" {

const char* imbrex_version(void) { return version(); }

const char* imbrex_dtype_name(imbrex_dtype dtype) {
  if (static_cast<int>(dtype) < 0 || static_cast<int>(dtype) >= DataType::kCount) return nullptr;
  return DataType{static_cast<DataType::Code>(dtype)}.name().data();
}

imbrex_status imbrex_device_open_virtual(const imbrex_virtual_options* options, imbrex_device** out) {
  return open(__func__, out, [&] {
    vgpu::Options made;
    if (options != nullptr) {
      require_size("imbrex_device_open_virtual", "imbrex_virtual_options", options->struct_size,
                   sizeof *options);
      if (options->target != nullptr) made.target = options->target;
      made.seed = options->seed;
      if (options->with_all_checks != 0) made.checks = vgpu::CheckSet::all();
      if (options->without_checks != 0) made.checks = vgpu::CheckSet::none();
      if (options->in_practice != 0) made.strictness = vgpu::Strictness::kPractical;
      made.instruction_budget = options->instruction_budget;
      if (options->memory_bytes != 0) made.memory_bytes = options->memory_bytes;
    }
    return Device::virtual_gpu(made);
  });
}
imbrex_status imbrex_device_open_cuda(int32_t ordinal, imbrex_device** out) {
  return open(__func__, out, [&] { return Device::cuda(ordinal); });
}
imbrex_status imbrex_device_open_current(imbrex_device** out) {
  return open(__func__, out, [] { return Device::current(); });
}
void imbrex_device_close(imbrex_device* device) { delete device; }

int32_t imbrex_device_is_virtual(const imbrex_device* device) { return device->device.is_virtual() ? 1 : 0; }
const char* imbrex_device_name(const imbrex_device* device) { return device->name.c_str(); }
const char* imbrex_device_target(const imbrex_device* device) { return device->target.c_str(); }
imbrex_status imbrex_device_synchronize(imbrex_device* device) {
  return guard([&] {
    require_given("imbrex_device_synchronize", "device", device);
    device->device.synchronize();
  });
}

imbrex_status imbrex_allocate(imbrex_device* device, int64_t bytes, uint64_t* address) {
  return guard([&] {
    require_given("imbrex_allocate", "device", device);
    require_given("imbrex_allocate", "address", address);
    require_bytes("imbrex_allocate", bytes);
    *address = device->device.backend().allocate(bytes == 0 ? 1 : bytes);
  });
}
imbrex_status imbrex_free(imbrex_device* device, uint64_t address) {
  return guard([&] {
    require_given("imbrex_free", "device", device);
    if (address == 0) return;
    device->device.backend().check_memory(address, 1);
    device->device.backend().free(address);
  });
}
imbrex_status imbrex_copy_to_device(imbrex_device* device, uint64_t to, const void* from, int64_t bytes,
                                    void* stream) {
  return guard([&] {
    require_given("imbrex_copy_to_device", "device", device);
    require_given("imbrex_copy_to_device", "from", from);
    require_bytes("imbrex_copy_to_device", bytes);
    runtime::DeviceBackend& backend = device->device.backend();
    runtime::CUstream_st* const on = handle(device->device, stream);
    runtime::refuse_capture("imbrex_copy_to_device", backend, on);
    backend.before_wait(on);
    backend.start_copy_to_device(to, from, bytes, on);
    backend.synchronize(on);
  });
}
imbrex_status imbrex_copy_from_device(imbrex_device* device, void* to, uint64_t from, int64_t bytes,
                                      void* stream) {
  return guard([&] {
    require_given("imbrex_copy_from_device", "device", device);
    require_given("imbrex_copy_from_device", "to", to);
    require_bytes("imbrex_copy_from_device", bytes);
    runtime::DeviceBackend& backend = device->device.backend();
    runtime::CUstream_st* const on = handle(device->device, stream);
    runtime::refuse_capture("imbrex_copy_from_device", backend, on);
    backend.before_wait(on);
    backend.start_copy_from_device(to, from, bytes, on);
    backend.synchronize(on);
  });
}
imbrex_status imbrex_fill(imbrex_device* device, uint64_t address, uint8_t value, int64_t bytes,
                          void* stream) {
  return guard([&] {
    require_given("imbrex_fill", "device", device);
    require_bytes("imbrex_fill", bytes);
    device->device.backend().start_fill(address, value, bytes, handle(device->device, stream));
  });
}

}  // extern "C"

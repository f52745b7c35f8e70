// SPDX-License-Identifier: Apache-2.0
// Devices: how many, which, and what they can do.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/target.h"
#include "cuda_host/driver/answer.h"
#include "cuda_host/host/device_attributes.h"

using namespace imbrex::cuda;

CUDA_API cuInit(unsigned) {
  return answer("cuInit", [] { Host::get(); });
}

CUDA_API cuDriverGetVersion(int* version) {
  return answer("cuDriverGetVersion", [&] { not_null(version, "version") = kDriverVersion; });
}

CUDA_API cuDeviceGetCount(int* count) {
  return answer("cuDeviceGetCount", [&] { not_null(count, "count") = Host::get().settings.gpus; });
}

CUDA_API cuDeviceGet(CUdevice* device, int ordinal) {
  return answer("cuDeviceGet", [&] {
    Host::get().device(ordinal);
    not_null(device, "device") = ordinal;
  });
}

CUDA_API cuDeviceGetName(char* name, int bytes, CUdevice device) {
  return answer("cuDeviceGetName", [&] {
    Host& host = Host::get();
    host.device(device);
    if (name == nullptr || bytes < 1) refuse(CUDA_ERROR_INVALID_VALUE, "no room for the name");
    const std::string title = host.settings.gpu.title;
    const size_t length = std::min(title.size(), static_cast<size_t>(bytes) - 1);
    std::memcpy(name, title.data(), length);
    name[length] = '\0';
  });
}

CUDA_API cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return answer("cuDeviceGetUuid", [&] {
    Host::get().device(device);
    not_null(uuid, "uuid") = device_uuid(device);
  });
}
CUDA_API cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

CUDA_API cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return answer("cuDeviceTotalMem", [&] {
    Host::get().device(device);
    not_null(bytes, "bytes") = static_cast<size_t>(Host::get().memory.total_bytes());
  });
}

CUDA_API cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  return answer("cuDeviceGetAttribute", [&] {
    Host& host = Host::get();
    host.device(device);
    const std::optional<int> known = device_attribute(host.settings, attribute, device);
    if (!known.has_value())
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("device attribute {} is not known", attribute));
    not_null(value, "value") = *known;
  });
}

CUDA_API cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  return answer("cuDeviceComputeCapability", [&] {
    Host& host = Host::get();
    host.device(device);
    not_null(major, "major") = *device_attribute(host.settings, kDeviceMajor, device);
    not_null(minor, "minor") = *device_attribute(host.settings, kDeviceMinor, device);
  });
}

CUDA_API cuDeviceGetPCIBusId(char* text, int bytes, CUdevice device) {
  return answer("cuDeviceGetPCIBusId", [&] {
    Host::get().device(device);
    const std::string id = pci_bus_id(device);
    if (text == nullptr || bytes < static_cast<int>(id.size()) + 1)
      refuse(CUDA_ERROR_INVALID_VALUE,
             fmt::format("room for {} bytes, the name has {}", bytes, id.size() + 1));
    std::memcpy(text, id.c_str(), id.size() + 1);
  });
}

CUDA_API cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  return answer("cuDeviceGetByPCIBusId", [&] {
    const std::string wanted = &not_null(text, "text");
    for (int i = 0; i < Host::get().settings.gpus; ++i)
      if (pci_bus_id(i) == wanted) {
        not_null(device, "device") = i;
        return;
      }
    refuse(CUDA_ERROR_INVALID_DEVICE, fmt::format("no device at '{}'", wanted));
  });
}

CUDA_API cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return answer("cuDeviceCanAccessPeer", [&] {
    Host::get().device(device);
    Host::get().device(peer);
    not_null(can, "can") = device != peer ? 1 : 0;
  });
}

CUDA_API cuDeviceGetP2PAttribute(int* value, int attribute, CUdevice from, CUdevice to) {
  return answer("cuDeviceGetP2PAttribute", [&] {
    Host::get().device(from);
    Host::get().device(to);
    constexpr int kArrayAccess = 4;
    not_null(value, "value") = from != to && attribute != kArrayAccess ? 1 : 0;
  });
}

CUDA_API cuDeviceGetTexture1DLinearMaxWidth(size_t* elements, int, unsigned, CUdevice device) {
  return answer("cuDeviceGetTexture1DLinearMaxWidth", [&] {
    Host::get().device(device);
    not_null(elements, "elements") = size_t{1} << 28;
  });
}

CUDA_API cuDeviceGetExecAffinitySupport(int* supported, int, CUdevice device) {
  return answer("cuDeviceGetExecAffinitySupport", [&] {
    Host::get().device(device);
    not_null(supported, "supported") = 0;
  });
}

CUDA_API cuGetErrorName(CUresult error, const char** text) {
  not_null(text, "text") = error_name(error);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUDA_API cuGetErrorString(CUresult error, const char** text) {
  not_null(text, "text") = error_text(error);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUDA_API cuProfilerInitialize(const char*, const char*, int) { return CUDA_SUCCESS; }
CUDA_API cuProfilerStart() { return CUDA_SUCCESS; }
// Nothing is logged: what goes wrong is on stderr.
CUDA_API cuLogsRegisterCallback(void*, void*, void** handle) {
  return answer("cuLogsRegisterCallback", [&] {
    if (handle != nullptr) *handle = nullptr;
  });
}
CUDA_API cuLogsUnregisterCallback(void*) { return CUDA_SUCCESS; }
CUDA_API cuProfilerStop() { return CUDA_SUCCESS; }

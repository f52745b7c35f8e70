// SPDX-License-Identifier: Apache-2.0
// The binary interface by which Python's array libraries exchange arrays: DLPack 1, and the table of functions
// (`__dlpack_c_exchange_api__`) by which PyTorch 2.10 and later do it without making Python objects.
#pragma once

#include <cstdint>

namespace imbrex::python::dlpack {

constexpr int32_t kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13;

struct Device {
  int32_t type, id;
};

struct Type {
  uint8_t code, bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  int32_t rank;
  Type dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: dense
  uint64_t byte_offset;
};

struct Version {
  uint32_t major, minor;
};

struct Managed {  // "dltensor", before version 1
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct ManagedVersioned {  // "dltensor_versioned"
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  Tensor tensor;
};
constexpr uint64_t kReadOnly = 1;

struct ExchangeApi {
  Version version;
  ExchangeApi* previous;
  int (*allocate)(Tensor*, ManagedVersioned**, void*, void (*)(void*, const char*, const char*));
  int (*managed_from_object)(void* object, ManagedVersioned** out);
  int (*object_from_managed)(ManagedVersioned*, void** out);
  int (*tensor_from_object)(void* object, Tensor* out);  // borrowed: may be null
  int (*current_stream)(int32_t device_type, int32_t device_id, void** out);
};

}  // namespace imbrex::python::dlpack

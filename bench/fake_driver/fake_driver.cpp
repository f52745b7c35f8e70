// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 that carries nothing out: what a launch costs the host on top of the driver can be counted on a machine
// without a GPU. Memory is the host's; kernels are never run; every other call succeeds (nothing_to_answer.cpp).
//
//   LD_LIBRARY_PATH=build/bench/fake_driver valgrind --tool=callgrind build/bench_launch
#include <cstdint>
#include <cstdlib>
#include <cstring>

extern "C" {

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? 0 : 101;
}
int cuDeviceGetName(char* name, int bytes, int) {
  std::strncpy(name, "fake GPU", static_cast<size_t>(bytes));
  return 0;
}
int cuDeviceGetPCIBusId(char* id, int bytes, int) {
  std::strncpy(id, "0000:00:00.0", static_cast<size_t>(bytes));
  return 0;
}
int cuDeviceGetByPCIBusId(int* device, const char*) {
  *device = 0;
  return 0;
}
int cuDeviceGetAttribute(int* value, int which, int) {
  switch (which) {
    case 16:  // multiprocessors
      *value = 132;
      break;
    case 38:  // bytes of L2
      *value = 50 << 20;
      break;
    case 75:  // compute capability 9.0
      *value = 9;
      break;
    default:
      *value = 0;
  }
  return 0;
}

static int context, object;
static void* current = nullptr;
int cuDevicePrimaryCtxRetain(void** out, int) {
  *out = &context;
  return 0;
}
int cuCtxGetCurrent(void** out) {
  *out = current;
  return 0;
}
int cuCtxSetCurrent(void* which) {
  current = which;
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
int cuCtxGetId(void*, unsigned long long* id) {
  *id = 1;
  return 0;
}
int cuGetErrorName(int, const char** name) {
  *name = "CUDA_ERROR_FAKE";
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "a fake driver's error";
  return 0;
}
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  *address = reinterpret_cast<uint64_t>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  return 0;
}
int cuMemFree_v2(uint64_t address) {
  std::free(reinterpret_cast<void*>(address));
  return 0;
}
/// All memory is the device's own.
int cuPointerGetAttributes(unsigned count, const int* which, void** values, uint64_t) {
  for (unsigned i = 0; i < count; ++i) *static_cast<int*>(values[i]) = which[i] == 2 ? 2 : 0;
  return 0;
}
int cuModuleGetFunction(void** function, void*, const char*) {
  *function = &object;
  return 0;
}
int cuStreamCreate(void** stream, unsigned) {
  *stream = std::malloc(1);
  return 0;
}
int cuStreamGetId(void* stream, unsigned long long* id) {
  *id = reinterpret_cast<uint64_t>(stream);
  return 0;
}
int cuEventCreate(void** event, unsigned) {
  *event = std::malloc(1);
  return 0;
}
int cuStreamIsCapturing(void*, int* status) {
  *status = 0;
  return 0;
}
int cuEventElapsedTime(float* milliseconds, void*, void*) {
  *milliseconds = 1;
  return 0;
}
/// Not the driver's object, but one that has the address where the driver's has it.
int cuTensorMapEncodeTiled(void* out, int type, uint32_t rank, void* address, const uint64_t* dims,
                           const uint64_t*, const uint32_t*, const uint32_t*, int, int swizzle, int, int) {
  uint64_t words[16] = {};
  words[0] = reinterpret_cast<uint64_t>(address);
  words[1] = static_cast<uint64_t>(type) << 32 | static_cast<uint64_t>(swizzle);
  for (uint32_t i = 0; i < rank; ++i) words[2 + i] = dims[i];
  std::memcpy(out, words, sizeof words);
  return 0;
}

}  // extern "C"

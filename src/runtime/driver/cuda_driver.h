// SPDX-License-Identifier: Apache-2.0
// The CUDA driver through dlopen, with prototypes of our own: no toolkit is needed to build or to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace imbrex::runtime {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUlinkState = struct CUlinkState_st*;

// Enumerators of the driver's ABI.
inline constexpr int kErrorInvalidValue = 1, kErrorNotReady = 600, kErrorOutOfResources = 701;
inline constexpr int kMemPinned = 1, kMemOnDevice = 1, kMemReadWrite = 3, kMemHandleIsFile = 1;
inline constexpr int kStreamNonBlocking = 1, kCaptureModeThreadLocal = 1;
inline constexpr int kPointerAttributeMemoryType = 2, kPointerAttributeIsManaged = 8,
                     kPointerAttributeDeviceOrdinal = 9;
inline constexpr unsigned kMemoryTypeHost = 1, kMemoryTypeDevice = 2, kMemoryTypeUnified = 4;
inline constexpr int kDeviceAttributeMaxPitch = 11;
inline constexpr int kDeviceAttributePageableMemoryAccess = 88;
inline constexpr int kDeviceAttributeMultiprocessorCount = 16;
inline constexpr int kDeviceAttributeL2CacheSize = 38;
inline constexpr int kDeviceAttributeComputeCapabilityMajor = 75;
inline constexpr int kDeviceAttributeComputeCapabilityMinor = 76;
inline constexpr int kFunctionAttributeMaxThreads = 0, kFunctionAttributeStaticShared = 1,
                     kFunctionAttributeRegisters = 4;
inline constexpr int kFunctionAttributeMaxDynamicShared = 8;
inline constexpr int kFunctionAttributeNonPortableCluster = 14;
inline constexpr int kJitInfoLogBuffer = 3, kJitInfoLogBytes = 4, kJitErrorLogBuffer = 5,
                     kJitErrorLogBytes = 6;
inline constexpr int kJitLogVerbose = 12, kJitGenerateLineInfo = 13;
inline constexpr int kJitInputPtx = 1;
inline constexpr int kLaunchAttributeClusterDimension = 4;
inline constexpr int kLaunchAttributeProgrammaticStreamSerialization = 6;

struct CUlaunchAttribute {
  int id = 0;
  char pad[4] = {};
  union {
    unsigned cluster[3];
    int programmatic_stream_serialization;
    char bytes[64];
  } value = {};
};

struct CUlaunchConfig {
  unsigned grid[3], block[3];
  unsigned shared_bytes;
  CUstream stream;
  CUlaunchAttribute* attributes;
  unsigned attribute_count;
};

using CUmemHandle = unsigned long long;

/// CUmemAllocationProp.
struct CUmemAllocationProp {
  int type = kMemPinned;
  int handle_types = 0;
  int location_type = kMemOnDevice;
  int location = 0;  // the device
  void* win32_meta_data = nullptr;
  unsigned char flags[8] = {};
};

/// CUmemAccessDesc.
struct CUmemAccessDesc {
  int location_type = kMemOnDevice;
  int location = 0;
  int flags = kMemReadWrite;
};

/// CUDA_MEMCPY2D.
struct CUmemcpy2D {
  size_t from_x = 0, from_y = 0;
  unsigned from_type = 0;
  const void* from_host = nullptr;
  CUdeviceptr from = 0;
  void* from_array = nullptr;
  size_t from_pitch = 0;
  size_t to_x = 0, to_y = 0;
  unsigned to_type = 0;
  void* to_host = nullptr;
  CUdeviceptr to = 0;
  void* to_array = nullptr;
  size_t to_pitch = 0;
  size_t width = 0, height = 0;
};

/// The arguments of cuTensorMapEncodeTiled. Dimensions run innermost first; enumerators are the ABI's.
struct TiledTensorMap {
  int type = 0;
  uint32_t rank = 0;
  CUdeviceptr address = 0;
  uint64_t dims[5] = {};     ///< elements
  uint64_t strides[4] = {};  ///< bytes, of dimensions 1 ... rank - 1
  uint32_t box[5] = {};      ///< elements
  uint32_t element_strides[5] = {1, 1, 1, 1, 1};
  int interleave = 0, swizzle = 0, l2_promotion = 0, oob_fill = 0;
};

/// The driver's functions. One instance per process, which is never unloaded.
struct CudaDriver {
#define DRIVER_FN(name, symbol, parameters) CUresult(*name) parameters = nullptr;
#include "runtime/driver/driver.def"
#undef DRIVER_FN

  /// The driver, or null with the reason in `why_not`.
  static const CudaDriver* find(std::string* why_not);
  /// The driver; DeviceError with the reason and this help where there is none.
  static const CudaDriver& get(const std::string& help = "");
  /// cuTensorMapEncodeTiled; `out` has 128 bytes, aligned to 64.
  CUresult encode(const TiledTensorMap& map, void* out) const {
    return cuTensorMapEncodeTiled(out, map.type, map.rank, reinterpret_cast<void*>(map.address), map.dims,
                                  map.strides, map.box, map.element_strides, map.interleave, map.swizzle,
                                  map.l2_promotion, map.oob_fill);
  }

  /// Throws DeviceError "<what>: NAME (text)" unless `result` is 0.
  void check(CUresult result, const std::string& what) const;
  /// "CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)".
  std::string describe(CUresult result) const;
};

}  // namespace imbrex::runtime

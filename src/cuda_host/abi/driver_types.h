// SPDX-License-Identifier: Apache-2.0
// The binary interface of the CUDA driver API, declared anew: handles, numbers and structure layouts as programs were
// compiled to expect them. tests/cuda_host/abi_test.cpp compares them with the toolkit's headers where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUlinkState = struct CUlinkState_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUuserObject = struct CUuserObject_st*;
using CUhostFn = void (*)(void* data);
using CUoccupancyB2DSize = size_t (*)(int threads);

// The numbers of abi/errors.def that the driver answers with.
enum CUresult : int {
#define ERROR(number, driver_name, runtime_name, text) driver_name = number,
#define RUNTIME_ERROR(number, runtime_name, text)
#include "cuda_host/abi/errors.def"
#undef ERROR
#undef RUNTIME_ERROR
};
using CUstreamCallback = void (*)(CUstream stream, CUresult status, void* data);

namespace imbrex::cuda {

inline constexpr int kDriverVersion = 13000;

enum : int { kMemoryTypeHost = 1, kMemoryTypeDevice = 2, kMemoryTypeArray = 3, kMemoryTypeUnified = 4 };

enum FunctionAttribute : int {
  kFuncMaxThreads = 0,
  kFuncSharedBytes = 1,
  kFuncConstBytes = 2,
  kFuncLocalBytes = 3,
  kFuncRegisters = 4,
  kFuncPtxVersion = 5,
  kFuncBinaryVersion = 6,
  kFuncCacheModeCa = 7,
  kFuncMaxDynamicShared = 8,
  kFuncPreferredCarveout = 9,
  kFuncClusterMustBeSet = 10,
  kFuncClusterWidth = 11,
  kFuncClusterHeight = 12,
  kFuncClusterDepth = 13,
  kFuncNonPortableCluster = 14,
  kFuncClusterScheduling = 15,
  kFuncSharedMemoryMode = 17,  // of CUDA after 13.0
  kFuncAttributeCount = 16,
};

enum PointerAttribute : int {
  kPointerContext = 1,
  kPointerMemoryType = 2,
  kPointerDevicePointer = 3,
  kPointerHostPointer = 4,
  kPointerSyncMemops = 6,
  kPointerBufferId = 7,
  kPointerIsManaged = 8,
  kPointerDeviceOrdinal = 9,
  kPointerIsLegacyIpcCapable = 10,
  kPointerRangeStart = 11,
  kPointerRangeSize = 12,
  kPointerMapped = 13,
  kPointerAllowedHandleTypes = 14,
  kPointerAccessFlags = 16,
  kPointerMemoryPool = 17,
};

enum LaunchAttributeId : int {
  kLaunchAccessPolicyWindow = 1,
  kLaunchCooperative = 2,
  kLaunchSynchronizationPolicy = 3,
  kLaunchClusterDimension = 4,
  kLaunchClusterScheduling = 5,
  kLaunchProgrammaticSerialization = 6,
  kLaunchProgrammaticEvent = 7,
  kLaunchPriority = 8,
  kLaunchMemSyncDomainMap = 9,
  kLaunchMemSyncDomain = 10,
  kLaunchPreferredCluster = 11,
  kLaunchCompletionEvent = 12,
  kLaunchDeviceUpdatableNode = 13,
  kLaunchPreferredCarveout = 14,
};

enum GraphNodeType : int {
  kNodeKernel = 0,
  kNodeMemcpy = 1,
  kNodeMemset = 2,
  kNodeHost = 3,
  kNodeGraph = 4,
  kNodeEmpty = 5,
  kNodeWaitEvent = 6,
  kNodeEventRecord = 7,
  kNodeMemAlloc = 10,
  kNodeMemFree = 11,
};

enum JitOption : int {
  kJitWallTime = 2,
  kJitInfoLogBuffer = 3,
  kJitInfoLogBytes = 4,
  kJitErrorLogBuffer = 5,
  kJitErrorLogBytes = 6,
};
enum JitInput : int { kJitInputCubin = 0, kJitInputPtx = 1, kJitInputFatBinary = 2 };

}  // namespace imbrex::cuda

struct CUuuid {
  unsigned char bytes[16];
};

struct CUlaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int cooperative;
    struct {
      CUevent event;
      int flags;
      int trigger_at_block_start;
    } programmatic_event;
    struct {
      CUevent event;
      int flags;
    } completion_event;
  } value;
};

struct CUlaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  CUstream stream;
  CUlaunchAttribute* attributes;
  unsigned attribute_count;
};

/// One side of a copy in two dimensions: a pitched stretch of host or device memory.
struct CudaCopySide2D {
  size_t x_bytes, y;
  int memory_type;
  void* host;
  CUdeviceptr device;
  void* array;
  size_t pitch;
};
struct CUDA_MEMCPY2D {
  CudaCopySide2D source, destination;
  size_t width_bytes, height;
};

struct CudaCopySide3D {
  size_t x_bytes, y, z, level;
  int memory_type;
  void* host;
  CUdeviceptr device;
  void* array;
  void* context;  // of cuMemcpy3DPeer; reserved in cuMemcpy3D
  size_t pitch, height;
};
struct CUDA_MEMCPY3D {
  CudaCopySide3D source, destination;
  size_t width_bytes, height, depth;
};

struct CUDA_KERNEL_NODE_PARAMS {
  CUfunction function;
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  void** parameters;
  void** extra;
  CUkernel kernel;  // from version 2 on
  CUcontext context;
};
struct CUDA_MEMSET_NODE_PARAMS {
  CUdeviceptr to;
  size_t pitch;
  unsigned value, element_bytes;
  size_t width, height;
};
struct CUDA_HOST_NODE_PARAMS {
  CUhostFn function;
  void* data;
};

struct CUmemLocation {
  int type, id;
};
/// When the source of a copy in a batch is read, as against the stream's other work.
enum SourceOrder : int { kSourceInOrder = 1, kSourceDuringCall = 2, kSourceAnyTime = 3 };
struct CUmemcpyAttributes {
  int source_order;
  CUmemLocation source_hint, destination_hint;
  unsigned flags;
};
enum CopyOperandType : int { kOperandPointer = 1, kOperandArray = 2 };
struct CudaCopyOperand3D {
  int type;
  union {
    struct {
      CUdeviceptr address;
      size_t row_length, layer_height;
      CUmemLocation hint;
    } pointer;
    struct {
      void* handle;
      size_t x, y, z;
    } array;
  };
};
struct CUDA_MEMCPY3D_BATCH_OP {
  CudaCopyOperand3D source, destination;
  struct {
    size_t width, height, depth;
  } extent;
  int source_order;
  unsigned flags;
};
struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;
};
struct CUmemPoolProps {
  int allocation_type, handle_types;
  CUmemLocation location;
  void* security_attributes;
  size_t max_bytes;
  unsigned short usage;
  unsigned char reserved[54];
};
struct CUmemAllocationProp {
  int type, handle_types;
  CUmemLocation location;
  void* metadata;
  unsigned char flags[8];
};
struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps pool;
  const CUmemAccessDesc* access;
  size_t access_count;
  size_t bytes;
  CUdeviceptr address;
};
/// A node of any type: the number of the type (CUgraphNodeType), and what is its own.
struct CUgraphNodeParams {
  int type, reserved[3];
  union {
    CUDA_KERNEL_NODE_PARAMS kernel;
    struct {
      int flags, reserved;
      CUcontext context;
      CUDA_MEMCPY3D copy;
    } memcpy;
    CUDA_MEMSET_NODE_PARAMS memset;
    CUDA_HOST_NODE_PARAMS host;
    CUgraph graph;
    CUevent event;
    CUDA_MEM_ALLOC_NODE_PARAMS memory;
    CUdeviceptr freed;
    long long words[29];
  };
  long long reserved_at_end;
};
struct CUDA_GRAPH_INSTANTIATE_PARAMS {
  unsigned long long flags;
  CUstream upload_stream;
  CUgraphNode error_node;
  int result;
};
struct CUgraphExecUpdateResultInfo {
  int result;
  CUgraphNode error_node, error_from_node;
};
struct CUipcMemHandle {
  char bytes[64];
};

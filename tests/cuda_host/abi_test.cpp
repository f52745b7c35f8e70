// SPDX-License-Identifier: Apache-2.0
// Our declarations of CUDA's binary interface against the toolkit's headers, where there are some. All of it is
// decided by the compiler; the test only says that it was.
#include <cstddef>
#include <cstdint>

#define IMBREX_CUDART_MAJOR 13
namespace ours {
#include "cuda_host/abi/device_numbers.h"
#include "cuda_host/abi/driver_types.h"
#include "cuda_host/abi/runtime_types.h"
}  // namespace ours

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace {

#define SAME_SIZE(mine, theirs) static_assert(sizeof(ours::mine) == sizeof(theirs))
#define SAME_PLACE(mine, member, theirs, their_member) \
  static_assert(offsetof(ours::mine, member) == offsetof(theirs, their_member))

#define ERROR(number, driver_name, runtime_name, text) \
  static_assert(static_cast<int>(::driver_name) == number);
#define RUNTIME_ERROR(number, runtime_name, text) static_assert(static_cast<int>(::runtime_name) == number);
#include "cuda_host/abi/errors.def"
#undef ERROR
#undef RUNTIME_ERROR

SAME_SIZE(CUlaunchAttribute, CUlaunchAttribute);
SAME_PLACE(CUlaunchAttribute, value, CUlaunchAttribute, value);
SAME_SIZE(CUlaunchConfig, CUlaunchConfig);
SAME_PLACE(CUlaunchConfig, stream, CUlaunchConfig, hStream);
SAME_PLACE(CUlaunchConfig, attribute_count, CUlaunchConfig, numAttrs);
SAME_SIZE(CUDA_MEMCPY2D, CUDA_MEMCPY2D);
SAME_PLACE(CUDA_MEMCPY2D, destination, CUDA_MEMCPY2D, dstXInBytes);
SAME_PLACE(CUDA_MEMCPY2D, width_bytes, CUDA_MEMCPY2D, WidthInBytes);
SAME_SIZE(CUDA_MEMCPY3D, CUDA_MEMCPY3D);
SAME_PLACE(CUDA_MEMCPY3D, destination, CUDA_MEMCPY3D, dstXInBytes);
SAME_PLACE(CUDA_MEMCPY3D, width_bytes, CUDA_MEMCPY3D, WidthInBytes);
SAME_SIZE(CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS);
SAME_PLACE(CUDA_KERNEL_NODE_PARAMS, parameters, CUDA_KERNEL_NODE_PARAMS, kernelParams);
SAME_PLACE(CUDA_KERNEL_NODE_PARAMS, kernel, CUDA_KERNEL_NODE_PARAMS, kern);
SAME_SIZE(CUDA_MEMSET_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS);
SAME_PLACE(CUDA_MEMSET_NODE_PARAMS, width, CUDA_MEMSET_NODE_PARAMS, width);
SAME_SIZE(CUDA_HOST_NODE_PARAMS, CUDA_HOST_NODE_PARAMS);
SAME_SIZE(CUmemcpyAttributes, CUmemcpyAttributes);
SAME_SIZE(CudaCopyOperand3D, CUmemcpy3DOperand);
SAME_PLACE(CudaCopyOperand3D, pointer.layer_height, CUmemcpy3DOperand, op.ptr.layerHeight);
SAME_PLACE(CudaCopyOperand3D, array.z, CUmemcpy3DOperand, op.array.offset.z);
SAME_SIZE(CUDA_MEMCPY3D_BATCH_OP, CUDA_MEMCPY3D_BATCH_OP);
SAME_PLACE(CUDA_MEMCPY3D_BATCH_OP, extent, CUDA_MEMCPY3D_BATCH_OP, extent);
SAME_PLACE(CUDA_MEMCPY3D_BATCH_OP, source_order, CUDA_MEMCPY3D_BATCH_OP, srcAccessOrder);
SAME_SIZE(CUmemPoolProps, CUmemPoolProps);
SAME_SIZE(CUmemAccessDesc, CUmemAccessDesc);
SAME_SIZE(CUgraphNodeParams, CUgraphNodeParams);
SAME_PLACE(CUgraphNodeParams, kernel, CUgraphNodeParams, kernel);
SAME_PLACE(CUgraphNodeParams, memcpy.copy, CUgraphNodeParams, memcpy.copyParams);
SAME_SIZE(cudaGraphNodeParams, cudaGraphNodeParams);
SAME_PLACE(cudaGraphNodeParams, kernel, cudaGraphNodeParams, kernel);
SAME_PLACE(cudaGraphNodeParams, memcpy.copy, cudaGraphNodeParams, memcpy.copyParams);
SAME_SIZE(CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS);
SAME_PLACE(CUDA_MEM_ALLOC_NODE_PARAMS, address, CUDA_MEM_ALLOC_NODE_PARAMS, dptr);
SAME_SIZE(CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_GRAPH_INSTANTIATE_PARAMS);
SAME_SIZE(CUgraphExecUpdateResultInfo, CUgraphExecUpdateResultInfo);

SAME_SIZE(cudaLaunchConfig_t, cudaLaunchConfig_t);
SAME_PLACE(cudaLaunchConfig_t, dynamic_shared_bytes, cudaLaunchConfig_t, dynamicSmemBytes);
SAME_PLACE(cudaLaunchConfig_t, attributes, cudaLaunchConfig_t, attrs);
SAME_SIZE(cudaMemcpy3DParms, cudaMemcpy3DParms);
SAME_PLACE(cudaMemcpy3DParms, target, cudaMemcpy3DParms, dstPtr);
SAME_PLACE(cudaMemcpy3DParms, kind, cudaMemcpy3DParms, kind);
SAME_SIZE(cudaFuncAttributes, cudaFuncAttributes);
SAME_PLACE(cudaFuncAttributes, non_portable_cluster, cudaFuncAttributes, nonPortableClusterSizeAllowed);
SAME_SIZE(cudaKernelNodeParams, cudaKernelNodeParams);
SAME_PLACE(cudaKernelNodeParams, parameters, cudaKernelNodeParams, kernelParams);
SAME_SIZE(cudaMemsetParams, cudaMemsetParams);
#if CUDART_VERSION >= 13000
SAME_SIZE(cudaPointerAttributes, cudaPointerAttributes);
SAME_SIZE(cudaDeviceProp, cudaDeviceProp);
SAME_PLACE(cudaDeviceProp, total_global_memory, cudaDeviceProp, totalGlobalMem);
SAME_PLACE(cudaDeviceProp, multiprocessors, cudaDeviceProp, multiProcessorCount);
SAME_PLACE(cudaDeviceProp, surface_alignment, cudaDeviceProp, surfaceAlignment);
SAME_PLACE(cudaDeviceProp, l2_bytes, cudaDeviceProp, l2CacheSize);
SAME_PLACE(cudaDeviceProp, cooperative_launch, cudaDeviceProp, cooperativeLaunch);
SAME_PLACE(cudaDeviceProp, shared_per_block_opt_in, cudaDeviceProp, sharedMemPerBlockOptin);
SAME_PLACE(cudaDeviceProp, memory_pools, cudaDeviceProp, memoryPoolsSupported);
SAME_PLACE(cudaDeviceProp, cluster_launch, cudaDeviceProp, clusterLaunch);
SAME_PLACE(cudaDeviceProp, reserved, cudaDeviceProp, reserved);
#endif

namespace own = ours::imbrex::cuda;
#define SAME_NUMBER(mine, theirs) static_assert(static_cast<int>(own::mine) == static_cast<int>(theirs))
SAME_NUMBER(kDeviceMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_NUMBER(kDeviceMaxSharedPerBlockOptIn, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME_NUMBER(kDeviceClusterLaunch, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);
SAME_NUMBER(kDeviceTensorMapAccess, CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED);
SAME_NUMBER(kFuncMaxDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_NUMBER(kFuncNonPortableCluster, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
SAME_NUMBER(kPointerMemoryPool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
SAME_NUMBER(kPointerIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME_NUMBER(kLaunchClusterDimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME_NUMBER(kLaunchCooperative, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME_NUMBER(kNodeMemFree, CU_GRAPH_NODE_TYPE_MEM_FREE);

TEST(Abi, AgreesWithTheToolkitsHeaders) { SUCCEED(); }

}  // namespace

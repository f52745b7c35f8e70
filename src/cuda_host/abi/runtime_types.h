// SPDX-License-Identifier: Apache-2.0
// The binary interface of the CUDA runtime API, declared anew (see driver_types.h). Where CUDA 12 and 13 differ,
// IMBREX_CUDART_MAJOR says which of them is built.
#pragma once

#include "cuda_host/abi/driver_types.h"

enum cudaError_t : int {
#define ERROR(number, driver_name, runtime_name, text) runtime_name##_##number = number,
#define RUNTIME_ERROR(number, runtime_name, text) runtime_name##_##number = number,
#include "cuda_host/abi/errors.def"
#undef ERROR
#undef RUNTIME_ERROR
};

struct CudaDim3 {
  unsigned x, y, z;
};
struct cudaLaunchConfig_t {
  CudaDim3 grid, block;
  size_t dynamic_shared_bytes;
  CUstream stream;
  CUlaunchAttribute* attributes;
  unsigned attribute_count;
};
/// Of a texture's or a surface's element.
struct cudaChannelFormatDesc {
  int x, y, z, w, kind;
};
struct cudaExtent {
  size_t width, height, depth;
};
struct cudaPos {
  size_t x, y, z;
};
struct cudaPitchedPtr {
  void* pointer;
  size_t pitch, width, height;
};
struct cudaMemcpy3DParms {
  void* source_array;
  cudaPos source_at;
  cudaPitchedPtr source;
  void* target_array;
  cudaPos target_at;
  cudaPitchedPtr target;
  cudaExtent extent;
  int kind;
};
struct cudaPointerAttributes {
  int type, device;
  void* device_pointer;
  void* host_pointer;
#if IMBREX_CUDART_MAJOR >= 13
  long reserved[8];
#endif
};
struct cudaFuncAttributes {
  size_t shared_bytes, const_bytes, local_bytes;
  int max_threads, registers, ptx_version, binary_version, cache_mode_ca, max_dynamic_shared,
      preferred_carveout;
  int cluster_must_be_set, cluster_width, cluster_height, cluster_depth, cluster_scheduling,
      non_portable_cluster;
  int reserved[16];
};
struct cudaKernelNodeParams {
  void* function;
  CudaDim3 grid, block;
  unsigned shared_bytes;
  void** parameters;
  void** extra;
};
struct cudaMemsetParams {
  void* to;
  size_t pitch;
  unsigned value, element_bytes;
  size_t width, height;
};

/// A node of any type, as CUgraphNodeParams.
struct cudaGraphNodeParams {
  int type, reserved[3];
  union {
    cudaKernelNodeParams kernel;
    struct {
      int flags, reserved[3];
      cudaMemcpy3DParms copy;
    } memcpy;
    cudaMemsetParams memset;
    long long words[29];
  };
  long long reserved_at_end;
};

struct cudaDeviceProp {
  char name[256];
  CUuuid uuid;
  char luid[8];
  unsigned luid_mask;
  size_t total_global_memory, shared_per_block;
  int registers_per_block, warp_size;
  size_t max_pitch;
  int max_threads_per_block, max_block[3], max_grid[3];
#if IMBREX_CUDART_MAJOR < 13
  int clock_kilohertz;
#endif
  size_t total_constant_memory;
  int major, minor;
  size_t texture_alignment, texture_pitch_alignment;
#if IMBREX_CUDART_MAJOR < 13
  int device_overlap;
#endif
  int multiprocessors;
#if IMBREX_CUDART_MAJOR < 13
  int kernel_timeout;
#endif
  int integrated, can_map_host_memory;
#if IMBREX_CUDART_MAJOR < 13
  int compute_mode;
#endif
  int textures[25];  // largest textures of each kind
  int surfaces[14];  // and surfaces
  size_t surface_alignment;
  int concurrent_kernels, ecc, pci_bus, pci_device, pci_domain, tcc, async_engines, unified_addressing;
#if IMBREX_CUDART_MAJOR < 13
  int memory_clock_kilohertz;
#endif
  int memory_bus_bits, l2_bytes, persisting_l2_bytes, max_threads_per_multiprocessor, stream_priorities,
      global_l1, local_l1;
  size_t shared_per_multiprocessor;
  int registers_per_multiprocessor, managed_memory, multi_gpu_board, multi_gpu_board_group,
      host_native_atomics;
#if IMBREX_CUDART_MAJOR < 13
  int single_to_double_ratio;
#endif
  int pageable_access, concurrent_managed_access, compute_preemption, host_pointer_for_registered,
      cooperative_launch;
#if IMBREX_CUDART_MAJOR < 13
  int cooperative_multi_device;
#endif
  size_t shared_per_block_opt_in;
  int pageable_by_host_tables, direct_managed_from_host, max_blocks_per_multiprocessor,
      max_access_policy_window;
  size_t reserved_shared_per_block;
  int host_register, sparse_arrays, host_register_read_only, timeline_semaphores, memory_pools, rdma;
  unsigned rdma_flush_options;
  int rdma_ordering;
  unsigned pool_handle_types;
  int deferred_mapping, ipc_events, cluster_launch, unified_function_pointers;
#if IMBREX_CUDART_MAJOR >= 13
  int numa_config, numa_id, mps, host_numa_id;
  unsigned pci_device_id, pci_subsystem_id;
  int host_numa_multinode_ipc;
  int reserved[56];
#else
  int reserved_12[2], reserved_11[1], reserved[60];
#endif
};

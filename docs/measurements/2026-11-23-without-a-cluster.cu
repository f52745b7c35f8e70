// SPDX-License-Identifier: Apache-2.0
// Which instructions of clusters a launch without a cluster attribute may execute: cluster_ops OPERATION LAUNCH prints
// one line. Launches: none, attribute1 (clusters of one CTA), attribute2, required (.reqnctapercluster 1).
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

enum Operation {
  kBulkSharedToCluster,   // cp.async.bulk.shared::cluster.shared::cta, own CTA by its plain address
  kBulkSharedToMapped,    // the same, by mapa of the own rank
  kStAsync,               // st.async, own CTA
  kStAsyncMapped,
  kRedAsync,
  kBulkGlobalToCluster,   // cp.async.bulk.shared::cluster.global
  kBulkGlobalMapped,
  kBulkGlobalMulticast,   // with .multicast::cluster of its own CTA
  kBulkGlobalToCta,       // cp.async.bulk.shared::cta.global
  kBulkReduce,            // cp.reduce.async.bulk.shared::cluster.shared::cta
  kBulkStore,             // cp.async.bulk.global.shared::cta
  kLoadCluster,           // ld.shared::cluster by mapa
  kStoreCluster,
  kAtomCluster,
  kArriveCluster,         // mbarrier.arrive.shared::cluster by mapa
  kExpectCluster,         // mbarrier.expect_tx + complete_tx, shared::cluster
  kBarrierCluster,        // barrier.cluster.arrive and wait
  kMapaGeneric,           // ld by the generic address of mapa
  kSpecials,              // %cluster_nctaid.x, %cluster_ctarank, %is_explicit_cluster
  kOperations
};
static const char* const kNames[kOperations] = {
    "cp.async.bulk.shared::cluster.shared::cta", "cp.async.bulk.shared::cluster.shared::cta(mapa)", "st.async",
    "st.async(mapa)", "red.async", "cp.async.bulk.shared::cluster.global", "cp.async.bulk.shared::cluster.global(mapa)",
    "cp.async.bulk.shared::cluster.global.multicast", "cp.async.bulk.shared::cta.global",
    "cp.reduce.async.bulk.shared::cluster.shared::cta", "cp.async.bulk.global.shared::cta", "ld.shared::cluster",
    "st.shared::cluster", "atom.shared::cluster", "mbarrier.arrive.shared::cluster", "mbarrier.expect_tx.shared::cluster",
    "barrier.cluster", "ld(mapa generic)", "special registers"};

__device__ uint32_t address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ uint32_t mapped(uint32_t a) {
  uint32_t out;
  asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(out) : "r"(a));
  return out;
}

template <int kOp>
__device__ __forceinline__ void body(uint32_t* memory, uint32_t* out) {
  __shared__ alignas(128) uint32_t from[32], to[32];
  __shared__ alignas(8) uint64_t barrier;
  const uint32_t bar = address(&barrier);
  if (threadIdx.x < 32) from[threadIdx.x] = 100 + threadIdx.x, to[threadIdx.x] = 1;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bar));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("fence.proxy.async;");
  }
  __syncthreads();
  uint32_t result = 0, more = 0;
  bool waits = false;
  if (threadIdx.x == 0) {
    const uint32_t s = address(from), d = address(to);
    const auto expect = [&](int bytes) {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes));
      waits = true;
    };
    if constexpr (kOp == kBulkSharedToCluster || kOp == kBulkSharedToMapped) {
      expect(128);
      const uint32_t dd = kOp == kBulkSharedToMapped ? mapped(d) : d, bb = kOp == kBulkSharedToMapped ? mapped(bar) : bar;
      asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(dd),
                   "r"(s), "r"(bb));
    } else if constexpr (kOp == kStAsync || kOp == kStAsyncMapped) {
      expect(4);
      const uint32_t dd = kOp == kStAsyncMapped ? mapped(d) : d, bb = kOp == kStAsyncMapped ? mapped(bar) : bar;
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(dd), "r"(100), "r"(bb));
    } else if constexpr (kOp == kRedAsync) {
      expect(4);
      asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" ::"r"(d),
                   "r"(99), "r"(bar));
    } else if constexpr (kOp == kBulkGlobalToCluster || kOp == kBulkGlobalMapped) {
      expect(128);
      const uint32_t dd = kOp == kBulkGlobalMapped ? mapped(d) : d, bb = kOp == kBulkGlobalMapped ? mapped(bar) : bar;
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(dd),
                   "l"(memory), "r"(bb));
    } else if constexpr (kOp == kBulkGlobalMulticast) {
      expect(128);
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 128, [%2], %3;" ::"r"(
              d),
          "l"(memory), "r"(bar), "h"(static_cast<uint16_t>(1)));
    } else if constexpr (kOp == kBulkGlobalToCta) {
      expect(128);
      asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(d),
                   "l"(memory), "r"(bar));
    } else if constexpr (kOp == kBulkReduce) {
      expect(128);
      asm volatile(
          "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%0], [%1], 128, [%2];" ::"r"(
              d),
          "r"(s), "r"(bar));
    } else if constexpr (kOp == kBulkStore) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128;" ::"l"(memory), "r"(s));
      asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;");
      to[0] = 100;
    } else if constexpr (kOp == kLoadCluster) {
      asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(result) : "r"(mapped(s)));
      to[0] = result;
    } else if constexpr (kOp == kStoreCluster) {
      asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(mapped(d)), "r"(100) : "memory");
    } else if constexpr (kOp == kAtomCluster) {
      asm volatile("atom.shared::cluster.add.u32 %0, [%1], %2;" : "=r"(more) : "r"(mapped(d)), "r"(99) : "memory");
    } else if constexpr (kOp == kArriveCluster) {
      asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(mapped(bar)));
      to[0] = 100;
      waits = true;
    } else if constexpr (kOp == kExpectCluster) {
      asm volatile("mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%0], 16;" ::"r"(mapped(bar)));
      asm volatile("mbarrier.complete_tx.shared::cluster.relaxed.cluster.b64 [%0], 16;" ::"r"(mapped(bar)));
      expect(0);
      to[0] = 100;
    } else if constexpr (kOp == kMapaGeneric) {
      uint64_t generic;
      asm volatile("mapa.u64 %0, %1, 0;" : "=l"(generic) : "l"(&from[0]));
      to[0] = *reinterpret_cast<volatile uint32_t*>(generic);
    } else if constexpr (kOp == kSpecials) {
      uint32_t n, rank, is_explicit;
      asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
      asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
      asm volatile("{ .reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p; }" : "=r"(is_explicit));
      to[0] = 100;
      more = n * 100 + rank * 10 + is_explicit;
    }
    if (waits) {
      uint32_t done = 0;
      for (int i = 0; i < 1000000 && !done; ++i)
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(bar)
            : "memory");
      more += done ? 0 : 9000000;
    }
  }
  if constexpr (kOp == kBarrierCluster) {
    asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
    to[0] = 100;
  }
  __syncthreads();
  if (threadIdx.x == 0 && blockIdx.x == 0) out[0] = *const_cast<volatile uint32_t*>(to), out[1] = more;
  // Nobody leaves while another CTA of a pair may still write to it.
  for (int i = 0; i < 20; ++i) __nanosleep(1000);
}
template <int kOp>
__global__ void kernel(uint32_t* memory, uint32_t* out) {
  body<kOp>(memory, out);
}
template <int kOp>
__global__ void __cluster_dims__(1, 1, 1) kernel_required(uint32_t* memory, uint32_t* out) {
  body<kOp>(memory, out);
}

using Kernel = void (*)(uint32_t*, uint32_t*);
template <int kOp>
Kernel find(int which, bool required) {
  if constexpr (kOp < kOperations) {
    if (which == kOp) return required ? &kernel_required<kOp> : &kernel<kOp>;
    return find<kOp + 1>(which, required);
  }
  return nullptr;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int which = std::atoi(argv[1]);
  if (which >= kOperations) return 2;
  const char* launch = argv[2];
  uint32_t *memory = nullptr, *out = nullptr;
  uint32_t start[32], end[2] = {};
  for (int i = 0; i < 32; ++i) start[i] = 100 + i;
  cudaMalloc(&memory, sizeof start);
  cudaMalloc(&out, sizeof end);
  cudaMemcpy(memory, start, sizeof start, cudaMemcpyHostToDevice);
  cudaMemset(out, 0, sizeof end);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(2);
  config.blockDim = dim3(32);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {std::strcmp(launch, "attribute2") == 0 ? 2u : 1u, 1, 1};
  if (std::strncmp(launch, "attribute", 9) == 0) config.attrs = &attribute, config.numAttrs = 1;
  void* arguments[] = {&memory, &out};
  cudaError_t error = cudaLaunchKernelExC(
      &config, reinterpret_cast<const void*>(find<0>(which, std::strcmp(launch, "required") == 0)), arguments);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) error = cudaMemcpy(end, out, sizeof end, cudaMemcpyDeviceToHost);
  std::printf("%-52s %-11s %-28s word %u, %u\n", kNames[which], launch, cudaGetErrorName(error), end[0], end[1]);
  return 0;
}

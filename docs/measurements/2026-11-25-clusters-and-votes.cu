// SPDX-License-Identifier: Apache-2.0
// What an H200 answers: clusters at once, batch copies, and reads before a vote against writes behind it.
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

template <int Regs>
__global__ void __launch_bounds__(1024) plain(int* p) {
  if (p) *p = 1;
}
__global__ void __launch_bounds__(256) wide(float* p, int n) {
  float a[96];
  for (int i = 0; i < 96; ++i) a[i] = p[i * n];
  for (int k = 0; k < n; ++k)
    for (int i = 0; i < 96; ++i) a[i] = a[i] * a[(i * 7 + 1) % 96] + p[k];
  for (int i = 0; i < 96; ++i) p[i * n + threadIdx.x] = a[i];
}

static int clusters_of(const void* f, int size_x, int size_y, int threads, int smem, int grid_clusters,
                       cudaError_t* e, int* potential) {
  cudaFuncSetAttribute(f, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
  cudaLaunchConfig_t c{};
  c.gridDim = dim3(size_x * grid_clusters, size_y);
  c.blockDim = dim3(threads);
  c.dynamicSmemBytes = smem;
  cudaLaunchAttribute a[1];
  a[0].id = cudaLaunchAttributeClusterDimension;
  a[0].val.clusterDim = {unsigned(size_x), unsigned(size_y), 1};
  c.attrs = a;
  c.numAttrs = 1;
  int n = -1;
  *e = cudaOccupancyMaxActiveClusters(&n, f, &c);
  cudaOccupancyMaxPotentialClusterSize(potential, f, &c);
  return n;
}

__global__ void war(unsigned* wrong, unsigned long long* done, int rounds, int mode) {
  extern __shared__ unsigned s[];
  unsigned* mine = s + (threadIdx.x / 32) * 1024;
  const unsigned lane = threadIdx.x % 32;
  const unsigned at = (unsigned)__cvta_generic_to_shared(mine + lane * ((mode & 1) ? 32 : 1));
  unsigned expected = 0, bad = 0;
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(0));
  __syncwarp();
  for (int r = 1; r <= rounds; ++r) {
    const unsigned victim = (r * 7) % 32, writer = (victim + 1 + (r * 13) % 31) % 32;
    unsigned v;
    if ((mode & 2) && ((lane ^ r) & 3) == 0) {
      for (int d = 0; d < (r & 15); ++d) asm volatile("");
      asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    } else {
      asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    }
    unsigned any;
    if (mode & 4)
      asm volatile("shfl.sync.idx.b32 %0, %1, 3, 31, 0xffffffff;" : "=r"(any) : "r"(r));
    else
      asm volatile(
          "{.reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.any.pred q, p, 0xffffffff; selp.u32 %0, 1, 0, "
          "q;}"
          : "=r"(any)
          : "r"(r));
    const unsigned target = (unsigned)__cvta_generic_to_shared(mine + victim * ((mode & 1) ? 32 : 1));
    if (lane == writer && any) asm volatile("st.shared.u32 [%0], %1;" ::"r"(target), "r"(r));
    bad += v != expected;
    if (lane == victim) expected = r;
    __syncwarp();
  }
  if (bad) atomicAdd(wrong, bad);
  atomicAdd(done, (unsigned long long)rounds);
}

#define TELL(call)                                               \
  do {                                                           \
    cudaError_t e_ = (call);                                     \
    printf("%s: %d %s\n", #call, (int)e_, cudaGetErrorName(e_)); \
    (void)cudaGetLastError();                                    \
    fflush(stdout);                                              \
  } while (0)

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 200000, ctas = argc > 1 ? 2 : 264;
  cudaDeviceProp prop;
  cudaGetDeviceProperties(&prop, 0);
  printf("%s, %d SMs\n", prop.name, prop.multiProcessorCount);
  const int sizes[][2] = {{1, 1}, {2, 1},  {3, 1},  {4, 1},  {5, 1},  {6, 1}, {7, 1}, {8, 1},
                          {9, 1}, {10, 1}, {12, 1}, {14, 1}, {16, 1}, {2, 2}, {4, 2}};
  for (auto& z : sizes)
    for (int threads : {32, 128, 256, 384, 512, 1024})
      for (int smem : {0, 20000, 48 << 10, 72 << 10, 100 << 10, 113 << 10, 140 << 10, 227 << 10}) {
        cudaError_t e;
        int pot = -1;
        int n = clusters_of((void*)plain<0>, z[0], z[1], threads, smem, 64, &e, &pot);
        printf("plain %dx%d threads %d smem %d: %d (%d) potential %d\n", z[0], z[1], threads, smem, n, (int)e,
               pot);
      }
  cudaFuncAttributes fa;
  cudaFuncGetAttributes(&fa, wide);
  for (auto& z : sizes) {
    cudaError_t e;
    int pot = -1;
    int n = clusters_of((void*)wide, z[0], z[1], 256, 0, 64, &e, &pot);
    printf("wide(%d regs) %dx%d threads 256 smem 0: %d (%d) potential %d\n", fa.numRegs, z[0], z[1], n,
           (int)e, pot);
  }
  fflush(stdout);
  (void)cudaGetLastError();
  unsigned* wrong;
  unsigned long long* done;
  cudaMallocManaged(&wrong, 4);
  cudaMallocManaged(&done, 8);
  cudaFuncSetAttribute(war, cudaFuncAttributeMaxDynamicSharedMemorySize, 131072);
  for (int mode = 0; mode < 8; ++mode) {
    *wrong = 0;
    *done = 0;
    war<<<ctas, 512, 65536>>>(wrong, done, rounds, mode);
    cudaError_t e = cudaDeviceSynchronize();
    printf("war mode %d (%s%s%s): %u wrong of %llu reads, %d\n", mode, mode & 1 ? "conflicts " : "",
           mode & 2 ? "diverged " : "", mode & 4 ? "shfl" : "vote", *wrong, *done, (int)e);
    fflush(stdout);
  }
  // Batch copies.
  char *a, *b;
  cudaMalloc(&a, 4096);
  cudaMalloc(&b, 4096);
  char host[64];
  memset(host, 7, sizeof host);
  cudaStream_t st;
  cudaStreamCreate(&st);
  void* dst[2] = {a, a + 64};
  const void* src[2] = {b, host};
  size_t bytes[2] = {64, 64};
  cudaMemcpyAttributes at[2] = {};
  at[0].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  at[1] = at[0];
  size_t ix[2] = {0, 1};
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 1, st));
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 2, st));
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 1, nullptr));
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 1, cudaStreamLegacy));
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 1, cudaStreamPerThread));
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 0, at, ix, 1, st));
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 0, st));
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, nullptr, nullptr, 0, st));
  ix[0] = 1;
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 1, st));
  ix[0] = 0;
  ix[1] = 2;
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 2, st));
  ix[1] = 0;
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 2, st));
  ix[1] = 1;
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 3, st));
  at[0].srcAccessOrder = (cudaMemcpySrcAccessOrder)0;
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 1, st));
  at[0].srcAccessOrder = (cudaMemcpySrcAccessOrder)4;
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 1, st));
  at[0].srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 1, st));
  at[0].srcAccessOrder = cudaMemcpySrcAccessOrderAny;
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 1, st));
  at[0].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  at[0].flags = 2;
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 1, st));
  at[0].flags = 1;
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 1, st));
  at[0].flags = 0;
  bytes[1] = 0;
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 1, st));
  bytes[1] = 64;
  src[1] = nullptr;
  TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 1, st));
  src[1] = host;
  TELL(cudaMemcpyBatchAsync(nullptr, src, bytes, 2, at, ix, 1, st));
  void* dh[1] = {host};
  const void* sh[1] = {host + 32};
  size_t n32[1] = {32};
  TELL(cudaMemcpyBatchAsync(dh, sh, n32, 1, at, ix, 1, st));
  cudaMemcpy3DBatchOp op{};
  op.src.type = op.dst.type = cudaMemcpyOperandTypePointer;
  op.src.op.ptr.ptr = b;
  op.dst.op.ptr.ptr = a;
  op.extent = {16, 4, 2};
  op.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  TELL(cudaMemcpy3DBatchAsync(1, &op, 0, st));
  TELL(cudaMemcpy3DBatchAsync(1, &op, 0, nullptr));
  TELL(cudaMemcpy3DBatchAsync(0, &op, 0, st));
  TELL(cudaMemcpy3DBatchAsync(1, &op, 1, st));
  op.extent.depth = 0;
  TELL(cudaMemcpy3DBatchAsync(1, &op, 0, st));
  op.extent.depth = 2;
  op.src.op.ptr.rowLength = 8;
  TELL(cudaMemcpy3DBatchAsync(1, &op, 0, st));
  op.src.op.ptr.rowLength = 32;
  TELL(cudaMemcpy3DBatchAsync(1, &op, 0, st));
  op.src.op.ptr.layerHeight = 2;
  TELL(cudaMemcpy3DBatchAsync(1, &op, 0, st));
  op.src.op.ptr.layerHeight = 0;
  op.srcAccessOrder = (cudaMemcpySrcAccessOrder)0;
  TELL(cudaMemcpy3DBatchAsync(1, &op, 0, st));
  op.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  op.src.type = (cudaMemcpy3DOperandType)0;
  TELL(cudaMemcpy3DBatchAsync(1, &op, 0, st));
  op.src.type = cudaMemcpyOperandTypePointer;
  // In a capture.
  for (int which = 0; which < 2; ++which) {
    cudaGraph_t g = nullptr;
    TELL(cudaStreamBeginCapture(st, cudaStreamCaptureModeThreadLocal));
    if (which == 0) {
      dst[1] = a + 64;
      src[1] = b + 64;
      TELL(cudaMemcpyBatchAsync(dst, src, bytes, 2, at, ix, 1, st));
    } else
      TELL(cudaMemcpy3DBatchAsync(1, &op, 0, st));
    TELL(cudaStreamEndCapture(st, &g));
    size_t nodes = 0, edges = 0;
    if (g != nullptr) {
      cudaGraphGetNodes(g, nullptr, &nodes);
      cudaGraphGetEdges(g, nullptr, nullptr, nullptr, &edges);
      printf("%zu nodes, %zu edges\n", nodes, edges);
      std::vector<cudaGraphNode_t> all(nodes);
      cudaGraphGetNodes(g, all.data(), &nodes);
      for (auto n : all) {
        cudaGraphNodeType t;
        cudaGraphNodeGetType(n, &t);
        printf("node type %d\n", (int)t);
      }
    }
  }
  TELL(cudaDeviceSynchronize());
}

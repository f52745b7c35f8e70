// SPDX-License-Identifier: Apache-2.0
// Times the kernels of tests/foreign, which Triton and nvcc compiled: the rows that the timeline's predictions are held to
// and no number of the model was fitted to. It uses CUDA's driver API alone, so that one program measures on a GPU and,
// under `imbrex run --timeline`, is predicted on the virtual one. To compile it:
//   nvcc -O2 -std=c++17 -o foreign_times bench/foreign/foreign_times.cu -lcuda
// `foreign_times FOLDER [--once] [WORD]`: FOLDER holds the PTX; --once launches each kernel once and measures nothing; WORD
// picks the rows whose name holds it. Prints a row of CSV for each: kernel, sizes, MHz, microseconds (median of 9 launches,
// each after the L2 cache was read full of other data, queued behind a kernel that spins).
#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#define CHECK(x)                                                                        \
  do {                                                                                  \
    const CUresult result_ = (x);                                                       \
    if (result_ != CUDA_SUCCESS) {                                                      \
      const char* text_ = nullptr;                                                      \
      cuGetErrorString(result_, &text_);                                                \
      printf("FAILED line %d: %s: %s\n", __LINE__, #x, text_ != nullptr ? text_ : "?"); \
      fflush(stdout);                                                                   \
      exit(1);                                                                          \
    }                                                                                   \
  } while (0)

namespace {

const char* const kOwn = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 nanoseconds) {
  .reg .pred %p<1>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd0, [nanoseconds];
  mov.u64 %rd1, %globaltimer;
LOOP:
  mov.u64 %rd2, %globaltimer;
  sub.u64 %rd2, %rd2, %rd1;
  setp.lt.u64 %p0, %rd2, %rd0;
  @%p0 bra LOOP;
  ret;
}
.visible .entry flush(.param .u64 from, .param .u64 count, .param .u64 sink) {
  .reg .pred %p<2>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd0, [from];
  ld.param.u64 %rd1, [count];
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %nctaid.x;
  mad.lo.u32 %r4, %r0, %r1, %r2;
  mul.lo.u32 %r5, %r3, %r1;
  cvt.u64.u32 %rd2, %r4;
  cvt.u64.u32 %rd3, %r5;
  mov.u32 %r6, 0;
LOOP:
  setp.ge.u64 %p0, %rd2, %rd1;
  @%p0 bra DONE;
  shl.b64 %rd4, %rd2, 4;
  add.u64 %rd4, %rd0, %rd4;
  ld.global.v4.u32 {%r7, %r8, %r9, %r10}, [%rd4];
  xor.b32 %r7, %r7, %r8;
  xor.b32 %r9, %r9, %r10;
  xor.b32 %r7, %r7, %r9;
  xor.b32 %r6, %r6, %r7;
  add.u64 %rd2, %rd2, %rd3;
  bra LOOP;
DONE:
  setp.ne.u32 %p1, %r6, 0x5eed1234;
  @%p1 ret;
  ld.param.u64 %rd5, [sink];
  st.global.u32 [%rd5], %r6;
  ret;
}
.visible .entry stamp(.param .u64 out) {
  .reg .pred %p<1>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<5>;
  mov.u32 %r0, %tid.x;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 ret;
  mov.u32 %r1, %smid;
  ld.param.u64 %rd0, [out];
  mul.wide.u32 %rd1, %r1, 16;
  add.u64 %rd1, %rd0, %rd1;
  mov.u64 %rd2, %clock64;
  mov.u64 %rd3, %globaltimer;
  st.global.v2.u64 [%rd1], {%rd2, %rd3};
  ret;
}
)";

constexpr int kLaunches = 9, kStamps = 256;  // SMs at most
constexpr double kHighest = 1980;            // MHz of an H200
constexpr size_t kFlush = size_t{128} << 20;

std::string folder;
bool once = false;
CUmodule own;
CUfunction spin, flush_l2, stamp;
CUdeviceptr flushed, sink, stamps;
int sms = 132;
std::vector<CUdeviceptr> allocated;

/// Normally distributed numbers, near enough: the sum of four uniform ones.
float random_number() {
  static uint64_t state = 0x9E3779B97F4A7C15ull;
  float sum = 0;
  for (int i = 0; i < 4; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    sum += static_cast<float>(state >> 40) / (1 << 23) - 1.0f;
  }
  return sum * 0.866f;
}
uint16_t half_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  const int exponent = static_cast<int>(bits >> 23 & 0xFF) - 112;
  if (exponent <= 0) return 0;
  return static_cast<uint16_t>(bits >> 16 & 0x8000 | exponent << 10 | (bits >> 13 & 0x3FF));
}

CUdeviceptr memory(size_t bytes) {
  CUdeviceptr at;
  CHECK(cuMemAlloc(&at, bytes));
  allocated.push_back(at);
  return at;
}
/// `count` random numbers; every 64 Ki of them are the same.
CUdeviceptr numbers(size_t count, size_t width) {
  const CUdeviceptr at = memory(count * width);
  std::vector<unsigned char> chunk(std::min<size_t>(count, 1 << 16) * width);
  for (size_t i = 0; i < chunk.size() / width; ++i) {
    const float x = random_number();
    const uint16_t h = half_of(x);
    if (width == 4) memcpy(&chunk[4 * i], &x, 4);
    if (width == 2) memcpy(&chunk[2 * i], &h, 2);
  }
  for (size_t done = 0; done < count * width; done += chunk.size())
    CHECK(cuMemcpyHtoD(at + done, chunk.data(), std::min(chunk.size(), count * width - done)));
  return at;
}
CUdeviceptr halves(size_t count) { return numbers(count, 2); }
CUdeviceptr floats(size_t count) { return numbers(count, 4); }

struct Arguments {
  std::vector<std::vector<unsigned char>> values;
  template <class T>
  Arguments& add(const T& value) {
    values.emplace_back(reinterpret_cast<const unsigned char*>(&value),
                        reinterpret_cast<const unsigned char*>(&value) + sizeof value);
    return *this;
  }
  /// Of rows of `columns` halves in boxes of 64 x `box_rows`, as Triton passes it: the map, the shape, the strides.
  Arguments& descriptor(CUdeviceptr at, int rows, int columns, uint32_t box_rows, bool plain = false) {
    alignas(64) CUtensorMap map;
    const cuuint64_t dims[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)},
                     strides[] = {static_cast<cuuint64_t>(columns) * 2};
    const cuuint32_t box[] = {64, box_rows}, steps[] = {1, 1};
    CHECK(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, reinterpret_cast<void*>(at), dims,
                                 strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    add(map);
    if (plain) return *this;
    return add(rows).add(columns).add(static_cast<int64_t>(columns)).add(int64_t{1});
  }
  /// Triton's two pointers to scratch memory.
  Arguments& scratch() { return add(CUdeviceptr{0}).add(CUdeviceptr{0}); }
};

struct Case {
  std::string kernel, sizes;  // file without .ptx
  unsigned grid_x, grid_y, threads_x, threads_y, shared;
  std::function<Arguments()> arguments;
};

std::string text(const char* format, int a, int b = 0, int c = 0) {
  char buffer[100];
  snprintf(buffer, sizeof buffer, format, a, b, c);
  return buffer;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto up = [](int a, int b) { return static_cast<unsigned>((a + b - 1) / b); };
  for (const auto& [rows, columns] : {std::pair{1000, 1000}, {8192, 1024}, {65536, 512}})
    all.push_back({"triton_softmax.sm_80", text("%dx%d", rows, columns), static_cast<unsigned>(rows), 1, 128,
                   1, 16, [=] {
                     const size_t n = size_t(rows) * columns;
                     return Arguments().add(floats(n)).add(memory(4 * n)).add(columns).add(columns).scratch();
                   }});
  for (const auto& [rows, columns] : {std::pair{500, 1000}, {4096, 4096}, {32768, 1024}})
    all.push_back({"triton_layer_norm.sm_80", text("%dx%d", rows, columns), static_cast<unsigned>(rows), 1,
                   128, 1, 1024, [=] {
                     const size_t n = size_t(rows) * columns;
                     return Arguments()
                         .add(halves(n))
                         .add(floats(columns))
                         .add(floats(columns))
                         .add(memory(2 * n))
                         .add(memory(4 * rows))
                         .add(columns)
                         .add(1e-5f)
                         .scratch();
                   }});
  for (int n : {100000, 4000000, 50000000})
    all.push_back({"triton_gelu_add.sm_90a", text("%d", n), up(n, 512), 1, 128, 1, 0, [=] {
                     return Arguments()
                         .add(floats(n))
                         .add(halves(n))
                         .add(memory(size_t{4} * n))
                         .add(n)
                         .add(0.75f)
                         .scratch();
                   }});
  for (const auto& [rows, columns] : {std::pair{512, 2048}, {8192, 2048}})
    all.push_back(
        {"triton_linear_recurrence.sm_80", text("%dx%d", rows, columns), static_cast<unsigned>(rows / 2), 1,
         128, 1, 128, [=] {
           const size_t n = size_t(rows) * columns;
           return Arguments().add(floats(n)).add(floats(n)).add(memory(4 * n)).add(columns).scratch();
         }});
  struct Size {
    int m, n, k;
  };
  const auto product = [&](const char* name, Size s, unsigned x, unsigned y, unsigned threads,
                           unsigned shared, std::function<Arguments()> arguments) {
    all.push_back({name, text("%dx%dx%d", s.m, s.n, s.k), x, y, threads, 1, shared, std::move(arguments)});
  };
  for (const Size s : {Size{512, 512, 4096}, {1024, 1024, 1024}, {2048, 2048, 2048}, {4096, 4096, 1024}}) {
    const auto [m, n, k] = s;
    const size_t a = size_t(m) * k, b = size_t(n) * k, c = size_t(m) * n;
    const int m_ = m, n_ = n, k_ = k;
    for (const char* target : {"sm_80", "sm_90a"})
      product((std::string("triton_matmul_pointers.") + target).c_str(), s, up(m, 128) * up(n, 64), 1, 128,
              target[3] == '8' ? 20480 : 32768, [=] {
                return Arguments()
                    .add(halves(a))
                    .add(halves(b))
                    .add(memory(4 * c))
                    .add(m_)
                    .add(n_)
                    .add(k_)
                    .add(k_)
                    .add(n_)
                    .add(n_)
                    .scratch();
              });
    const auto descriptors = [=] {
      return Arguments()
          .descriptor(halves(a), m_, k_, 128)
          .descriptor(halves(b), n_, k_, 128)
          .descriptor(memory(2 * c), m_, n_, 128);
    };
    product("triton_matmul_descriptors.sm_90a", s, up(m, 128), up(n, 128), 128, 98328,
            [=] { return descriptors().add(k_).scratch(); });
    product("triton_matmul_persistent.sm_90a", s, std::min<unsigned>(132, up(m, 128) * up(n, 128)), 1, 128,
            131096, [=] {
              const int programs = static_cast<int>(std::min<unsigned>(132, up(m_, 128) * up(n_, 128)));
              return descriptors().add(m_).add(n_).add(k_).add(programs).scratch();
            });
    product("cuda_matmul_wgmma.sm_90a", s, up(n, 128), up(m, 128), 384, 4 * 32768 + 2048, [=] {
      return Arguments()
          .descriptor(halves(a), m_, k_, 128, true)
          .descriptor(halves(b), n_, k_, 128, true)
          .add(memory(4 * c))
          .add(m_)
          .add(n_)
          .add(k_);
    });
    product("cuda_matmul_mma.sm_80", s, up(n, 64), up(m, 64), 128, 0, [=] {
      return Arguments().add(halves(a)).add(halves(b)).add(memory(4 * c)).add(m_).add(n_).add(k_);
    });
  }
  for (const auto& [heads, length] : {std::pair{16, 1024}, {32, 2048}, {64, 4096}}) {
    const size_t n = size_t(heads) * length * 64;
    const int h = heads, l = length;
    all.push_back({"triton_attention.sm_90a", text("%dx%d", heads, length), up(length, 128),
                   static_cast<unsigned>(heads), 128, 1, 49152, [=] {
                     return Arguments()
                         .add(halves(n))
                         .add(halves(n))
                         .add(halves(n))
                         .add(memory(2 * n))
                         .add(memory(size_t{4} * h * l))
                         .add(l)
                         .add(0.125f)
                         .scratch();
                   }});
    all.push_back({"triton_attention_descriptors.sm_90a", text("%dx%d", heads, length), up(length, 128),
                   static_cast<unsigned>(heads), 128, 1, 49184, [=] {
                     const int rows = h * l;
                     return Arguments()
                         .descriptor(halves(n), rows, 64, 128)
                         .descriptor(halves(n), rows, 64, 64)
                         .descriptor(halves(n), rows, 64, 64)
                         .descriptor(memory(2 * n), rows, 64, 128)
                         .add(l)
                         .add(0.125f)
                         .scratch();
                   }});
  }
  all.push_back({"cuda_row_softmax.sm_90a", "16384x1024", 16384 / 4, 1, 32, 4, 0, [=] {
                   const size_t n = size_t{16384} * 1024;
                   return Arguments().add(halves(n)).add(memory(4 * n)).add(16384).add(1024);
                 }});
  return all;
}

void launch(CUfunction f, unsigned x, unsigned y, unsigned tx, unsigned ty, unsigned shared,
            Arguments& arguments) {
  std::vector<void*> pointers;
  for (auto& value : arguments.values) pointers.push_back(value.data());
  CHECK(cuLaunchKernel(f, x, y, 1, tx, ty, 1, shared, nullptr, pointers.data(), nullptr));
}
void spin_for(uint64_t nanoseconds) {
  Arguments a;
  launch(spin, 1, 1, 1, 1, 0, a.add(nanoseconds));
}
void flush() {
  Arguments a;
  launch(flush_l2, 4 * sms, 1, 512, 1, 0, a.add(flushed).add(uint64_t{kFlush / 16}).add(sink));
}
/// Every SM notes its clock and the time, in place `which`.
void note(int which) {
  Arguments a;
  launch(stamp, 4 * sms, 1, 32, 1, 0, a.add(stamps + static_cast<CUdeviceptr>(which) * 16 * kStamps));
}
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

void run(const Case& c) {
  std::ifstream file(folder + "/" + c.kernel + ".ptx");
  std::stringstream ptx;
  ptx << file.rdbuf();
  CUmodule module;
  CHECK(cuModuleLoadData(&module, ptx.str().c_str()));
  const std::string all = ptx.str();
  size_t at = all.find(".visible .entry ") + 16;
  CUfunction function;
  CHECK(cuModuleGetFunction(&function, module, all.substr(at, all.find('(', at) - at).c_str()));
  if (c.shared > 48 * 1024)
    CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                             static_cast<int>(c.shared)));
  Arguments arguments = c.arguments();
  const auto go = [&] {
    launch(function, c.grid_x, c.grid_y, c.threads_x, c.threads_y, c.shared, arguments);
  };
  go();
  CHECK(cuCtxSynchronize());
  if (once) {
    printf("%s,%s\n", c.kernel.c_str(), c.sizes.c_str());
  } else {
    CUevent e[2 * kLaunches];
    for (CUevent& each : e) CHECK(cuEventCreate(&each, CU_EVENT_DEFAULT));
    CHECK(cuMemsetD8(stamps, 0, 16 * kStamps * 2 * kLaunches));
    spin_for(400000);
    for (int i = 0; i < kLaunches; ++i) {
      flush();
      note(2 * i);
      CHECK(cuEventRecord(e[2 * i], nullptr));
      go();
      CHECK(cuEventRecord(e[2 * i + 1], nullptr));
      note(2 * i + 1);
    }
    CHECK(cuCtxSynchronize());
    std::vector<int64_t> notes(2 * kStamps * 2 * kLaunches);
    CHECK(cuMemcpyDtoH(notes.data(), stamps, 8 * notes.size()));
    std::vector<double> us, rates;
    double launches = 0, span = 0;
    for (int i = 0; i < kLaunches; ++i) {
      float ms;
      CHECK(cuEventElapsedTime(&ms, e[2 * i], e[2 * i + 1]));
      us.push_back(1e3 * ms);
      launches += us.back();
    }
    for (int sm = 0; sm < kStamps; ++sm) {
      double clocks = 0, time = 0;
      for (int i = 0; i < kLaunches; ++i) {
        const int64_t *first = &notes[2 * (kStamps * 2 * i + sm)], *last = first + 2 * kStamps;
        if (first[1] == 0 || last[1] == 0) continue;
        clocks += static_cast<double>(last[0] - first[0]);
        time += static_cast<double>(last[1] - first[1]);
      }
      if (time > 0) rates.push_back(1e3 * clocks / time);
      span = std::max(span, 1e-3 * time);
    }
    // What lies between the notes and the launch runs at the highest clock.
    const double mean = median(rates), mhz = (mean * span - kHighest * (span - launches)) / launches;
    printf("%s,%s,%.0f,%.3f\n", c.kernel.c_str(), c.sizes.c_str(), std::min(kHighest, mhz), median(us));
  }
  fflush(stdout);
  CHECK(cuModuleUnload(module));
  for (CUdeviceptr each : allocated) CHECK(cuMemFree(each));
  allocated.clear();
}

}  // namespace

int main(int count, char** words) {
  std::string word;
  for (int i = 1; i < count; ++i) {
    const std::string text = words[i];
    if (text == "--once")
      once = true;
    else if (folder.empty())
      folder = text;
    else
      word = text;
  }
  if (folder.empty()) {
    printf("usage: foreign_times FOLDER [--once] [WORD]\n");
    return 2;
  }
  CHECK(cuInit(0));
  CUdevice device;
  CUcontext context;
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  if (!once) {
    CHECK(cuModuleLoadData(&own, kOwn));
    CHECK(cuModuleGetFunction(&spin, own, "spin"));
    CHECK(cuModuleGetFunction(&flush_l2, own, "flush"));
    CHECK(cuModuleGetFunction(&stamp, own, "stamp"));
    CHECK(cuMemAlloc(&flushed, kFlush));
    CHECK(cuMemAlloc(&sink, 64));
    CHECK(cuMemAlloc(&stamps, 16 * kStamps * 2 * kLaunches));
    CHECK(cuMemsetD8(flushed, 0x5A, kFlush));
    spin_for(200000000);
    CHECK(cuCtxSynchronize());
  }
  for (const Case& c : cases())
    if ((c.kernel + " " + c.sizes).find(word) != std::string::npos) run(c);
  return 0;
}

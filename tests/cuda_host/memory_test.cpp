// SPDX-License-Identifier: Apache-2.0
// Memory beyond plain allocations: registered host memory, virtual memory management, memory of other processes.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstring>

#include "driver_testing.h"

extern "C" {
using CUmemHandle = unsigned long long;
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* pointer, unsigned flags);
CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned flags);
CUresult cuMemHostUnregister(void* pointer);
CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes);
CUresult cuMemCreate(CUmemHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags);
CUresult cuMemRelease(CUmemHandle handle);
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemHandle handle,
                  unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes);
CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count);
CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address);
CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       int option);
CUresult cuMemExportToShareableHandle(void* out, CUmemHandle handle, int type, unsigned long long flags);
CUresult cuMemImportFromShareableHandle(CUmemHandle* handle, void* file, int type);
CUresult cuMemRetainAllocationHandle(CUmemHandle* handle, void* address);
CUresult cuEventCreate(CUevent* event, unsigned flags);
CUresult cuEventDestroy_v2(CUevent event);
}

namespace imbrex::cuda {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

TEST_F(Driver, KernelsReachRegisteredHostMemory) {
  std::vector<float> host(1000, 2);
  ASSERT_OK(cuMemHostRegister_v2(host.data(), 4000, 0));
  CUdeviceptr whole = 0, tail = 0;
  ASSERT_OK(cuMemHostGetDevicePointer_v2(&whole, host.data(), 0));
  ASSERT_OK(cuMemHostGetDevicePointer_v2(&tail, host.data() + 900, 0));
  EXPECT_EQ(tail, whole + 3600);
  ASSERT_OK(scale(whole, 3, 1000));
  EXPECT_THAT(host, Each(6));
  host[950] = 10;  // what the host writes, the next launch reads
  ASSERT_OK(scale(tail, 0.5f, 100));
  EXPECT_EQ(host[950], 5);
  EXPECT_EQ(host[899], 6);
  EXPECT_EQ(host[900], 3);
  EXPECT_EQ(read(whole, 1000), host);
  ASSERT_OK(cuMemHostUnregister(host.data()));
  CaptureStderr();
  EXPECT_EQ(cuMemHostGetDevicePointer_v2(&whole, host.data(), 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostUnregister(host.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  GetCapturedStderr();
}

// Virtual memory --------------------------------------------------------------------------------------------

constexpr size_t kChunk = 2 << 20;
constexpr CUmemAllocationProp kOnDevice{.type = 1, .handle_types = 1, .location = {1, 0}};
constexpr CUmemAccessDesc kReadWrite{{1, 0}, 3}, kNothing{{1, 0}, 0};

TEST_F(Driver, MapsMemoryIntoReservedAddresses) {
  size_t granularity = 0;
  ASSERT_OK(cuMemGetAllocationGranularity(&granularity, &kOnDevice, 0));
  ASSERT_EQ(granularity, kChunk);
  CUdeviceptr range = 0, alias = 0;
  ASSERT_OK(cuMemAddressReserve(&range, 4 * kChunk, 0, 0, 0));
  ASSERT_OK(cuMemAddressReserve(&alias, kChunk, 0, 0, 0));
  CUmemHandle first = 0, second = 0;
  ASSERT_OK(cuMemCreate(&first, kChunk, &kOnDevice, 0));
  ASSERT_OK(cuMemCreate(&second, kChunk, &kOnDevice, 0));
  ASSERT_OK(cuMemMap(range, kChunk, 0, first, 0));
  ASSERT_OK(cuMemMap(range + kChunk, kChunk, 0, second, 0));
  ASSERT_OK(cuMemMap(alias, kChunk, 0, second, 0));
  ASSERT_OK(cuMemSetAccess(range, 2 * kChunk, &kReadWrite, 1));
  ASSERT_OK(cuMemSetAccess(alias, kChunk, &kReadWrite, 1));
  // The mappings live on without their handles, and side by side they are one.
  ASSERT_OK(cuMemRelease(first));
  const unsigned n = 2 * kChunk / 4;
  std::vector<float> values(n, 4);
  ASSERT_OK(cuMemcpyHtoD_v2(range, values.data(), 2 * kChunk));
  ASSERT_OK(scale(range + kChunk - 256, 2, 128));
  std::vector<float> got = read(range, n);
  for (unsigned i = 0; i < n; ++i) {
    const bool is_scaled = i >= n / 2 - 64 && i < n / 2 + 64;
    ASSERT_EQ(got[i], is_scaled ? 8 : 4) << i;
  }
  // The same memory at another address.
  ASSERT_OK(scale(alias, 10, 64));
  EXPECT_THAT(read(range + kChunk, 64), Each(80));
  unsigned long long flags = 0;
  ASSERT_OK(cuMemGetAccess(&flags, &kOnDevice.location, range));
  EXPECT_EQ(flags, 3u);
  CUmemHandle again = 0;
  ASSERT_OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(alias + 100)));
  EXPECT_EQ(again, second);
  ASSERT_OK(cuMemRelease(again));
  ASSERT_OK(cuMemUnmap(range, 2 * kChunk));
  EXPECT_THAT(read(alias, 64), Each(80));
  ASSERT_OK(cuMemUnmap(alias, kChunk));
  ASSERT_OK(cuMemRelease(second));
  ASSERT_OK(cuMemAddressFree(range, 4 * kChunk));
  ASSERT_OK(cuMemAddressFree(alias, kChunk));
}

TEST_F(Driver, WhatIsNotMappedOrNotAllowedFaults) {
  CUdeviceptr range = 0;
  CUmemHandle memory = 0;
  ASSERT_OK(cuMemAddressReserve(&range, 2 * kChunk, 0, 0, 0));
  ASSERT_OK(cuMemCreate(&memory, kChunk, &kOnDevice, 0));
  CaptureStderr();
  EXPECT_EQ(cuMemMap(range, kChunk, kChunk, memory, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(range + 4096, kChunk, 0, memory, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(range + 2 * kChunk, kChunk, 0, memory, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_OK(cuMemMap(range, kChunk, 0, memory, 0));
  EXPECT_EQ(cuMemMap(range, kChunk, 0, memory, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemSetAccess(range, 2 * kChunk, &kReadWrite, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(range, 2 * kChunk), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range, 2 * kChunk), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(&memory, 1000, &kOnDevice, 0), CUDA_ERROR_INVALID_VALUE);
  const std::string told = GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("of memory of 2097152"));
  EXPECT_THAT(told,
              HasSubstr("no multiple of the granularity, 2097152 bytes (cuMemGetAllocationGranularity)"));
  EXPECT_THAT(told, HasSubstr("are not reserved"));
  EXPECT_THAT(told, HasSubstr("is mapped at"));
  EXPECT_THAT(told, HasSubstr("are not whole mappings"));
  EXPECT_THAT(told, HasSubstr("memory is still mapped at"));
  // Allowed, and forbidden again.
  ASSERT_OK(cuMemSetAccess(range, kChunk, &kReadWrite, 1));
  EXPECT_OK(scale(range, 2, 64));
  ASSERT_OK(cuMemSetAccess(range, kChunk, &kNothing, 1));
  CaptureStderr();
  scale(range, 2, 64);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  GetCapturedStderr();
}

TEST_F(Driver, SharesMemoryByFileDescriptor) {
  CUmemHandle memory = 0, imported = 0;
  ASSERT_OK(cuMemCreate(&memory, kChunk, &kOnDevice, 0));
  int file = -1;
  ASSERT_OK(cuMemExportToShareableHandle(&file, memory, 1, 0));
  ASSERT_OK(
      cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(file)), 1));
  close(file);
  CUdeviceptr range = 0;
  ASSERT_OK(cuMemAddressReserve(&range, 2 * kChunk, 0, 0, 0));
  ASSERT_OK(cuMemMap(range, kChunk, 0, memory, 0));
  ASSERT_OK(cuMemMap(range + kChunk, kChunk, 0, imported, 0));
  ASSERT_OK(cuMemSetAccess(range, 2 * kChunk, &kReadWrite, 1));
  const std::vector<float> values(64, 7);
  ASSERT_OK(cuMemcpyHtoD_v2(range, values.data(), 256));
  EXPECT_THAT(read(range + kChunk, 64), Each(7));
  CaptureStderr();
  EXPECT_EQ(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(intptr_t{999}), 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("file descriptor 999 is no memory that"));
  ASSERT_OK(cuMemUnmap(range, 2 * kChunk));
  ASSERT_OK(cuMemRelease(memory));
  ASSERT_OK(cuMemRelease(imported));
  ASSERT_OK(cuMemAddressFree(range, 2 * kChunk));
}

// Other processes -------------------------------------------------------------------------------------------

constexpr const char* kHandleVariable = "IMBREX_TEST_HANDLE";

std::string hexadecimal(const CUipcMemHandle& handle) {
  std::string text;
  for (const char c : handle.bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(c));
    text += two;
  }
  return text;
}

TEST_F(Driver, AnotherProcessOpensMemory) {
  // Two that share a page, and one that is made after memory became shared.
  const CUdeviceptr before = upload(std::vector<float>(100, 1)), x = upload(std::vector<float>(100, 5));
  CUipcMemHandle handle{};
  ASSERT_OK(cuIpcGetMemHandle(&handle, x + 40));
  const CUdeviceptr after = upload(std::vector<float>(100, 9));
  setenv(kHandleVariable, hexadecimal(handle).c_str(), 1);
  const std::string command = "/proc/" + std::to_string(getpid()) +
                              "/exe --gtest_also_run_disabled_tests --gtest_brief=1 "
                              "--gtest_filter=Driver.DISABLED_OpensTheHandle 2>&1";
  FILE* other = popen(command.c_str(), "r");
  ASSERT_NE(other, nullptr);
  std::string said;
  char piece[256];
  while (std::fgets(piece, sizeof piece, other) != nullptr) said += piece;
  EXPECT_EQ(pclose(other), 0) << said;
  EXPECT_THAT(read(x, 100), Each(15)) << said;
  EXPECT_THAT(read(before, 100), Each(1));
  EXPECT_THAT(read(after, 100), Each(9));
  ASSERT_OK(scale(after, 2, 100));
  EXPECT_THAT(read(after, 100), Each(18));
  CaptureStderr();
  CUdeviceptr own = 0;
  EXPECT_EQ(cuIpcOpenMemHandle_v2(&own, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuIpcOpenMemHandle_v2(&own, CUipcMemHandle{}, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuIpcGetMemHandle(&handle, 0x1234), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuIpcCloseMemHandle(x), CUDA_ERROR_INVALID_VALUE);
  const std::string told = GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("the memory is this process's own: use its address"));
  EXPECT_THAT(told, HasSubstr("these 64 bytes are no handle of memory"));
  for (const CUdeviceptr at : {before, x, after}) EXPECT_OK(cuMemFree_v2(at));
}

// The other process, run by the test above.
TEST_F(Driver, DISABLED_OpensTheHandle) {
  const std::string text = std::getenv(kHandleVariable);
  CUipcMemHandle handle{};
  for (size_t i = 0; i < sizeof handle; ++i)
    handle.bytes[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  CUdeviceptr x = 0;
  ASSERT_OK(cuIpcOpenMemHandle_v2(&x, handle, 1));
  EXPECT_THAT(read(x, 100), Each(5));
  ASSERT_OK(scale(x, 3, 100));
  EXPECT_THAT(read(x, 100), Each(15));
  ASSERT_OK(cuIpcCloseMemHandle(x));
  CaptureStderr();
  EXPECT_NE(cuIpcCloseMemHandle(x), CUDA_SUCCESS);
  GetCapturedStderr();
}

TEST_F(Driver, EventsOfOtherProcessesHaveHandles) {
  CUevent plain = nullptr, shared = nullptr, opened = nullptr;
  ASSERT_OK(cuEventCreate(&plain, 2));
  ASSERT_OK(cuEventCreate(&shared, 2 | 4));
  CUipcMemHandle handle{};
  CaptureStderr();
  EXPECT_EQ(cuIpcGetEventHandle(&handle, plain), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("without CU_EVENT_INTERPROCESS"));
  ASSERT_OK(cuIpcGetEventHandle(&handle, shared));
  ASSERT_OK(cuIpcOpenEventHandle(&opened, handle));
  for (const CUevent event : {plain, shared, opened}) EXPECT_OK(cuEventDestroy_v2(event));
}

}  // namespace
}  // namespace imbrex::cuda

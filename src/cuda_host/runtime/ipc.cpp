// SPDX-License-Identifier: Apache-2.0
// Memory and events shared between processes.
#include "cuda_host/runtime/state.h"

using namespace imbrex::cudart;
using namespace imbrex::cuda;

CUDART_API cudaIpcGetMemHandle(CUipcMemHandle* handle, void* pointer) {
  return call([&] { return cuIpcGetMemHandle(handle, address_of(pointer)); });
}
CUDART_API cudaIpcOpenMemHandle(void** pointer, CUipcMemHandle handle, unsigned flags) {
  return call([&] { return cuIpcOpenMemHandle_v2(reinterpret_cast<CUdeviceptr*>(pointer), handle, flags); });
}
CUDART_API cudaIpcCloseMemHandle(void* pointer) {
  return call([&] { return cuIpcCloseMemHandle(address_of(pointer)); });
}
CUDART_API cudaIpcGetEventHandle(CUipcMemHandle* handle, CUevent event) {
  return call([&] { return cuIpcGetEventHandle(handle, event); });
}
CUDART_API cudaIpcOpenEventHandle(CUevent* event, CUipcMemHandle handle) {
  return call([&] { return cuIpcOpenEventHandle(event, handle); });
}

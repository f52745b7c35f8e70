// SPDX-License-Identifier: Apache-2.0
// When the process ends, or closes libcuda.so.1: the last words about what was found.
#include "cuda_host/host/host.h"

namespace {

__attribute__((destructor)) void say_last_words() {
  imbrex::cuda::Host* host = imbrex::cuda::Host::made();
  if (host == nullptr) return;
  host->backlog.stop();
  const std::lock_guard lock(imbrex::cuda::Host::mutex());  // a kernel behind a host function may be running
  host->log.finish();
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// When the process ends, or closes libcuda.so.1: the last words about what was found.
#include "cuda_host/host/host.h"

namespace {

__attribute__((destructor)) void say_last_words() {
  if (imbrex::cuda::Host* host = imbrex::cuda::Host::made(); host != nullptr) host->log.finish();
}

}  // namespace

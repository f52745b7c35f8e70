// SPDX-License-Identifier: Apache-2.0
// What a person sees of what takes long: checked, kernels run some hundred thousand times slower than on a GPU, and copies and
// fills of many gigabytes take their time, too. A line on stderr now and then says how far one has come, and Ctrl-C ends it, a
// kernel with the place of every warp.
#pragma once

#include <signal.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "imbrex/vgpu/watch.h"

namespace imbrex::cuda {

class RunLog;

/// While it lives, the first Ctrl-C ends the launch that has its watch.
class Interruptible {
 public:
  /// `tells`: on stderr, after 4, 8, 16, ... seconds.
  explicit Interruptible(bool tells);
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
  const std::shared_ptr<vgpu::Watch>& watch() const { return watch_; }
  /// Gives a Ctrl-C that came to whom it belongs, the program, which it ends unless it handles it.
  void end(RunLog& log);

 private:
  void restore();
  std::shared_ptr<vgpu::Watch> watch_;
  struct sigaction before_ = {};
  bool is_installed_ = false;
};

/// Does `bytes` piece by piece, as piece(first, count). `what`: "a copy", "a fill". Where Ctrl-C ends it, that is a
/// finding. CUDA_ERROR_OUT_OF_MEMORY when the machine has no memory left for the next piece, if `takes_memory`.
void in_pieces(const char* what, int64_t bytes, bool takes_memory,
               const std::function<void(int64_t first, int64_t count)>& piece);

}  // namespace imbrex::cuda

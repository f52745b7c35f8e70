// SPDX-License-Identifier: Apache-2.0
// What a person sees of kernels that take long: checked, they run some hundred thousand times slower than on a GPU. A line
// on stderr now and then says how far one has come, and Ctrl-C ends it with the place of every warp.
#pragma once

#include <signal.h>

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

}  // namespace imbrex::cuda

// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/progress.h"

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstdio>

#include "core/text.h"
#include "cuda_host/host/run_log.h"

namespace imbrex::cuda {
namespace {

std::atomic<bool>* g_stop = nullptr;
void on_interrupt(int) {
  // SA_RESETHAND: the next one ends the process.
  if (g_stop != nullptr) g_stop->store(true, std::memory_order_relaxed);
}

}  // namespace

Interruptible::Interruptible(bool tells) : watch_(std::make_shared<vgpu::Watch>()) {
  if (tells)
    watch_->tell = [next = 2.0](const vgpu::Progress& progress) mutable {
      if (progress.seconds < next) return;
      while (next <= progress.seconds) next *= 2;
      say("imbrex: {} has been running for {:.0f} s: {} of {} CTAs are done{}{}\n",
          demangled(std::string(progress.kernel)), progress.seconds, progress.ctas_done, progress.ctas,
          progress.places.empty() ? "" : "; ", progress.places.empty() ? "" : progress.places.front());
    };
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, nullptr, &before_);
  if (before_.sa_handler == SIG_IGN) return;
  g_stop = &watch_->stop;
  is_installed_ = sigaction(SIGINT, &action, nullptr) == 0;
}

Interruptible::~Interruptible() { restore(); }

void Interruptible::restore() {
  if (!is_installed_) return;
  sigaction(SIGINT, &before_, nullptr);
  g_stop = nullptr;
  is_installed_ = false;
}

void Interruptible::end(RunLog& log) {
  restore();
  if (!watch_->stop.load(std::memory_order_relaxed)) return;
  if (before_.sa_handler == SIG_DFL && (before_.sa_flags & SA_SIGINFO) == 0) log.finish();
  std::raise(SIGINT);
}

}  // namespace imbrex::cuda

// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>

#include "core/text.h"
#include "cuda_host/abi/api_error.h"
#include "cuda_host/host/host.h"
#include "cuda_host/host/run_log.h"

namespace imbrex::cuda {
namespace {

std::atomic<bool>* g_stop = nullptr;
void on_interrupt(int) {
  // SA_RESETHAND: the next one ends the process.
  if (g_stop != nullptr) g_stop->store(true, std::memory_order_relaxed);
}

/// A multiple of every element's size; a fraction of a second.
constexpr int64_t kPiece = int64_t{64} << 20;

double gib(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

/// What the machine can still give, swap included; as much as one could want where it does not tell.
int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  int64_t available = -1, swap = 0, kib = 0;
  for (std::string name, rest; file >> name >> kib && std::getline(file, rest);) {
    if (name == "MemAvailable:") available = kib << 10;
    if (name == "SwapFree:") swap = kib << 10;
  }
  return available < 0 ? INT64_MAX : available + swap;
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

void in_pieces(const char* what, int64_t bytes, bool takes_memory,
               const std::function<void(int64_t first, int64_t count)>& piece) {
  if (bytes <= kPiece) return piece(0, bytes);
  Host& host = Host::get();
  Interruptible interruptible(false);
  const auto begin = std::chrono::steady_clock::now();
  double next = 2;
  for (int64_t done = 0; done < bytes; done += kPiece) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (interruptible.watch()->stop.load(std::memory_order_relaxed)) {
      vgpu::Finding finding;
      finding.kind = vgpu::FindingKind::kInterrupted;
      finding.message =
          fmt::format("{} of {:.1f} GiB was ended by its host after {:.1f} s, with {:.1f} GiB done", what,
                      gib(bytes), seconds, gib(done));
      host.log.add("the host program", finding);
      return interruptible.end(host.log);
    }
    if (seconds >= next && host.settings.progress) {
      while (next <= seconds) next *= 2;
      say("imbrex: {} of {:.1f} GiB has been running for {:.0f} s: {:.1f} GiB are done\n", what, gib(bytes),
          seconds, gib(done));
    }
    if (takes_memory && available_bytes() < 2 * kPiece)
      refuse(
          CUDA_ERROR_OUT_OF_MEMORY,
          fmt::format("{} of {:.1f} GiB: this machine has no memory left after {:.1f} GiB; device memory is "
                      "the host's here, and what has been written takes its place there. Run the program on "
                      "less data, or on a machine with more memory",
                      what, gib(bytes), gib(done)));
    piece(done, std::min(kPiece, bytes - done));
  }
  interruptible.end(host.log);
}

}  // namespace imbrex::cuda

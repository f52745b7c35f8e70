// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/torch_attention.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "imbrex/core/error.h"
#include "imbrex/core/find_tool.h"
#include "runtime/measure/python_texts.h"

namespace imbrex::runtime {
namespace {

constexpr double kStartSeconds = 120;  // PyTorch is imported, cuDNN chooses its kernel
constexpr double kTurnSeconds = 120;

std::string find_python() {
  const char* named = std::getenv("IMBREX_PYTHON");
  if (named == nullptr) return find_program("python3");
  return std::string_view(named) == "none" ? "" : named;
}

}  // namespace

TorchAttention::TorchAttention(const std::string& python)
    : worker_({python, "-c", std::string(python::torch_attention_py)}, {}) {}

std::unique_ptr<TorchAttention> TorchAttention::make(const StatedAttention& a, std::string* why_not) {
  const auto none = [&](const std::string& reason) {
    *why_not = "no cuDNN to compare with: " + reason;
    return nullptr;
  };
  const std::string python = find_python();
  if (python.empty()) return none("there is no python3; IMBREX_PYTHON names one that has PyTorch");
  std::unique_ptr<TorchAttention> torch(new TorchAttention(python));
  torch->worker_.send(nlohmann::json{{"heads", a.q.shape()[0]},
                                     {"kv_heads", a.k.shape()[0]},
                                     {"rows", a.q.shape()[1]},
                                     {"columns", a.k.shape()[1]},
                                     {"d", a.q.shape()[2]},
                                     {"causal", a.causal},
                                     {"scale", a.scale},
                                     {"dtype", a.q.dtype().name()}}
                          .dump());
  std::string line;
  switch (torch->worker_.receive(kStartSeconds, line)) {
    case WorkerProcess::Outcome::kTimedOut:
      return none(fmt::format("PyTorch was not ready within {} s", kStartSeconds));
    case WorkerProcess::Outcome::kDied:
      return none(fmt::format("{} {}", python, torch->worker_.how_it_ended()));
    case WorkerProcess::Outcome::kAnswered:
      break;
  }
  const std::string_view ready = "ready ";
  if (!line.starts_with(ready)) return none(line.substr(line.find(' ') + 1) + " (" + python + ")");
  torch->name_ = line.substr(ready.size());
  return torch;
}

std::vector<double> TorchAttention::measure(int launches, bool cold) {
  worker_.send(fmt::format("{} {}", launches, cold ? 1 : 0));
  std::string line;
  if (worker_.receive(kTurnSeconds, line) != WorkerProcess::Outcome::kAnswered)
    throw DeviceError(Diagnostic{{},
                                 fmt::format("{} was not measured: its process {}", name_,
                                             worker_.is_alive() ? "does not answer" : worker_.how_it_ended()),
                                 {},
                                 "IMBREX_PYTHON=none measures without it"});
  std::istringstream words(line);
  std::vector<double> times;
  for (double time = 0; words >> time;) times.push_back(time);
  if (times.size() != static_cast<size_t>(launches))
    throw DeviceError(Diagnostic{{}, fmt::format("{} answered: {}", name_, line), {}, ""});
  return times;
}

}  // namespace imbrex::runtime

// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/worker_client.h"

#include <fmt/format.h>

#include <utility>

namespace imbrex::runtime {
namespace {

using Outcome = WorkerProcess::Outcome;
using Stage = WorkerAnswer::Stage;
using Status = Candidate::Status;

constexpr double kPreparing = 300;  // seconds for inputs, references and comparisons, which cannot hang

}  // namespace

std::unique_ptr<WorkerClient> WorkerClient::open(std::vector<std::string> argv, const std::string& cache,
                                                 const WorkerProblem& problem, std::string& why_not) {
  if (argv.empty()) argv = {"/proc/self/exe", "worker"};
  std::unique_ptr<WorkerClient> client(new WorkerClient(argv, cache));
  client->process_.send(to_line(WorkerRequest{.kind = WorkerRequest::Kind::kOpen, .problem = problem}));
  std::string line;
  if (client->process_.receive(kPreparing, line) != Outcome::kAnswered) {
    why_not = "the worker " + client->process_.how_it_ended();
    return nullptr;
  }
  const std::optional<WorkerAnswer> answer = parse_answer(line);
  if (answer && answer->kind == WorkerAnswer::Kind::kOpened) return client;
  why_not =
      answer && answer->kind == WorkerAnswer::Kind::kError ? answer->error : "the worker answered: " + line;
  return nullptr;
}

WorkerVerdict WorkerClient::try_candidate(const WorkerRequest& request, double timeout_s) {
  process_.send(to_line(request));
  Stage stage = Stage::kPreparing;
  for (;;) {
    std::string line;
    const double limit = stage == Stage::kLaunching || stage == Stage::kMeasuring ? timeout_s : kPreparing;
    switch (process_.receive(limit, line)) {
      case Outcome::kTimedOut:
        return {Status::kHung, fmt::format("still {} after {:g} s, and killed", name(stage), limit)};
      case Outcome::kDied:
        return {Status::kTrapped, "its process " + process_.how_it_ended()};
      case Outcome::kAnswered:
        break;
    }
    std::optional<WorkerAnswer> answer = parse_answer(line);
    if (!answer) continue;
    if (answer->kind == WorkerAnswer::Kind::kStage) stage = answer->stage;
    if (answer->kind != WorkerAnswer::Kind::kVerdict) continue;
    if (answer->verdict.status == Status::kTrapped) process_.kill();  // its device is lost
    if (answer->verdict.status == Status::kDropped && answer->verdict.times.empty())
      return {Status::kFailed, "its worker gave no times"};
    return std::move(answer->verdict);
  }
}

WorkerVerdict WorkerClient::assemble(const std::string& config) {
  process_.send(to_line(WorkerRequest{.kind = WorkerRequest::Kind::kAssemble, .config = config}));
  std::string line;
  if (process_.receive(kPreparing, line) != Outcome::kAnswered)
    return {Status::kFailed, "its assembler " + process_.how_it_ended()};
  std::optional<WorkerAnswer> answer = parse_answer(line);
  if (!answer || answer->kind != WorkerAnswer::Kind::kVerdict)
    return {Status::kFailed, "its worker answered: " + line};
  return std::move(answer->verdict);
}

}  // namespace imbrex::runtime

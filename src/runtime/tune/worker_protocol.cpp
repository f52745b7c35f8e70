// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/worker_protocol.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace imbrex::runtime {
namespace {

using nlohmann::json;
using Stage = WorkerAnswer::Stage;
using Status = Candidate::Status;

constexpr std::pair<Status, const char*> kStatuses[] = {{Status::kDropped, "right"},
                                                        {Status::kWrong, "wrong"},
                                                        {Status::kFailed, "failed"},
                                                        {Status::kTrapped, "trapped"},
                                                        {Status::kSlow, "slow"}};
constexpr std::pair<Stage, const char*> kStages[] = {{Stage::kPreparing, "preparing"},
                                                     {Stage::kLaunching, "launching"},
                                                     {Stage::kChecking, "checking"},
                                                     {Stage::kMeasuring, "measuring"}};

template <class T, size_t N>
const char* word_of(const std::pair<T, const char*> (&table)[N], T value) {
  for (const auto& [each, word] : table)
    if (each == value) return word;
  return "";
}

template <class T, size_t N>
std::optional<T> value_of(const std::pair<T, const char*> (&table)[N], const std::string& wanted) {
  for (const auto& [value, word] : table)
    if (wanted == word) return value;
  return std::nullopt;
}

/// Messages may hold any bytes; those that are not UTF-8 are replaced.
std::string dumped(const json& object) { return object.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace

const char* name(Stage stage) { return word_of(kStages, stage); }

std::string to_line(const WorkerRequest& request) {
  switch (request.kind) {
    case WorkerRequest::Kind::kOpen:
      return dumped({{"do", "open"},
                     {"kernel", request.problem.kernel},
                     {"device", request.problem.device},
                     {"ordinal", request.problem.ordinal},
                     {"target", request.problem.target},
                     {"gpu", request.problem.gpu},
                     {"sizes", request.problem.sizes},
                     {"seed", request.problem.seed}});
    case WorkerRequest::Kind::kTry:
      return dumped({{"do", "try"},
                     {"config", request.config},
                     {"verify", request.verify},
                     {"restore", request.restore_inputs},
                     {"launches", request.launches},
                     {"limit_us", request.limit_us},
                     {"default_sizes", request.at_default_sizes}});
    case WorkerRequest::Kind::kPredict:
      return dumped({{"do", "predict"}, {"config", request.config}, {"sample", request.sample}});
    case WorkerRequest::Kind::kAssemble:
      return dumped({{"do", "assemble"}, {"config", request.config}});
  }
  return "";
}

std::string to_line(const WorkerAnswer& answer) {
  switch (answer.kind) {
    case WorkerAnswer::Kind::kOpened:
      return "{}";
    case WorkerAnswer::Kind::kError:
      return dumped({{"error", answer.error}});
    case WorkerAnswer::Kind::kStage:
      return dumped({{"stage", name(answer.stage)}});
    case WorkerAnswer::Kind::kVerdict:
      return dumped({{"status", word_of(kStatuses, answer.verdict.status)},
                     {"reason", answer.verdict.reason},
                     {"times", answer.verdict.times},
                     {"spill_bytes", answer.verdict.spill_bytes},
                     {"sampling_error", answer.verdict.sampling_error}});
  }
  return "";
}

std::optional<WorkerRequest> parse_request(const std::string& line) try {
  const json object = json::parse(line);
  const std::string what = object.at("do");
  WorkerRequest request;
  if (what == "open") {
    request.kind = WorkerRequest::Kind::kOpen;
    request.problem = {object.at("kernel"),  object.at("device"),
                       object.at("ordinal"), object.at("target"),
                       object.at("gpu"),     object.at("sizes").get<std::map<std::string, int64_t>>(),
                       object.at("seed")};
    return request;
  }
  if (what != "try" && what != "predict" && what != "assemble") return std::nullopt;
  request.kind = what == "try"       ? WorkerRequest::Kind::kTry
                 : what == "predict" ? WorkerRequest::Kind::kPredict
                                     : WorkerRequest::Kind::kAssemble;
  request.config = object.at("config");
  request.verify = object.value("verify", request.verify);
  request.restore_inputs = object.value("restore", request.restore_inputs);
  request.launches = object.value("launches", request.launches);
  request.limit_us = object.value("limit_us", request.limit_us);
  request.at_default_sizes = object.value("default_sizes", request.at_default_sizes);
  request.sample = object.value("sample", request.sample);
  return request;
} catch (const json::exception&) {
  return std::nullopt;
}

std::optional<WorkerAnswer> parse_answer(const std::string& line) try {
  const json object = json::parse(line);
  if (!object.is_object()) return std::nullopt;
  if (object.contains("error"))
    return WorkerAnswer{.kind = WorkerAnswer::Kind::kError, .error = object.at("error")};
  if (object.contains("stage")) {
    const std::optional<Stage> stage = value_of(kStages, object.at("stage").get<std::string>());
    if (!stage) return std::nullopt;
    return WorkerAnswer{.kind = WorkerAnswer::Kind::kStage, .stage = *stage};
  }
  if (!object.contains("status")) return WorkerAnswer{.kind = WorkerAnswer::Kind::kOpened};
  const std::optional<Status> status = value_of(kStatuses, object.at("status").get<std::string>());
  if (!status) return std::nullopt;
  WorkerAnswer answer{.kind = WorkerAnswer::Kind::kVerdict,
                      .verdict = {.status = *status, .reason = object.value("reason", "")}};
  for (const json& time : object.value("times", json::array()))
    if (time.is_number()) answer.verdict.times.push_back(time);
  answer.verdict.spill_bytes = object.value("spill_bytes", int64_t{0});
  answer.verdict.sampling_error = object.value("sampling_error", 0.0);
  return answer;
} catch (const json::exception&) {
  return std::nullopt;
}

}  // namespace imbrex::runtime

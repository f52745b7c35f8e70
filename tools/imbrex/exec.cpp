// SPDX-License-Identifier: Apache-2.0
// `imbrex exec FILE.ptx`: foreign PTX on the virtual GPU, with arguments spelled on the command line.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "coalescing_view.h"
#include "imbrex/core/error.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "imbrex/vgpu/watch.h"
#include "subcommands.h"

namespace imbrex::command {
namespace {

struct Options {
  std::string file, entry, target;
  std::vector<std::string> arguments;
  std::vector<int64_t> grid{1}, block{32}, cluster;
  int64_t shared = 0, show = 16, budget = 0;
  uint64_t seed = 0;
  int seeds = 1;
  std::string checks = "on";
  bool strict = false, json = false, coalescing = false;
};

[[noreturn]] void refuse(std::string message, std::string help = "") {
  throw LaunchError(Diagnostic{{}, std::move(message), {}, std::move(help)});
}

constexpr const char* kArgumentHelp =
    "an argument is TYPE:VALUE (int32:5, float32:1.5), or a buffer TYPE[N], TYPE[N]=random, =iota, =zeros or "
    "=poison";

/// One kernel argument: a number, or a buffer and what it starts as.
struct Argument {
  DataType dtype = int32;
  bool is_buffer = false;
  HostTensor contents;           // of a buffer
  std::vector<std::byte> bytes;  // of a number, or the buffer's address once allocated
};

int64_t to_integer(const std::string& text, const std::string& what) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    refuse(fmt::format("'{}' in {} is not a number", text, what), kArgumentHelp);
  return value;
}

Argument parse_argument(const std::string& text, uint64_t seed) {
  Argument argument;
  const size_t split = text.find_first_of(":[");
  if (split == std::string::npos) refuse("argument '" + text + "' has no type", kArgumentHelp);
  const std::optional<DataType> dtype = DataType::from_name(text.substr(0, split));
  if (!dtype || dtype->bits() % 8 != 0) refuse("argument '" + text + "': unknown type", kArgumentHelp);
  argument.dtype = *dtype;
  if (text[split] == ':') {
    HostTensor one(*dtype, {1});
    if (dtype->is_float()) {
      char* end = nullptr;
      const double value = std::strtod(text.c_str() + split + 1, &end);
      if (split + 1 == text.size() || *end != 0)
        refuse(fmt::format("'{}' in argument '{}' is not a number", text.substr(split + 1), text),
               kArgumentHelp);
      one.set(0, value);
    } else {
      const int64_t value = to_integer(text.substr(split + 1), "argument '" + text + "'");
      const int bits = dtype->bits();
      const int64_t low = dtype->is_signed() && bits < 64 ? -(int64_t{1} << (bits - 1)) : 0;
      if (bits < 64 && (value < low || value >= low + (int64_t{1} << bits)))
        refuse(fmt::format("{} in argument '{}' does not fit {}", value, text, dtype->name()), kArgumentHelp);
      std::memcpy(one.bytes().data(), &value, one.bytes().size());
    }
    argument.bytes.assign(one.bytes().begin(), one.bytes().end());
    return argument;
  }
  const size_t close = text.find(']', split);
  if (close == std::string::npos) refuse("argument '" + text + "' has no ']'", kArgumentHelp);
  const int64_t count = to_integer(text.substr(split + 1, close - split - 1), "argument '" + text + "'");
  if (count < 1) refuse("argument '" + text + "': a buffer has at least one element", kArgumentHelp);
  argument.is_buffer = true;
  if (close + 1 < text.size() && text[close + 1] != '=')
    refuse("argument '" + text + "': '=' and the contents follow ']'", kArgumentHelp);
  const std::string fill = close + 1 < text.size() ? text.substr(close + 2) : "poison";
  if (fill == "random") {
    argument.contents = HostTensor::random(*dtype, {count}, seed);
  } else if (fill == "iota") {
    argument.contents = HostTensor::iota(*dtype, {count});
  } else if (fill == "zeros") {
    argument.contents = HostTensor(*dtype, {count});
  } else if (fill == "poison") {
    argument.contents = HostTensor(*dtype, {count});
    std::fill(argument.contents.bytes().begin(), argument.contents.bytes().end(), std::byte{0xFF});
  } else {
    refuse("argument '" + text + "': unknown contents '" + fill + "'", kArgumentHelp);
  }
  return argument;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) refuse("cannot read " + path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string target_of(const std::string& ptx) {
  size_t at = ptx.find(".target");
  if (at == std::string::npos) return "sm_100a";
  size_t begin = ptx.find("sm_", at);
  return begin == std::string::npos ? "sm_100a"
                                    : ptx.substr(begin, ptx.find_first_of(", \t\r\n", begin) - begin);
}

vgpu::Dim3 dim3(const std::vector<int64_t>& extents) {
  vgpu::Dim3 dim;
  if (extents.size() > 0) dim.x = extents[0];
  if (extents.size() > 1) dim.y = extents[1];
  if (extents.size() > 2) dim.z = extents[2];
  return dim;
}

int exec(const Options& options) {
  const std::string ptx = read_file(options.file);
  const std::shared_ptr<vgpu::Watch> watch = vgpu::watch_for_commands();
  bool all_clean = true;
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (int i = 0; i < options.seeds && !watch->stop; ++i) {
    vgpu::Options machine;
    machine.target = options.target.empty() ? target_of(ptx) : options.target;
    machine.seed = options.seed + i;
    machine.instruction_budget = options.budget;
    machine.count_sectors = options.coalescing;
    machine.watch = watch;
    machine.strictness = options.strict ? vgpu::Strictness::kStrict : vgpu::Strictness::kPractical;
    if (options.checks == "off") machine.checks = vgpu::CheckSet::none();
    if (options.checks == "all") machine.checks = vgpu::CheckSet::all();
    vgpu::VirtualGpu gpu(machine);
    vgpu::Module module = gpu.load_module(ptx, options.file);
    const std::vector<std::string> names = module.function_names();
    if (names.empty()) refuse(options.file + " has no .entry");
    if (options.entry.empty() && names.size() > 1)
      refuse(options.file + " has several entries",
             fmt::format("choose one with --entry: {}", fmt::join(names, ", ")));
    vgpu::Function function = module.function(options.entry.empty() ? names.front() : options.entry);
    const auto& parameters = function.parameters();
    if (parameters.size() != options.arguments.size())
      refuse(fmt::format("{} takes {} arguments, {} given", function.name(), parameters.size(),
                         options.arguments.size()),
             kArgumentHelp);
    std::vector<Argument> arguments;
    std::vector<uint64_t> addresses(options.arguments.size());
    int64_t bytes = 0;
    for (size_t a = 0; a < options.arguments.size(); ++a) {
      arguments.push_back(parse_argument(options.arguments[a], machine.seed * 1000003 + a));
      Argument& argument = arguments.back();
      if (argument.is_buffer) {
        addresses[a] = gpu.allocate(static_cast<int64_t>(argument.contents.bytes().size()));
        gpu.copy_to_device(addresses[a], argument.contents.bytes().data(), argument.contents.bytes().size());
        argument.bytes.resize(sizeof(uint64_t));
        std::memcpy(argument.bytes.data(), &addresses[a], sizeof(uint64_t));
      }
      if (static_cast<int64_t>(argument.bytes.size()) != parameters[a].bytes)
        refuse(fmt::format("argument {} is {} bytes, parameter {} takes {}", a + 1, argument.bytes.size(),
                           parameters[a].name, parameters[a].bytes),
               kArgumentHelp);
      bytes = std::max(bytes, parameters[a].offset + parameters[a].bytes);
    }
    std::vector<std::byte> buffer(bytes);
    for (size_t a = 0; a < arguments.size(); ++a)
      std::copy(arguments[a].bytes.begin(), arguments[a].bytes.end(), buffer.begin() + parameters[a].offset);
    if (options.shared > 0) function.set_max_dynamic_shared(options.shared);
    vgpu::Launch launch;
    launch.grid = dim3(options.grid), launch.block = dim3(options.block),
    launch.cluster = dim3(options.cluster);
    launch.dynamic_shared_bytes = options.shared;
    launch.parameter_buffer = buffer;
    vgpu::Report report = gpu.launch(function, launch);
    all_clean = all_clean && report.clean();
    nlohmann::ordered_json buffers = nlohmann::ordered_json::object();
    const bool is_last = i + 1 == options.seeds || watch->stop;
    if (!options.json && (!report.clean() || is_last)) {
      if (!report.clean() || !report.notes.empty())
        fmt::print("seed {}\n{}\n", machine.seed, report.format());
      fmt::print("{}: {} warp instructions, {} findings{}\n{}", function.name(),
                 report.statistics.instructions, report.findings.size(),
                 report.notes.empty() ? "" : fmt::format(", {} notes", report.notes.size()),
                 report.printf_output);
    }
    for (size_t a = 0; a < arguments.size(); ++a) {
      if (!arguments[a].is_buffer) continue;
      gpu.copy_from_device(arguments[a].contents.bytes().data(), addresses[a],
                           arguments[a].contents.bytes().size());
      std::vector<double> values = arguments[a].contents.to_doubles();
      if (static_cast<int64_t>(values.size()) > options.show) values.resize(options.show);
      buffers[parameters[a].name] = values;
      if (!options.json && is_last)
        fmt::print("  {} = {}{}\n", parameters[a].name, fmt::join(values, " "),
                   arguments[a].contents.elements() > options.show ? " ..." : "");
    }
    nlohmann::ordered_json findings = nlohmann::ordered_json::array(),
                           notes = nlohmann::ordered_json::array();
    for (const vgpu::Finding& finding : report.findings) findings.push_back(finding.format());
    for (const vgpu::Finding& note : report.notes) notes.push_back(note.format());
    runs.push_back({{"seed", machine.seed},
                    {"completed", report.completed},
                    {"findings", findings},
                    {"notes", notes},
                    {"instructions", report.statistics.instructions},
                    {"printf", report.printf_output},
                    {"buffers", buffers}});
    if (!options.coalescing) continue;
    if (options.json)
      runs.back()["coalescing"] = coalescing_json(report.sectors);
    else if (is_last)
      fmt::print("\n{}", coalescing_text(report.sectors, false));
  }
  if (options.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"file", options.file}, {"runs", runs}}.dump(2));
  return all_clean ? 0 : 1;
}

}  // namespace

void add_exec(Subcommand& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  Subcommand* command = app.add_subcommand("exec", "Run a PTX file of any compiler on the virtual GPU");
  command->add_option("FILE", options->file, "PTX text")->required()->existing_file();
  command->add_option("ARGUMENTS", options->arguments, kArgumentHelp);
  command->add_option("--entry", options->entry, "the kernel, where the file has several");
  command->add_option("--grid", options->grid, "CTAs in x, y, z")
      ->delimiter(',')
      ->expected(1, 3)
      ->capture_default_str();
  command->add_option("--block", options->block, "threads in x, y, z")
      ->delimiter(',')
      ->expected(1, 3)
      ->capture_default_str();
  command->add_option("--cluster", options->cluster, "CTAs of a cluster in x, y, z")
      ->delimiter(',')
      ->expected(1, 3);
  command->add_option("--shared", options->shared, "dynamic shared memory in bytes");
  command->add_option("--target", options->target,
                      "machine to run on, e.g. sm_100a (default: the file's .target)");
  command->add_option("--seed", options->seed, "seed of random buffers and of the schedule");
  command->add_option("--seeds", options->seeds, "run this many seeds")->between(1, 1000000);
  command->add_option("--checks", options->checks, "checkers: on or off (all: as on)")
      ->one_of({"on", "off", "all"});
  Option* strict = command->add_flag("--strict", options->strict,
                                     "hold the kernel to the letter of PTX (docs/checkers.md)");
  command->add_flag("--practical")
      ->description("the default: what libraries rely on is a note")
      ->excludes(strict);
  command->add_option("--budget", options->budget, "warp instructions before the launch counts as endless")
      ->at_least_zero();
  command->add_option("--show", options->show, "elements of each buffer to print afterwards")
      ->at_least_zero()
      ->capture_default_str();
  command->add_flag("--coalescing", options->coalescing,
                    "tell the sectors of global memory per request, as `imbrex coalescing` does");
  command->add_flag("--json", options->json, "print JSON");
  command->callback([&chosen, options] { chosen = [options] { return exec(*options); }; });
}

}  // namespace imbrex::command

// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "imbrex/core/error.h"
#include "imbrex/runtime/tuner.h"
#include "subcommands.h"
#include "svg.h"

namespace imbrex::command {
namespace {

struct Options {
  KernelChoice choice;
  BenchOptions bench;
  std::vector<std::string> others, shapes;
  bool json = false, csv = false, tune = false;
  std::string svg, rows;
};

[[noreturn]] void fail(const std::string& message, const std::string& help = "") {
  throw LaunchError(Diagnostic{{}, message, {}, help});
}

/// "4096x4096x14336" as the kernel's first sizes, in the order of `imbrex list`.
std::map<std::string, int64_t> with_shape(const RegisteredKernel& kernel,
                                          std::map<std::string, int64_t> sizes, const std::string& shape) {
  std::string_view rest = shape;
  size_t next = 0;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find('x'));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.begin(), word.end(), value);
    if (error != std::errc() || end != word.end() || value < 0)
      fail(fmt::format("--shape {}: '{}' is not a size", shape, word), "write --shape 4096x4096x1024");
    if (next == kernel.description.sizes.size())
      fail(fmt::format("--shape {}: {} has {} sizes", shape, kernel.description.name, next));
    sizes[kernel.description.sizes[next++].name] = value;
  }
  return sizes;
}

std::string shape_text(const RegisteredKernel& kernel, const BenchResult& result) {
  std::vector<int64_t> values;
  for (const SizeOption& size : kernel.description.sizes) values.push_back(result.sizes.at(size.name));
  return fmt::format("{}", fmt::join(values, "x"));
}

/// What `us` microseconds are: "712.3 TFLOPS" for a product, "3.21 TB/s" for others.
std::string rate(const BenchResult& result, double us) {
  if (us <= 0) return "-";
  if (result.flop > 0) return fmt::format("{:.1f} TFLOPS", result.flop / us / 1e6);
  return fmt::format("{:.2f} TB/s", static_cast<double>(result.bytes) / us / 1e6);
}

/// Of the tensor cores' 4096 FLOP (16-bit inputs) per clock and multiprocessor on Hopper.
double flop_per_clock(const BenchResult& result, const BenchMode& mode) {
  if (result.flop <= 0 || mode.clock_mhz <= 0 || mode.kernel.median <= 0) return 0;
  return result.flop / mode.kernel.median / mode.clock_mhz / result.multiprocessors;
}

void print_header(const BenchResult& first) {
  fmt::print("{}; {} of each in turn, cold L2, median ± half the interquartile range\n", first.device,
             first.rival.empty() ? "kernel" : "kernel and " + first.rival);
  fmt::print("{:<20} {:<22} {:<10} {:>10} {:>6} {:>14} {:>10} {:>14} {:>7} {:>9} {:>12}\n", "kernel", "sizes",
             "mode", "µs", "±", "rate", "rival µs", "rival rate", "ratio", "MHz", "FLOP/clk/SM");
}

void print_row(const RegisteredKernel& kernel, const BenchResult& result) {
  const std::string shape = shape_text(kernel, result);
  if (!result.verified) {
    fmt::print("{:<20} {:<22} WRONG, not timed: {}\n", result.kernel, shape, result.wrong);
    return;
  }
  for (const BenchMode& mode : result.modes)
    fmt::print(
        "{:<20} {:<22} {:<10} {:>10.2f} {:>5.1f}% {:>14} {:>10.2f} {:>14} {:>7.3f} {:>9.0f} {:>12.0f}\n",
        result.kernel, shape, mode.name, mode.kernel.median, 100 * mode.kernel.spread(),
        rate(result, mode.kernel.median), mode.rival.median, rate(result, mode.rival.median), mode.ratio(),
        mode.clock_mhz, flop_per_clock(result, mode));
  fmt::print("{:<20} {}; against {}\n", "", result.config, result.rival);
  if (!result.rival_missing.empty()) fmt::print("{:<20} {}\n", "", result.rival_missing);
  std::fflush(stdout);
}

nlohmann::ordered_json timing_json(const Timing& timing) {
  return {{"median_us", timing.median},
          {"low_us", timing.low},
          {"high_us", timing.high},
          {"spread", timing.spread()},
          {"launches", timing.launches}};
}

nlohmann::ordered_json result_json(const BenchResult& result) {
  nlohmann::ordered_json modes = nlohmann::ordered_json::array();
  for (const BenchMode& mode : result.modes)
    modes.push_back({{"mode", mode.name},
                     {"kernel", timing_json(mode.kernel)},
                     {"rival", timing_json(mode.rival)},
                     {"ratio", mode.ratio()},
                     {"clock_mhz", mode.clock_mhz},
                     {"flop_per_clock_and_sm", flop_per_clock(result, mode)}});
  return {{"kernel", result.kernel},
          {"device", result.device},
          {"config", result.config},
          {"sizes", result.sizes},
          {"verified", result.verified},
          {"wrong", result.wrong},
          {"max_rel_err", result.max_rel_err},
          {"rival", result.rival},
          {"rival_missing", result.rival_missing},
          {"flop", result.flop},
          {"bytes", result.bytes},
          {"modes", modes}};
}

void print_csv(const RegisteredKernel& kernel, const BenchResult& result, bool with_header) {
  if (with_header)
    fmt::print(
        "kernel,sizes,config,mode,verified,median_us,low_us,high_us,launches,rival,rival_median_us,ratio,"
        "clock_mhz,flop,bytes\n");
  for (const BenchMode& mode : result.modes)
    fmt::print("{},{},{},{},{},{:.3f},{:.3f},{:.3f},{},{},{:.3f},{:.4f},{:.0f},{:.0f},{}\n", result.kernel,
               shape_text(kernel, result), result.config, mode.name, result.verified, mode.kernel.median,
               mode.kernel.low, mode.kernel.high, mode.kernel.launches, result.rival, mode.rival.median,
               mode.ratio(), mode.clock_mhz, result.flop, result.bytes);
  if (result.modes.empty())
    fmt::print("{},{},{},,false,,,,,,,,,,\n", result.kernel, shape_text(kernel, result), result.config);
}

/// A bar for each result and mode: its ratio to the rival, with the rival's 1 as a line.
std::string plot(const std::vector<BenchResult>& results) {
  std::vector<std::pair<std::string, double>> bars;
  double largest = 1;
  for (const BenchResult& result : results)
    for (const BenchMode& mode : result.modes) {
      std::vector<std::string> sizes;
      for (const auto& [name, value] : result.sizes) sizes.push_back(fmt::format("{}={}", name, value));
      bars.emplace_back(fmt::format("{} {} {}: {}", result.kernel, fmt::join(sizes, " "), mode.name,
                                    rate(result, mode.kernel.median)),
                        mode.ratio());
      largest = std::max(largest, mode.ratio());
    }
  constexpr double kRow = 24, kLeft = 12, kWidth = 560, kTop = 40;
  const double scale = kWidth / (1.1 * largest), height = kTop + kRow * static_cast<double>(bars.size()) + 12;
  Svg svg(kLeft * 2 + kWidth, height);
  svg.rect(0, 0, kLeft * 2 + kWidth, height, "fill:#ffffff");
  const std::string font = "font: 12px sans-serif; fill:#222";
  svg.text(kLeft, 22,
           results.empty() ? "" : fmt::format("{}: speed over {}", results[0].device, results[0].rival),
           "start", "font: bold 13px sans-serif; fill:#222");
  for (size_t i = 0; i < bars.size(); ++i) {
    const double y = kTop + kRow * static_cast<double>(i);
    svg.rect(kLeft, y, scale * bars[i].second, kRow - 6,
             bars[i].second >= 1 ? "fill:#8fc79a" : "fill:#9db8d9", bars[i].first);
    svg.text(kLeft + 4, y + 13, fmt::format("{}  ({:.2f}×)", bars[i].first, bars[i].second), "start", font);
  }
  svg.line(kLeft + scale, kTop - 6, kLeft + scale, height - 8, "stroke:#c0392b; stroke-width:1.5");
  return svg.str();
}

Configuration configuration_for(const RegisteredKernel& kernel, const std::map<std::string, int64_t>& sizes,
                                const Options& options) {
  if (options.choice.has_configuration()) return options.choice.configuration();
  if (options.tune) {
    TuneOptions how;
    how.device = "cuda";
    const TuneResult tuned = tune(kernel, sizes, how);
    if (const Candidate* winner = tuned.winner()) return winner->configuration;
  }
  const auto found = find_tuned(kernel, sizes, Device::cuda());
  return found ? found->configuration : kernel.space.configuration(0);
}

/// The fields of a line of CSV without quotes.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == ',')
      fields.emplace_back();
    else if (c != '\r')
      fields.back() += c;
  }
  return fields;
}

/// Measures every row of a file, each kernel by itself; prints them with what was measured. A row that cannot be measured is
/// told of and left out.
int measure_rows(const Options& options) {
  std::ifstream file(options.rows);
  if (!file) fail(fmt::format("cannot read {}", options.rows), "it is CSV: kernel,sizes,config");
  BenchOptions how = options.bench;
  how.alone = true;
  bool all_right = true;
  std::string line;
  // Inputs and references are shared by neighbours that have all sizes in common.
  std::pair<std::string, std::string> problem;
  fmt::print("kernel,sizes,config,mhz,us,low_us,high_us\n");
  while (std::getline(file, line)) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() < 3 || fields[0] == "kernel") continue;
    try {
      const RegisteredKernel& kernel = registered_kernel(fields[0]);
      std::map<std::string, int64_t> sizes;
      for (const SizeOption& size : kernel.description.sizes) sizes[size.name] = size.otherwise;
      sizes = with_shape(kernel, sizes, fields[1]);
      if (const std::pair now{fields[0], fields[1]}; now != problem || how.data == nullptr) {
        how.data = std::make_shared<CaseData>();
        problem = now;
      }
      Configuration configuration = kernel.space.configuration(0);
      for (const Setting& given : kernel.space.parse(fields[2]))
        for (Setting& setting : configuration)
          if (setting.name == given.name) setting.bits = given.bits;
      const BenchResult result = bench(kernel, sizes, configuration, how);
      for (const BenchMode& mode : result.modes)
        fmt::print("{},{},{},{:.0f},{:.3f},{:.3f},{:.3f}\n", result.kernel, shape_text(kernel, result),
                   result.config, mode.clock_mhz, mode.kernel.median, mode.kernel.low, mode.kernel.high);
      if (!result.verified) fmt::print(stderr, "{}: wrong, not timed: {}\n", line, result.wrong);
      all_right = all_right && result.verified;
    } catch (const Error& error) {
      fmt::print(stderr, "{}: {}\n", line, error.what());
      all_right = false;
    }
    std::fflush(stdout);
  }
  return all_right ? 0 : 1;
}

int run(const Options& options) {
  std::vector<const RegisteredKernel*> kernels{&options.choice.kernel()};
  for (const std::string& name : options.others) kernels.push_back(&registered_kernel(name));
  std::vector<std::string> shapes = options.shapes;
  if (shapes.empty()) shapes.emplace_back();
  std::vector<BenchResult> results;
  bool all_right = true;
  for (const std::string& shape : shapes)
    for (const RegisteredKernel* kernel : kernels) {
      std::map<std::string, int64_t> sizes =
          options.choice.sizes();  // refuses a size that the first one does not have
      if (kernel != kernels[0]) sizes.clear();
      for (const SizeOption& size : kernel->description.sizes)
        sizes[size.name] = options.choice.given(size.name, size.otherwise);
      sizes = with_shape(*kernel, sizes, shape);
      if (std::string why_not; !Device::has_cuda(&why_not))
        throw DeviceError(
            Diagnostic{{}, why_not, {}, "to predict a time without a GPU: imbrex predict KERNEL"});
      results.push_back(bench(*kernel, sizes, configuration_for(*kernel, sizes, options), options.bench));
      all_right = all_right && results.back().verified;
      if (options.csv) {
        print_csv(*kernel, results.back(), results.size() == 1);
      } else if (!options.json) {
        if (results.size() == 1) print_header(results.back());
        print_row(*kernel, results.back());
      }
    }
  if (options.json) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const BenchResult& result : results) out.push_back(result_json(result));
    fmt::print("{}\n", out.dump(2));
  } else if (!options.csv && results.size() > 1) {
    double logs = 0;
    int count = 0;
    for (const BenchResult& result : results)
      for (const BenchMode& mode : result.modes) logs += std::log(mode.ratio()), ++count;
    if (count > 0) fmt::print("geometric mean of the ratios: {:.3f}\n", std::exp(logs / count));
  }
  if (!options.svg.empty()) write_file(options.svg, plot(results));
  return all_right ? 0 : 1;
}

}  // namespace

void add_bench(Subcommand& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  auto modes = std::make_shared<std::string>("burst");
  auto warm = std::make_shared<bool>(false);
  Subcommand* command = app.add_subcommand(
      "bench", "Time a kernel on a CUDA GPU against cuBLASLt, cuDNN, or a copy of as many bytes");
  options->choice.add_to(*command, KernelChoice::Need::kOptional);
  command->add_option("--and", options->others, "more kernels, with the same sizes")->delimiter(',');
  command
      ->add_option("--shape", options->shapes,
                   "sizes in the order of `imbrex list`, 4096x4096x1024; several with commas")
      ->delimiter(',');
  command
      ->add_option("--mode", *modes,
                   "burst (a few launches after a pause), sustained (after seconds of load), both")
      ->one_of({"burst", "sustained", "both"})
      ->capture_default_str();
  command->add_option("--launches", options->bench.burst_launches, "of each in a burst")
      ->between(1, 100000)
      ->capture_default_str();
  command->add_option("--pause", options->bench.pause_s, "seconds before a burst")
      ->between(0.0, 600.0)
      ->capture_default_str();
  command->add_option("--warm-up", options->bench.warm_up_s, "seconds of load before sustained launches")
      ->between(0.0, 600.0)
      ->capture_default_str();
  command->add_flag("--warm-l2", *warm, "leave in the L2 what the last launch left there");
  command->add_flag("--tune", options->tune, "tune for each shape first");
  command->add_option("--seed", options->bench.seed, "seed of the inputs");
  command->add_flag("--json", options->json, "print JSON");
  command->add_flag("--csv", options->csv, "print CSV");
  command->add_option("--svg", options->svg, "draw the ratios into this file");
  command->add_option(
      "--from", options->rows,
      "measure every row of this CSV (kernel,sizes,config), each without a rival, and print it "
      "with its clock and its time");
  command->footer(
      "The kernel is verified first; a wrong one is not timed. Ratio: the rival's time over the kernel's, "
      "above 1 "
      "the\n"
      "kernel is faster. Attention's rival is cuDNN where python3 (or $IMBREX_PYTHON) has PyTorch. The clock "
      "is the\n"
      "chip's own, so that slower code and a slower clock are told apart.");
  command->callback([&chosen, command, options, modes, warm] {
    chosen = [=] {
      if (*modes == "burst") refuse_given(*command, {"--warm-up"}, "goes with --mode sustained or both");
      if (*modes == "sustained")
        refuse_given(*command, {"--launches", "--pause"}, "goes with --mode burst or both");
      if (options->rows.empty() != options->choice.is_given())
        fail("bench: name a KERNEL, or a file by --from", "`imbrex list` lists the kernels");
      options->bench.burst = *modes != "sustained";
      options->bench.sustained = *modes != "burst";
      options->bench.cold_l2 = !*warm;
      if (!options->rows.empty()) {
        refuse_given(*command, {"--and", "--shape", "--tune", "--json", "--svg", "--config"},
                     "does not go with --from");
        return measure_rows(*options);
      }
      return run(*options);
    };
  });
}

}  // namespace imbrex::command

// SPDX-License-Identifier: Apache-2.0
// `imbrex trace`: runs a kernel on the virtual GPU and draws where its time would go on the chip.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "gpu_choice.h"
#include "imbrex/core/error.h"
#include "imbrex/runtime/machine_code.h"
#include "subcommands.h"
#include "svg.h"
#include "timeline_text.h"
#include "timeline_view.h"

namespace imbrex::command {

namespace {

struct Options {
  KernelChoice choice;
  GpuChoice gpu;
  std::string output, svg;
  int64_t cta = 0;
  int sms = 0;
  double clock = 0;
  SvgOptions picture;
  bool no_barriers = false;
};

int trace(const Options& options) {
  const RegisteredKernel& kernel = options.choice.kernel();
  const Configuration configuration = options.choice.configuration();
  vgpu::Options machine;
  const GpuModel gpu = options.gpu.gpu_for(kernel);
  machine.target = gpu.target;
  machine.num_sms = options.sms > 0 ? options.sms : gpu.sms;
  machine.checks = vgpu::CheckSet::none();
  machine.tensor_math = vgpu::TensorMath::kFast;
  predict_from_machine_code();
  machine.timeline = {.record = true,
                      .cta = options.cta,
                      .clock_ghz = options.clock,
                      .gpu = std::make_shared<const GpuModel>(gpu)};
  const Device device = Device::virtual_gpu(machine);
  Case c(Case::Mode::kRun, device, options.choice.sizes(), 0);
  kernel.run(c, device, configuration);
  const vgpu::Report& report = c.report.virtual_report;
  if (report.timeline == nullptr) {
    fmt::print(stderr, "{}\n", report.format());
    return 1;
  }
  const vgpu::Timeline& timeline = *report.timeline;
  if (timeline.lanes.empty())
    throw LaunchError(Diagnostic{{},
                                 fmt::format("CTA {} was not launched", options.cta),
                                 {fmt::format("the launch ran {} CTAs", timeline.ctas)},
                                 "with cluster launch control, CTAs that run take over those that do not"});
  const int64_t from = options.picture.begin, to = options.picture.end;
  if (from >= static_cast<int64_t>(timeline.cycles) || (to != 0 && to <= from))
    throw LaunchError(Diagnostic{{},
                                 fmt::format("there is no picture from cycle {} to {}", from, to),
                                 {fmt::format("the launch took {} cycles", timeline.cycles)},
                                 ""});
  Case traced(Case::Mode::kTrace, std::nullopt, options.choice.sizes(), 0);
  kernel.run(traced, std::nullopt, configuration);

  TimelineView view = view_of(timeline, thread_groups(*traced.function));
  std::vector<std::string> sizes;
  for (const SizeOption& size : kernel.description.sizes)
    sizes.push_back(fmt::format("{}={}", size.name, options.choice.sizes().at(size.name)));
  view.title = kernel.description.name;
  view.subtitle = fmt::format("{}   {}", fmt::join(sizes, " "), kernel.space.to_string(configuration));
  if (!options.output.empty()) write_file(options.output, timeline_json(view));
  SvgOptions picture = options.picture;
  picture.with_barriers = !options.no_barriers;
  if (!options.svg.empty()) write_file(options.svg, timeline_svg(view, picture));
  fmt::print("{}  {}\n{}", view.title, fmt::join(sizes, " "), prediction_text(timeline));
  return c.verified() ? 0 : 1;
}

}  // namespace

void add_trace(Subcommand& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  Subcommand* command = app.add_subcommand(
      "trace", "Predict a kernel's timeline on the chip: warps, TMA, tensor core, barriers");
  options->choice.add_to(*command);
  options->gpu.add_to(*command);
  command->add_option("-o,--output", options->output, "write the trace for Perfetto (ui.perfetto.dev) here");
  command->add_option("--svg", options->svg, "write a picture here");
  command->add_option("--cta", options->cta, "draw this CTA and those of its cluster")->capture_default_str();
  GpuChoice::add_sms_to(*command, options->sms);
  command->add_option("--clock", options->clock, "clock of the multiprocessors in GHz (0: the chip's)")
      ->between(0.0, 100.0);
  command->add_option("--from", options->picture.begin, "first cycle of the picture")->at_least_zero();
  command->add_option("--to", options->picture.end, "last cycle of the picture (0: the end)")
      ->at_least_zero();
  command->add_flag("--no-barriers", options->no_barriers, "leave the barriers out of the picture");
  command->callback([&chosen, command, options] {
    chosen = [command, options] {
      if (options->svg.empty())
        refuse_given(*command, {"--from", "--to", "--no-barriers"}, "goes with --svg");
      if (std::isnan(options->clock)) throw LaunchError(Diagnostic{{}, "--clock is not a number", {}, ""});
      return trace(*options);
    };
  });
}

}  // namespace imbrex::command

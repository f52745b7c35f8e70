// SPDX-License-Identifier: Apache-2.0
#include "explain_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "imbrex/core/error.h"
#include "pages.h"
#include "roofline_view.h"
#include "svg.h"
#include "timeline_text.h"
#include "timeline_view.h"

namespace imbrex::command {

KernelExplanation explain_kernel(const KernelChoice& choice, const GpuChoice& gpu) {
  KernelExplanation e;
  e.kernel = &choice.kernel();
  e.sizes = sizes_text(choice);
  e.configuration = e.kernel->space.to_string(choice.configuration());
  e.gpu = gpu.gpu_for(*e.kernel);
  e.traffic = counted_traffic(choice);
  const Case traced = traced_kernel(choice), again = traced_kernel(choice);
  e.groups = thread_groups(*traced.function);
  e.resources = kernel_resources(*traced.function);
  e.code = kernel_code(ir_after(*again.function, ""), e.resources.ptx);
  e.occupancy = occupancy(e.gpu.target, e.resources.cta);
  constexpr size_t kMostConfigurations = 100;
  if (e.kernel->space.size() > 1 && e.kernel->space.size() <= kMostConfigurations)
    for (const Configuration& configuration : e.kernel->space.configurations())
      e.space.push_back(compile_candidate(choice, configuration, false, e.gpu.target));
  e.run = study_run(choice, e.gpu, true);
  if (e.run.report.timeline == nullptr)
    throw LaunchError(Diagnostic{{}, "the kernel does not run to its end", {e.run.report.format()}, ""});
  const int64_t flops = e.traffic.counts.tensor_flops;
  e.roofline = roofline(e.gpu, e.traffic.operands,
                        static_cast<double>(flops > 0 ? flops : e.run.report.statistics.lane_instructions),
                        e.traffic.levels());
  return e;
}

std::string bytes_text(double bytes) {
  return bytes < 10000 ? fmt::format("{:.0f} B", bytes) : scaled(bytes) + "B";
}

std::string with_thousands(int64_t value) {
  std::string digits = std::to_string(value);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), "\u202f");  // a narrow space
  return digits;
}

std::string ExplanationPage::place(const std::string& file, int64_t line) const {
  const std::string text = svg_escaped(place_text(file, line)), key = e_.code.key(file, line);
  if (key.empty()) return text;
  return fmt::format(R"(<a href="#source-{0}" data-k="{0}">{1}</a>)", key, text);
}

void ExplanationPage::open(const char* id, const char* title, const char* lead) {
  html_.add("<section id=\"{}\">\n<h2>{}</h2>\n<p class=\"lead\">{}</p>\n", id, title, lead);
}

void ExplanationPage::head() {
  const vgpu::Timeline& t = *e_.run.report.timeline;
  html_.add(
      "<nav><a href=\"#nest\">Tiles</a><a href=\"#traffic\">Traffic</a><a href=\"#roof\">Roofline</a>"
      "<a href=\"#fit\">Fit</a><a href=\"#banks\">Banks</a><a href=\"#timeline\">Timeline</a>"
      "<a href=\"#code\">Code</a></nav>\n<main>\n");
  html_.add("<h1>{}</h1>\n<p class=\"lead\">{}</p>\n", svg_escaped(e_.kernel->description.name),
            svg_escaped(e_.kernel->description.summary));
  html_.add("<p class=\"code soft\">{} &nbsp; {} &nbsp; {}</p>\n", svg_escaped(e_.sizes),
            svg_escaped(e_.configuration), e_.resources.target);
  const auto card = [&](const std::string& number, const std::string& what, const char* state = "") {
    html_.add("<div class=\"card\"><b class=\"{}\">{}</b><span>{}</span></div>\n", state, number, what);
  };
  html_.add("<div class=\"cards\">\n");
  card(e_.run.verified ? "verified" : "wrong",
       fmt::format("against float64, largest relative error {:.2g}", e_.run.max_rel_err),
       e_.run.verified ? "good" : "bad");
  if (t.complete) card(duration(t.microseconds()), fmt::format("predicted on {}", svg_escaped(t.chip)));
  const RoofLevel& bound = e_.roofline.bound();
  card(bound.is_compute_bound() ? "computing" : bound.name,
       fmt::format("is the lowest roof: at most {:.0f} % of the peak",
                   100 * bound.attainable / e_.roofline.peak));
  card(
      e_.occupancy.is_feasible()
          ? fmt::format("{} CTA{} per SM", e_.occupancy.ctas_per_sm, e_.occupancy.ctas_per_sm == 1 ? "" : "s")
          : "does not fit",
      fmt::format("{} warps, bound by {}", e_.occupancy.warps_per_sm, fmt::join(e_.occupancy.bound, " and ")),
      e_.occupancy.is_feasible() ? "" : "bad");
  int64_t wavefronts = 0, ideal = 0;
  for (const vgpu::BankUse& use : e_.run.report.banks) wavefronts += use.wavefronts, ideal += use.ideal;
  if (wavefronts == ideal)
    card("none", "bank conflicts", "good");
  else
    card(percent(static_cast<double>(wavefronts - ideal) / static_cast<double>(wavefronts)),
         "of shared memory's cycles are bank conflicts", "bad");
  if (t.overlap >= 0) card(percent(t.overlap), "of loads or products hidden behind each other");
  html_.add("</div>\n");
}

// ---- traffic and roofline

namespace {

/// The name of a memory in its colour.
std::string coloured(const std::string& memory) {
  const char* tint = memory == "global memory"   ? "hbm"
                     : memory == "shared memory" ? "shared"
                     : memory == "tensor memory" ? "tmem"
                     : memory == "registers"     ? "registers"
                                                 : "core";
  return fmt::format("<span class=\"{} tinted\">{}</span>", tint, memory);
}

/// Copies of one statement, as unrolled loops have them, together.
std::vector<KernelMove> by_statement(const std::vector<KernelMove>& moves) {
  std::vector<KernelMove> sums;
  for (const KernelMove& move : moves) {
    const auto same = std::find_if(sums.begin(), sums.end(), [&](const KernelMove& m) {
      return m.op == move.op && m.tile == move.tile && m.from == move.from &&
             m.where.line == move.where.line && std::string_view(m.where.file) == move.where.file;
    });
    if (same == sums.end()) {
      sums.push_back(move);
    } else {
      same->times += move.times;
      same->bytes += move.bytes;
    }
  }
  return sums;
}

}  // namespace

void ExplanationPage::traffic() {
  open("traffic", "Bytes moved, and how often each is used again",
       "Counted from the IR for these sizes: every load and store with its tile, its edges and its copies.");
  const std::vector<std::string> different =
      differences(e_.traffic.counts, counts_of(e_.run.report.statistics));
  if (different.empty())
    html_.add("<p class=\"good\">The virtual GPU moved exactly these bytes when it ran the kernel.</p>\n");
  else
    html_.add("<p class=\"bad\">The virtual GPU moved others: {}</p>\n",
              svg_escaped(fmt::format("{}", fmt::join(different, "; "))));
  html_.open_table({"<level", "moved", "operations per byte", "<reuse"});
  double before = 0;
  for (const RoofLevel& level : e_.roofline.levels) {
    html_.row(
        {{level.name, "word"},
         {scaled(level.bytes) + "B"},
         {fmt::format("{:.4g}", e_.roofline.flops / level.bytes)},
         {before == 0 ? "every tensor once: the least there can be"
                      : fmt::format("{:.3g} bytes for each byte of the level above", level.bytes / before),
          "wide soft"}});
    before = level.bytes;
  }
  html_.close_table();
  html_.add("<h3>By statement</h3>\n");
  html_.open_table({"<line", "bytes", "<from → to", "<what", "<tile", "times"});
  for (const KernelMove& m : by_statement(e_.traffic.moves))
    html_.row({{place(m.where.file, m.where.line), "word"},
               {bytes_text(static_cast<double>(m.bytes))},
               {coloured(m.from) + " → " + coloured(m.to), "word"},
               {m.op, "word code"},
               {svg_escaped(m.tile), "word code"},
               {with_thousands(m.times)}});
  html_.close_table();
  close();
}

void ExplanationPage::roof() {
  open("roof", "Under the roofs",
       "A level's roof is its bandwidth times the operations done for each of its bytes; left of its ridge "
       "that "
       "roof holds the kernel down, right of it the tensor cores can reach their peak.");
  const RoofLevel& bound = e_.roofline.bound();
  html_.add("<p>{}: {}op at least {}, at most {:.0f} % of the peak of {}op/s.</p>\n",
            bound.is_compute_bound() ? "Bound by computing" : "Bound by " + bound.name,
            scaled(e_.roofline.flops), duration(e_.roofline.seconds() * 1e6),
            100 * bound.attainable / e_.roofline.peak, scaled(e_.roofline.peak));
  html_.add("<figure class=\"chart scroll\">{}</figure>\n",
            roofline_svg(e_.gpu, e_.roofline, fmt::format("{} {}", e_.kernel->description.name, e_.sizes)));
  close();
}

// ---- what an SM holds

void ExplanationPage::fit() {
  open("fit", "Does it fit, and how often",
       "What one CTA takes of an SM. The resource that fills first decides how many CTAs run side by side.");
  const std::vector<std::string>& bound = e_.occupancy.bound;
  html_.open_table({"<resource", "a CTA takes", "an SM has", "<", "CTAs that fit"});
  for (const ResourceUse& use : e_.occupancy.uses) {
    if (use.taken == 0) continue;
    const double share = std::min(1.0, static_cast<double>(use.taken) / static_cast<double>(use.per_sm));
    const bool is_bound = std::find(bound.begin(), bound.end(), use.name) != bound.end();
    html_.row({{use.name + (is_bound ? " <b>(the limit)</b>" : ""), "word"},
               {with_thousands(use.taken)},
               {with_thousands(use.per_sm)},
               {fmt::format("<span class=\"meter\"><i class=\"{}\" style=\"width:{:.0f}%\"></i></span>",
                            is_bound ? "full" : "", 100 * share),
                "word"},
               {std::to_string(use.complaint.empty() ? use.ctas : 0)}});
  }
  html_.close_table();
  if (e_.occupancy.is_feasible())
    html_.add("<p>{} warps per SM, occupancy {}.", e_.occupancy.warps_per_sm, percent(e_.occupancy.fraction));
  else
    html_.add("<p class=\"bad\">{}", svg_escaped(e_.occupancy.complaints()));
  html_.add(
      " <span class=\"soft\">Registers are estimated from the PTX: the most are alive at {}.</span></p>\n",
      place(e_.resources.pressure.file, e_.resources.pressure.line));
  if (!e_.space.empty())
    html_.add("<figure class=\"chart scroll\">{}</figure>\n",
              tile_space_svg(e_.kernel->description.name, e_.gpu.target, e_.space));
  close();
}

void ExplanationPage::banks() {
  open("banks", "Bank conflicts by line",
       "Shared memory has 32 banks of 4 bytes and serves 128 bytes a cycle. Lanes that want different words "
       "of "
       "one bank wait for each other.");
  const std::vector<LineBanks> lines = banks_by_line(e_.run.report.banks);
  if (lines.empty()) {
    html_.add("<p>No thread of this kernel reads or writes shared memory itself.</p>\n");
    return close();
  }
  html_.open_table(
      {"<line", "conflict", "cycles", "without conflicts", "<access", "bytes per lane", "instructions", "<"});
  LineBanks sum;
  for (const LineBanks& b : lines) {
    html_.row({{place(b.file, b.line), "word"},
               {b.degree > 1 ? fmt::format("{}-way", b.degree) : "none", b.degree > 1 ? "bad" : "good"},
               {with_thousands(b.wavefronts)},
               {with_thousands(b.ideal)},
               {b.writes ? "write" : "read", "word"},
               {std::to_string(b.bytes)},
               {with_thousands(b.accesses)},
               {svg_escaped(trimmed_line(b.file, b.line)), "word code"}});
    sum.accesses += b.accesses;
    sum.wavefronts += b.wavefronts;
    sum.ideal += b.ideal;
  }
  html_.row({{"all", "word"},
             {},
             {with_thousands(sum.wavefronts)},
             {with_thousands(sum.ideal)},
             {},
             {},
             {with_thousands(sum.accesses)},
             {}},
            "total");
  html_.close_table();
  const bool agree = lines == banks_by_line(e_.traffic.banks);
  html_.add("<p class=\"{}\">{}</p>\n", agree ? "good" : "bad",
            agree ? "Counted by the virtual GPU; the prediction from the layouts is the same, line by line."
                  : "Counted by the virtual GPU; the prediction from the layouts differs.");
  close();
}

// ---- time

namespace {
/// Longer timelines are shown up to here: the start and some rounds of the main loop.
constexpr int64_t kMostCycles = 30000, kShownCycles = 24000;
}  // namespace

void ExplanationPage::timeline() {
  const vgpu::Timeline& t = *e_.run.report.timeline;
  open("timeline", "The pipeline in time",
       "Predicted for the chip from the run on the virtual GPU: what each role of warps, each unit and each "
       "barrier does when.");
  if (!t.complete || t.lanes.empty()) {
    html_.add("<p>The simulation of its time got stuck; there is nothing to show.</p>\n");
    return close();
  }
  html_.add(
      "<p>Busy: tensor cores {}, TMA {}, L2 {}, HBM {}, issue slots {}; warps wait {} of their time.</p>\n",
      percent(t.use.tensor_core), percent(t.use.tma), percent(t.use.l2), percent(t.use.hbm),
      percent(t.use.issue), percent(t.use.waiting));
  TimelineView view = view_of(t, e_.groups);
  view.title = e_.kernel->description.name;
  view.subtitle = fmt::format("{}   {}", e_.sizes, e_.configuration);
  SvgOptions picture;
  if (t.cycles > kMostCycles) {
    picture.end = kShownCycles;
    html_.add("<p class=\"soft\">The first {} of {} cycles.</p>\n", with_thousands(kShownCycles),
              with_thousands(t.cycles));
  }
  html_.add("<figure class=\"wide scroll\">{}</figure>\n", timeline_svg(view, picture));
  close();
}

std::string ExplanationPage::body() {
  head();
  nest();
  traffic();
  roof();
  fit();
  banks();
  timeline();
  code();
  html_.add("<footer>Made by <code>imbrex explain {}</code>.</footer>\n</main>\n",
            svg_escaped(e_.kernel->description.name));
  return html_.take();
}

namespace {

std::string with(std::string text, std::string_view mark, const std::string& by) {
  return text.replace(text.find(mark), mark.size(), by);
}

}  // namespace

std::string explanation_page(const KernelExplanation& explanation) {
  const std::string title = fmt::format("{} {}", explanation.kernel->description.name, explanation.sizes);
  return with(with(std::string(kExplainPage), "/*TITLE*/", svg_escaped(title)), "/*BODY*/",
              ExplanationPage(explanation).body());
}

}  // namespace imbrex::command

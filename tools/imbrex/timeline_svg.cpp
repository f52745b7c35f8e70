// SPDX-License-Identifier: Apache-2.0
// Timelines as a picture: a lane for each warp role, unit and barrier; time runs to the right.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "svg.h"
#include "timeline_text.h"
#include "timeline_view.h"

namespace imbrex::command {

namespace {

using vgpu::LaneKind;
using vgpu::SpanKind;
using vgpu::TimelineSpan;

constexpr double kPlot = 950, kLeastLabels = 262, kRight = 28, kTop = 118;
constexpr double kLaneGap = 7, kHeadingHeight = 26, kLegendHeight = 64;
constexpr double kCharacter = 5.9;  // of the labels in boxes, in pixels

struct Style {
  const char *fill, *ink, *legend;
};

Style style_of(SpanKind kind) {
  static constexpr std::array<Style, 8> kStyles{
      {{"#64748b", "#ffffff", "warp runs"},
       {"url(#wait)", "#6e7781", "warp waits"},
       {"#3d7fc4", "#ffffff", "load in flight"},
       {"#8a63c9", "#ffffff", "store in flight"},
       {"#e07b28", "#ffffff", "tensor core multiplies"},
       {"#2a9d74", "#ffffff", "tensor memory moves"},
       {"#c2487f", "#ffffff", "launch control"},
       {"#93a5ba", "#24292f", "barrier: first arrival to completion"}}};
  return kStyles[static_cast<size_t>(kind)];
}

std::string with_thousands(int64_t value) {
  std::string digits = std::to_string(value);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), "\u2009");  // a thin space
  return digits;
}

double row_height(LaneKind kind, int rows) {
  switch (kind) {
    case LaneKind::kWarp:
    case LaneKind::kTensorCore:
      return rows > 1 ? 14 : 22;
    case LaneKind::kBarrier:
      return 12;
    case LaneKind::kTensorMemory:
      return rows > 2 ? 6 : 12;
    default:
      return rows > 3 ? 10 : rows > 1 ? 14 : 18;
  }
}

/// A step of 1, 2 or 5 times a power of ten that gives about `count` ticks.
double nice_step(double length, double count) {
  const double rough = std::max(length / count, 1e-9), power = std::pow(10, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power) return factor * power;
  return 10 * power;
}

class Picture {
 public:
  Picture(const TimelineView& view, const SvgOptions& options) : view_(view), options_(options) {
    begin_ = static_cast<double>(options.begin);
    end_ = static_cast<double>(options.end > options.begin ? options.end : last_end());
    end_ = std::max(end_, begin_ + 1);
    labels_ = std::max(kLeastLabels, labels_width());
  }

  std::string draw();

 private:
  double last_end() const;
  /// Of the names and details before the lanes, side by side.
  double labels_width() const;
  double whole_width() const { return labels_ + kPlot + kRight; }
  bool is_drawn(const LaneView& lane) const;
  double x(double cycles) const { return labels_ + (cycles - begin_) / (end_ - begin_) * kPlot; }
  void draw_lanes();
  void draw_lane(const LaneView& lane);
  void draw_row(const LaneView& lane, int row, double top, double height);
  void draw_box(const TimelineSpan& span, double from, double to, double top, double height, int merged);
  std::string label(const TimelineSpan& span, double width) const;
  void draw_axis(double bottom);
  void draw_legend(double top);
  void draw_header();

  const TimelineView& view_;
  SvgOptions options_;
  double begin_ = 0, end_ = 1, y_ = kTop, legend_bottom_ = 0, labels_ = 0;
  std::string lanes_, grid_, head_;
  std::array<bool, 8> used_{};
};

double Picture::last_end() const {
  int64_t end = 1;
  for (const LaneView& lane : view_.lanes)
    for (const TimelineSpan& span : lane.lane->spans) end = std::max(end, span.end);
  return static_cast<double>(end);
}

bool Picture::is_drawn(const LaneView& lane) const {
  if (lane.is_repeated || lane.lane->spans.empty()) return false;
  return lane.lane->kind != LaneKind::kBarrier || options_.with_barriers;
}

std::string Picture::label(const TimelineSpan& span, double width) const {
  const auto fits = [&](const std::string& text) {
    return width > kCharacter * static_cast<double>(text.size()) + 6;
  };
  const std::string text = vgpu::name(span.kind), what = view_.text_of(span);
  if (span.kind == SpanKind::kWait) {
    // "waits for full_barriers[1], phase 3": the name, if there is room.
    constexpr size_t kPrefix = 10;
    const size_t end = what.find(',');
    if (what.size() > kPrefix && fits(what.substr(kPrefix, end - kPrefix)))
      return what.substr(kPrefix, end - kPrefix);
  } else if (span.kind == SpanKind::kMatrix) {
    const size_t space = what.find(' ');
    if (space == std::string::npos) return "";
    const std::string shape = what.substr(space + 1, what.find(' ', space + 1) - space - 1);
    return fits(shape) ? shape : "";
  } else if (const size_t open = what.find('{'); open != std::string::npos) {
    // A tile's coordinates.
    const std::string longer = text + " " + what.substr(open, what.find('}') + 1 - open);
    if (fits(longer)) return longer;
  }
  return fits(text) && span.kind != SpanKind::kPhase ? text : "";
}

void Picture::draw_box(const TimelineSpan& span, double from, double to, double top, double height,
                       int merged) {
  used_[static_cast<size_t>(span.kind)] = true;
  const Style style = style_of(span.kind);
  const double inset = to - from > 4 ? 0.5 : 0,
               width = std::max(to - from - 2 * inset, span.kind == SpanKind::kPhase ? 2.0 : 0.8);
  std::string title = svg_escaped(view_.describe(span));
  if (merged > 1) title = fmt::format("{} in a row, the first:\n{}", merged, title);
  lanes_ += fmt::format(
      R"(<g><title>{}</title><rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="{}" fill="{}"/>)",
      title, from + inset, top, width, height, width > 6 ? 2.5 : 0.5, style.fill);
  const std::string text = merged > 1 || height < 11 ? "" : label(span, width);
  if (!text.empty())
    lanes_ += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" class="b" fill="{}">{}</text>)", (from + to) / 2,
                          top + height / 2 + 3.5, style.ink, svg_escaped(text));
  lanes_ += "</g>\n";
}

void Picture::draw_row(const LaneView& lane, int row, double top, double height) {
  // What is too thin to be told apart is drawn as one box.
  constexpr double kThin = 2.5, kGap = 0.8;
  TimelineSpan first;
  double from = 0, to = -1;
  int merged = 0;
  const auto flush = [&] {
    if (merged > 0) draw_box(first, from, to, top, height, merged);
    merged = 0;
  };
  for (size_t i = 0; i < lane.lane->spans.size(); ++i) {
    const TimelineSpan& span = lane.lane->spans[i];
    const auto begin = static_cast<double>(span.begin), end = static_cast<double>(span.end);
    if (lane.row[i] != row || end < begin_ || begin > end_) continue;
    const double left = x(std::max(begin, begin_)), right = std::max(x(std::min(end, end_)), left + 0.4);
    const bool joins = merged > 0 && first.kind == span.kind && left - to < kGap && right - left < kThin &&
                       (merged > 1 || to - from < kThin);
    if (joins) {
      to = std::max(to, right);
      ++merged;
      continue;
    }
    flush();
    first = span;
    from = left;
    to = right;
    merged = 1;
  }
  flush();
}

double Picture::labels_width() const {
  constexpr double kBold = 7.5, kThin = 6, kDetail = 5.4,
                   kAround = 18 + 14 + 12;  // of a character; beside the two
  double widest = 0;
  for (const LaneView& lane : view_.lanes)
    if (is_drawn(lane))
      widest = std::max(widest, kAround + kDetail * static_cast<double>(lane.detail.size()) +
                                    (lane.lane->kind == LaneKind::kBarrier ? kThin : kBold) *
                                        static_cast<double>(lane.name.size()));
  return std::ceil(widest);
}

void Picture::draw_lane(const LaneView& lane) {
  const double height = row_height(lane.lane->kind, lane.rows), gap = lane.rows > 1 ? 2 : 0;
  const double total = lane.rows * height + (lane.rows - 1) * gap;
  const bool is_thin = lane.lane->kind == LaneKind::kBarrier;
  lanes_ += fmt::format(R"(<rect x="{}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="3" fill="#f6f8fa"/>)",
                        labels_, y_ - 1.5, kPlot, total + 3);
  const double middle = y_ + total / 2 + 4;
  lanes_ += fmt::format(R"(<text x="18" y="{:.1f}" class="{}">{}</text>)", middle, is_thin ? "s" : "n",
                        svg_escaped(lane.name));
  if (!lane.detail.empty())
    lanes_ += fmt::format(R"(<text x="{}" y="{:.1f}" class="d" text-anchor="end">{}</text>)", labels_ - 12,
                          middle, svg_escaped(lane.detail));
  lanes_ += "\n";
  for (int row = 0; row < lane.rows; ++row) draw_row(lane, row, y_ + row * (height + gap), height);
  y_ += total + kLaneGap;
}

void Picture::draw_lanes() {
  int64_t ctas = 0, cta = -1;
  for (const LaneView& lane : view_.lanes) ctas = std::max<int64_t>(ctas, lane.lane->rank + 1);
  LaneKind previous = LaneKind::kWarp;
  for (const LaneView& lane : view_.lanes) {
    if (!is_drawn(lane)) continue;
    if (lane.lane->cta != cta && ctas > 1) {
      y_ += cta >= 0 ? 8 : 0;
      lanes_ += fmt::format(R"(<text x="18" y="{:.1f}" class="h">CTA {} (rank {} of its cluster)</text>)",
                            y_ + 12, lane.lane->cta, lane.lane->rank);
      y_ += kHeadingHeight;
    } else if ((lane.lane->kind == LaneKind::kWarp) != (previous == LaneKind::kWarp) ||
               (lane.lane->kind == LaneKind::kBarrier) != (previous == LaneKind::kBarrier)) {
      y_ += 9;
    }
    cta = lane.lane->cta;
    previous = lane.lane->kind;
    draw_lane(lane);
  }
}

void Picture::draw_axis(double bottom) {
  const double step = nice_step(end_ - begin_, 12);
  for (double t = std::ceil(begin_ / step) * step; t <= end_; t += step)
    grid_ += fmt::format(
        R"(<line x1="{0:.1f}" y1="{1}" x2="{0:.1f}" y2="{2:.1f}" stroke="#d8dee4" stroke-width="0.7"/><text x="{0:.1f}" y="{3}" class="a">{4}</text>)",
        x(t), kTop - 10, bottom, kTop - 15, with_thousands(std::llround(t)));
  grid_ += fmt::format(R"(<text x="{}" y="{}" class="e">cycles</text>)", 18, kTop - 15);
  const double per_microsecond = view_.timeline->clock_ghz * 1e3;
  const double micro_step = nice_step((end_ - begin_) / per_microsecond, 12);
  for (double t = std::ceil(begin_ / per_microsecond / micro_step) * micro_step; t * per_microsecond <= end_;
       t += micro_step)
    grid_ += fmt::format(
        R"(<line x1="{0:.1f}" y1="{1:.1f}" x2="{0:.1f}" y2="{2:.1f}" stroke="#8c959f"/><text x="{0:.1f}" y="{3:.1f}" class="a">{4:g}</text>)",
        x(t * per_microsecond), bottom, bottom + 4, bottom + 15, t);
  grid_ += fmt::format(
      R"(<line x1="{}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="#8c959f" stroke-width="0.8"/>)", labels_,
      bottom, labels_ + kPlot, bottom);
  grid_ += fmt::format(R"(<text x="18" y="{:.1f}" class="e">µs at {:.2f} GHz</text>)", bottom + 15,
                       view_.timeline->clock_ghz);
}

void Picture::draw_legend(double top) {
  double at = 18;
  for (size_t kind = 0; kind < used_.size(); ++kind) {
    if (!used_[kind]) continue;
    const Style style = style_of(static_cast<SpanKind>(kind));
    const double width = 36 + 6.2 * static_cast<double>(std::char_traits<char>::length(style.legend));
    if (at + width > whole_width() - 10) {
      at = 18;
      top += 20;
      legend_bottom_ += 20;
    }
    lanes_ += fmt::format(
        R"(<rect x="{:.1f}" y="{:.1f}" width="16" height="11" rx="2.5" fill="{}"/><text x="{:.1f}" y="{:.1f}" class="l">{}</text>)",
        at, top, style.fill, at + 21, top + 9.5, style.legend);
    at += width;
  }
}

void Picture::draw_header() {
  const vgpu::Timeline& t = *view_.timeline;
  head_ += fmt::format(R"(<text x="18" y="32" class="t">{}</text>)", svg_escaped(view_.title));
  head_ += fmt::format(R"(<text x="18" y="51" class="c">{}</text>)", svg_escaped(view_.subtitle));
  std::string facts = fmt::format("predicted for {}: {}", t.chip, duration(t.microseconds()));
  if (t.overlap >= 0) facts += fmt::format("   ·   overlap of loads and products {}", percent(t.overlap));
  if (t.active_sms > 0)
    facts += fmt::format("   ·   tensor core busy {} of the time on the SMs at work",
                         percent(t.use.tensor_core * t.sms / t.active_sms));
  head_ += fmt::format(R"(<text x="18" y="72" class="f">{}</text>)", svg_escaped(facts));
}

std::string Picture::draw() {
  draw_header();
  draw_lanes();
  const double bottom = y_ + 2;
  draw_axis(bottom);
  draw_legend(bottom + 32);
  const double height = bottom + kLegendHeight + legend_bottom_;
  return fmt::format(
      R"svg(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1:.0f}" width="{0}" height="{1:.0f}" font-family="Inter,'Helvetica Neue',Helvetica,Arial,'DejaVu Sans',sans-serif">
<style>.t{{font-size:18px;font-weight:700;fill:#1f2328}}.c{{font-size:11.5px;fill:#57606a;font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}}.f{{font-size:12.5px;fill:#1f2328}}.n{{font-size:12.5px;font-weight:600;fill:#1f2328}}.s{{font-size:11px;fill:#424a53}}.d{{font-size:10px;fill:#6e7781}}.h{{font-size:13px;font-weight:700;fill:#1f2328}}.a{{font-size:10px;fill:#6e7781;text-anchor:middle}}.e{{font-size:10px;fill:#6e7781}}.b{{font-size:10px;text-anchor:middle;pointer-events:none}}.l{{font-size:11px;fill:#424a53}}</style>
<defs><pattern id="wait" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="#eef1f4"/><line x1="0" y1="0" x2="0" y2="6" stroke="#cdd5de" stroke-width="2.4"/></pattern></defs>
<rect x="0.5" y="0.5" width="{2}" height="{3:.0f}" rx="10" fill="#ffffff" stroke="#d0d7de"/>
{4}
{6}{5}</svg>
)svg",
      whole_width(), height, whole_width() - 1, height - 1, head_, lanes_, grid_);
}

}  // namespace

std::string timeline_svg(const TimelineView& view, const SvgOptions& options) {
  return Picture(view, options).draw();
}

}  // namespace imbrex::command

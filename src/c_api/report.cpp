// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "c_api/handles.h"

using namespace imbrex;
using namespace imbrex::c;

extern "C" {

int32_t imbrex_report_is_clean(const imbrex_report* report) { return report->launch.clean() ? 1 : 0; }
int64_t imbrex_report_finding_count(const imbrex_report* report) {
  return static_cast<int64_t>(report->launch.virtual_report.findings.size());
}
int64_t imbrex_report_note_count(const imbrex_report* report) {
  return static_cast<int64_t>(report->launch.virtual_report.notes.size());
}
imbrex_status imbrex_report_finding(const imbrex_report* report, int64_t index, imbrex_finding* out) {
  return guard([&] {
    require_given("imbrex_report_finding", "report", report);
    require_given("imbrex_report_finding", "out", out);
    require_size("imbrex_report_finding", "imbrex_finding", out->struct_size, sizeof *out);
    const std::vector<vgpu::Finding>& findings = report->launch.virtual_report.findings;
    const size_t place = static_cast<size_t>(index), behind = place - findings.size();
    if (index < 0 || place >= report->findings.size())
      refuse("imbrex_report_finding", "there is no finding " + std::to_string(index),
             "findings are counted from 0, and notes behind them; the report has " +
                 std::to_string(report->findings.size()));
    const vgpu::Finding& finding =
        place < findings.size() ? findings[place] : report->launch.virtual_report.notes[behind];
    out->severity = vgpu::name(finding.severity).data();
    out->kind = vgpu::name(finding.kind).data();
    out->message = finding.message.c_str();
    out->text = report->findings[place].c_str();
    out->hint = finding.hint.c_str();
    out->file = finding.place.file.c_str();
    out->line = finding.place.line;
    out->ptx_line = finding.place.ptx_line;
    for (size_t i = 0; i < 3; ++i) out->cta[i] = finding.actor.cta[i];
    out->warp = finding.actor.warp;
    out->lane = finding.actor.lane;
    out->count = finding.count;
  });
}
const char* imbrex_report_text(const imbrex_report* report) { return report->text.c_str(); }
const char* imbrex_report_output(const imbrex_report* report) {
  return report->launch.virtual_report.printf_output.c_str();
}
int64_t imbrex_report_instructions(const imbrex_report* report) {
  return report->launch.virtual_report.statistics.instructions;
}
void imbrex_report_close(imbrex_report* report) { delete report; }

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "imbrex/core/parse_error.h"
#include "imbrex/vgpu/bent_rule.h"
#include "imbrex/vgpu/report.h"
#include "timeline_view.h"

namespace imbrex::python {
namespace {

PyObject* make_error(nb::module_& m, const char* name, const char* doc, nb::handle bases) {
  const std::string full = std::string("imbrex.") + name;
  PyObject* made = PyErr_NewExceptionWithDoc(full.c_str(), doc, bases.ptr(), nullptr);
  if (made == nullptr) throw nb::python_error();
  m.attr(name) = nb::handle(made);
  return made;
}

PyObject *error_type, *compile_error, *launch_error, *device_error, *parse_error, *finding_error,
    *internal_error;

}  // namespace

void bind_errors(nb::module_& m) {
  error_type = make_error(m, "Error", "Base of what Imbrex raises: the call, the kernel or the device is wrong.",
                          nb::borrow(PyExc_Exception));
  const nb::object base = nb::borrow(error_type);
  const auto both = [&](PyObject* other) { return nb::make_tuple(base, nb::borrow(other)); };
  compile_error = make_error(m, "CompileError", "A kernel that cannot be compiled, or a C++ compiler's complaint.", base);
  launch_error = make_error(m, "LaunchError",
                            "A call that cannot be carried out: an argument is missing or wrong. Nothing was launched.",
                            both(PyExc_ValueError));
  device_error = make_error(m, "DeviceError", "The device failed, or there is none.", both(PyExc_RuntimeError));
  parse_error = make_error(m, "ParseError", "PTX that does not parse.", both(PyExc_ValueError));
  finding_error = make_error(m, "FindingError",
                             "The virtual GPU found something wrong with a kernel. `report` has the findings.",
                             nb::borrow(device_error));
  internal_error = make_error(m, "InternalError", "A bug in Imbrex: please report it.", nb::borrow(PyExc_Exception));
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const CompileError& error) {
      PyErr_SetString(compile_error, error.what());
    } catch (const LaunchError& error) {
      PyErr_SetString(launch_error, error.what());
    } catch (const DeviceError& error) {
      PyErr_SetString(device_error, error.what());
    } catch (const ParseError& error) {
      PyErr_SetString(parse_error, error.what());
    } catch (const Error& error) {
      PyErr_SetString(error_type, error.what());
    } catch (const InternalError& error) {
      PyErr_SetString(internal_error, error.what());
    }
  });
}

void expect_clean(LaunchReport&& launch, std::string kernel) {
  if (launch.clean()) return;
  std::string text = launch.virtual_report.format();
  if (text.empty()) text = kernel + ": the kernel did not run to its end";
  const nb::object error = nb::borrow(finding_error)(text);
  error.attr("report") = nb::cast(Report{std::move(launch), std::move(kernel)});
  PyErr_SetObject(finding_error, error.ptr());
  throw nb::python_error();
}

void bind_reports(nb::module_& m) {
  using vgpu::Finding;
  nb::class_<vgpu::CodePlace>(m, "Place", "A line of the kernel's source and of its PTX.")
      .def_ro("file", &vgpu::CodePlace::file, "The kernel's source, or '' where the PTX names none.")
      .def_ro("line", &vgpu::CodePlace::line, "Line of `file`, from 1.")
      .def_ro("ptx_line", &vgpu::CodePlace::ptx_line, "Line of the PTX text, from 1.")
      .def_ro("ptx", &vgpu::CodePlace::ptx, "The instruction, as written.")
      .def_ro("function", &vgpu::CodePlace::function);
  nb::class_<vgpu::Actor>(m, "Actor", "Who did it: a thread, or the asynchronous unit that works for it.")
      .def_prop_ro("cta", [](const vgpu::Actor& a) { return nb::make_tuple(a.cta[0], a.cta[1], a.cta[2]); })
      .def_ro("warp", &vgpu::Actor::warp, "Warp of the CTA; -1 where no single one is meant.")
      .def_ro("lane", &vgpu::Actor::lane, "Lane of the warp; -1 where the whole warp is meant.")
      .def_ro("unit", &vgpu::Actor::unit, "'' for a thread; else 'TMA', 'tensor core', ...");
  nb::class_<Finding>(m, "Finding", "One thing that is wrong with a kernel (docs/checkers.md).")
      .def_prop_ro("kind", [](const Finding& f) { return std::string(vgpu::name(f.kind)); },
                   "'race', 'out-of-bounds', 'deadlock', ...")
      .def_prop_ro(
          "severity", [](const Finding& f) { return std::string(vgpu::name(f.severity)); },
          "'finding', or 'note': undefined by the letter of PTX, and right on every chip.")
      .def_prop_ro(
          "rule", [](const Finding& f) { return std::string(vgpu::name(f.rule)); },
          "The rule of PTX that libraries bend, such as 'equal-values', or ''.")
      .def_ro("message", &Finding::message, "One line: what happened, with the numbers.")
      .def_ro("place", &Finding::place)
      .def_ro("actor", &Finding::actor)
      .def_prop_ro("other_place", [](const Finding& f) -> nb::object {
        return f.other_place.ptx_line == 0 ? nb::none() : nb::cast(f.other_place);
      }, "Of a race: the other access; else None.")
      .def_ro("address", &Finding::address)
      .def_ro("facts", &Finding::facts)
      .def_ro("hint", &Finding::hint, "The remedy, or ''.")
      .def_ro("count", &Finding::count, "How many times it happened.")
      .def("__str__", &Finding::format)
      .def("__repr__", [](const Finding& f) {
        const std::string& file = f.place.file;
        const std::string at = file.empty() ? "PTX line " + std::to_string(f.place.ptx_line)
                                            : file.substr(file.rfind('/') + 1) + ":" + std::to_string(f.place.line);
        return "<" + std::string(vgpu::name(f.kind)) + " at " + at + ": " + f.message + ">";
      });
  nb::class_<Report>(m, "Report", "What is known after a launch on the virtual GPU.")
      .def_prop_ro(
          "notes", [](const Report& r) { return r.launch.virtual_report.notes; },
          "What is a note, and no finding: none where the virtual GPU is strict.")
      .def_prop_ro("clean", [](const Report& r) { return r.launch.clean(); },
                   "The kernel ran to its end and nothing was found.")
      .def_prop_ro("findings", [](const Report& r) { return r.launch.virtual_report.findings; })
      .def_prop_ro("completed", [](const Report& r) { return r.launch.virtual_report.completed; },
                   "Every thread ran to its end, findings or not.")
      .def_prop_ro("output", [](const Report& r) { return r.launch.virtual_report.printf_output; },
                   "What the kernel printed by printf.")
      .def_prop_ro("milliseconds", [](const Report& r) { return r.launch.milliseconds; },
                   "Wall-clock time of the run on the virtual GPU.")
      .def_ro("kernel", &Report::kernel)
      .def_prop_ro("statistics", [](const Report& r) {
        const vgpu::Statistics& s = r.launch.virtual_report.statistics;
        nb::dict d;
        d["ctas"] = s.ctas;
        d["instructions"] = s.instructions;
        d["lane_instructions"] = s.lane_instructions;
        d["global_bytes_read"] = s.global_bytes_read;
        d["global_bytes_written"] = s.global_bytes_written;
        d["shared_bytes_read"] = s.shared_bytes_read;
        d["shared_bytes_written"] = s.shared_bytes_written;
        d["tma_bytes_loaded"] = s.tma_bytes_loaded;
        d["tma_bytes_stored"] = s.tma_bytes_stored;
        d["tensor_flops"] = s.tensor_flops;
        return d;
      }, "What was counted, as a dict: ctas, instructions, global_bytes_read, tensor_flops, ...")
      .def_prop_ro("has_timeline", [](const Report& r) { return r.launch.virtual_report.timeline != nullptr; })
      .def_prop_ro("predicted_microseconds", [](const Report& r) -> nb::object {
        const auto& t = r.launch.virtual_report.timeline;
        return t == nullptr ? nb::none() : nb::cast(t->microseconds());
      }, "The time on the real chip by the cost model, where a timeline was asked for; else None.")
      .def("timeline_svg", [](const Report& r) {
        const auto& timeline = r.launch.virtual_report.timeline;
        if (timeline == nullptr)
          throw LaunchError(Diagnostic{{}, "the report has no timeline", {}, "ask for it: Kernel.timeline(...)"});
        command::TimelineView view = command::view_of(*timeline, {});
        view.title = r.kernel;
        return command::timeline_svg(view, {});
      }, "The predicted timeline as a picture (docs/timeline.md). Raises LaunchError where none was asked for.")
      .def("__str__", [](const Report& r) {
        const std::string text = r.launch.virtual_report.format();
        return text.empty() ? r.kernel + ": nothing found" : text;
      })
      .def("__repr__", [](const Report& r) {
        return "<Report of " + r.kernel + ": " + std::to_string(r.launch.virtual_report.findings.size()) + " findings>";
      });
}

}  // namespace imbrex::python

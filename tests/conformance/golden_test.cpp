// SPDX-License-Identifier: Apache-2.0
// The virtual GPU against what a chip answered (golden/*.txt, recorded by imbrex_conformance --record),
// without a GPU; and that nothing sm_90a has is forgotten.
#include <fmt/format.h>

#include <filesystem>

#include "coverage.h"
#include "imbrex/core/error.h"
#include "imbrex/runtime/compile.h"
#include "imbrex/runtime/registry.h"
#include "ptx/insns.h"
#include "ptx/reader.h"
#include "records.h"
#include "run.h"

namespace imbrex::conformance {
namespace {

constexpr int64_t kValues = 512;  // of scalar forms, as recorded
const std::string kFolder = IMBREX_SOURCE_DIR "/tests/conformance/";

const Kernels& kernels() {
  static const Kernels all = all_kernels(kValues);
  return all;
}

Records recorded() {
  Records records;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder + "golden"))
    read_records(entry.path().string(), records);
  return records;
}

TEST(Golden, EveryFormIsAsOnTheChip) {
  const Records records = recorded();
  const NotTried known = read_not_tried(kFolder + "known_differences.txt");
  const NotTried not_recorded = read_not_tried(kFolder + "not_recorded.txt");
  // Launches this small are over before more threads have started.
  const Device device = Device::virtual_gpu({.target = "sm_90a", .host_threads = 1});
  for (const MicroKernel& kernel : kernels()) {
    SCOPED_TRACE(kernel.family + ": " + kernel.name);
    const Record* record = find_record(records, kernel);
    const bool may_lack_record = not_recorded.has(kernel.family + ", " + kernel.name);
    EXPECT_EQ(record == nullptr, may_lack_record)
        << (may_lack_record ? "it is listed in not_recorded.txt and has a record"
                            : fmt::format("there is no record of it: run imbrex_conformance --values {} "
                                          "--record on a chip",
                                          kValues));
    if (record == nullptr) continue;
    std::string wrong;
    try {
      wrong = difference(run(device, kernel), *record);
    } catch (const Error& error) {
      wrong = error.what();
    }
    const bool may_differ = known.has(kernel.family + ", " + kernel.name);
    EXPECT_EQ(wrong.empty(), !may_differ)
        << (wrong.empty() ? "it is listed in known_differences.txt and agrees" : wrong);
  }
}

TEST(Golden, RecordsAreOfFormsThatExist) {
  std::map<std::string, std::set<std::string>> names;
  for (const MicroKernel& kernel : kernels()) names[kernel.family].insert(kernel.name);
  for (const auto& [family, forms] : recorded())
    for (const auto& [name, record] : forms)
      EXPECT_TRUE(names[family].contains(name)) << family << ": " << name;
}

TEST(Golden, ADifferenceIsSeen) {
  const std::vector<uint8_t> output{1, 2, 3, 4};
  EXPECT_EQ(difference(output, record_of(output, 2)), "");
  EXPECT_NE(difference(std::vector<uint8_t>{1, 9, 3, 4}, record_of(output, 2)).find("the first at 1"),
            std::string::npos);
  EXPECT_NE(difference(std::vector<uint8_t>{1, 2, 3, 5}, record_of(output, 2)), "");
  EXPECT_NE(difference(std::vector<uint8_t>{1, 2, 3}, record_of(output, 2)), "");
}

TEST(Coverage, EveryInstructionAndWordOfTheTargetIsTriedOrHasAReason) {
  const Features used = features_used(kernels());
  const NotTried not_tried = read_not_tried(kFolder + "not_tried.txt");
  for (const std::string& feature : features_of_target())
    EXPECT_TRUE(used.contains(feature) || not_tried.has(feature))
        << "'" << feature << "' is in no micro-kernel: add a form, or the reason to not_tried.txt";
  for (const std::string& feature : not_tried.features)
    EXPECT_FALSE(used.contains(feature)) << "'" << feature << "' is tried now: take it out of not_tried.txt";
}

/// What the kernels of the library make of the language, at their smallest sizes.
TEST(Coverage, EveryInstructionOfTheKernelsIsTriedOrHasAReason) {
  Features used;
  for (const MicroKernel& kernel : kernels())
    used.merge(whole_instructions(ptx::read(kernel.ptx, kernel.name)));
  const NotTried not_tried = read_not_tried(kFolder + "not_tried.txt");
  int64_t count = 0;
  for (const auto& [name, kernel] : registered_kernels()) {
    if (!meets({90, 'a'}, kernel.target.substr(3))) continue;
    std::map<std::string, int64_t> sizes;
    for (const SizeOption& size : kernel.description.sizes) sizes[size.name] = size.otherwise;
    Case traced(Case::Mode::kTrace, std::nullopt, sizes, 0);
    kernel.run(traced, std::nullopt, kernel.space.configuration(0));
    for (const std::string& insn : whole_instructions(ptx::read(emit_ptx(*traced.function), name)))
      EXPECT_TRUE(used.contains(insn) || not_tried.has(insn))
          << "'" << insn << "' of the kernel " << name << " is in no micro-kernel: add a form";
    ++count;
  }
  EXPECT_GT(count, 50);
}

}  // namespace
}  // namespace imbrex::conformance

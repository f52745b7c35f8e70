// SPDX-License-Identifier: Apache-2.0
#include "runtime/parallel/rank_protocol.h"

#include <mutex>
#include <set>

#include "imbrex/core/parse_error.h"

namespace imbrex::runtime {

namespace {

enum class Thrown : uint8_t {
  kNothing,
  kCompileError,
  kLaunchError,
  kDeviceError,
  kParseError,
  kError,
  kOther
};

}  // namespace

const char* kept_for_good(std::string_view text) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> kept;
  const std::lock_guard lock(mutex);
  const auto at = kept.find(text);
  return at != kept.end() ? at->c_str() : kept.emplace(text).first->c_str();
}

void put_exception(PacketWriter& answer) {
  try {
    throw;
  } catch (const CompileError& error) {
    answer(Thrown::kCompileError, error.diagnostics());
  } catch (const LaunchError& error) {
    answer(Thrown::kLaunchError, error.diagnostics());
  } catch (const DeviceError& error) {
    answer(Thrown::kDeviceError, error.diagnostics());
  } catch (const ParseError& error) {
    answer(Thrown::kParseError, error.diagnostics());
  } catch (const Error& error) {
    answer(Thrown::kError, error.diagnostics());
  } catch (const std::exception& error) {
    answer(Thrown::kOther, std::string(error.what()));
  }
}

void throw_exception(PacketReader& answer) {
  const auto thrown = answer.next<Thrown>();
  if (thrown == Thrown::kOther) throw std::runtime_error(answer.next<std::string>());
  auto diagnostics = answer.next<std::vector<Diagnostic>>();
  switch (thrown) {
    case Thrown::kCompileError:
      throw CompileError(std::move(diagnostics));
    case Thrown::kLaunchError:
      throw LaunchError(std::move(diagnostics));
    case Thrown::kParseError:
      throw ParseError(std::move(diagnostics));
    case Thrown::kDeviceError:
      throw DeviceError(std::move(diagnostics));
    default:
      throw Error(std::move(diagnostics));
  }
}

std::string answer_of(const std::function<void(PacketWriter&)>& make) {
  try {
    PacketWriter answer;
    answer(true);
    make(answer);
    return answer.bytes();
  } catch (...) {
    PacketWriter answer;
    answer(false);
    put_exception(answer);
    return answer.bytes();
  }
}

PacketReader opened(std::string_view answer) {
  PacketReader reader(answer);
  if (!reader.next<bool>()) throw_exception(reader);
  return reader;
}

}  // namespace imbrex::runtime

#include "bench/ab/provenance.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "bench/cli/build_info.h"

namespace pacecar::ab {
namespace {

using nlohmann::json;

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    const bool named = line.starts_with("model name") || line.starts_with("Model");
    if (named && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

json settings() {
  json result = json::object();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with("PACECAR_") && !text.starts_with("NCCL_")) continue;
    const size_t equals = text.find('=');
    result[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  return result;
}

}  // namespace

json provenance(const std::string& command_line) {
  utsname system = {};
  uname(&system);
  return {{"version", build_version()},
          {"commit", build_commit()},
          {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
          {"kernel", fmt::format("{} {}", system.sysname, system.release)},
          {"host", system.nodename},
          {"cpu", cpu_model()},
          {"cpus", sysconf(_SC_NPROCESSORS_ONLN)},
          {"compiler", build_compiler()},
          {"command_line", command_line},
          {"environment", settings()}};
}

}  // namespace pacecar::ab

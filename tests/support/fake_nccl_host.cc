#include "tests/support/fake_nccl_host.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

namespace pacecar::test {
namespace {

using nccl::LogSeverity;

std::mutex lines_mutex;
std::vector<LogLine>& lines() {
  static auto* const instance = new std::vector<LogLine>;  // engines log while the process exits
  return *instance;
}

void keep_line(LogSeverity severity, const char* line) {
  const std::lock_guard lock(lines_mutex);
  lines().push_back({severity, line});
}

int wanted_version() {
  const char* const wanted = std::getenv("PLUGIN_TEST_VERSION");
  return wanted == nullptr ? nccl::kNewestVersion : std::stoi(wanted);
}

}  // namespace

std::vector<LogLine> logged_lines() {
  const std::lock_guard lock(lines_mutex);
  return lines();
}

bool was_logged(LogSeverity severity, const std::string& part) {
  const std::vector<LogLine> all = logged_lines();
  return std::any_of(all.begin(), all.end(), [&](const LogLine& line) {
    return line.severity == severity && line.text.find(part) != std::string::npos;
  });
}

FakeNcclHost::FakeNcclHost(const std::string& plugin_path)
    : FakeNcclHost(plugin_path, wanted_version()) {}

FakeNcclHost::FakeNcclHost(const std::string& plugin_path, int version)
    : Host({.path = plugin_path, .version = version}, keep_line) {}

nccl::NcclResult FakeNcclHost::result_of(void* request) const {
  std::array<int, nccl::kMaxRequestsPerConnection> sizes{};
  auto result = nccl::NcclResult::kSuccess;
  nccl::poll_until("a request's end", [&] {
    int done = 0;
    result = net().test(request, &done, sizes.data());
    return result != nccl::NcclResult::kSuccess || done == 1;
  });
  return result;
}

}  // namespace pacecar::test

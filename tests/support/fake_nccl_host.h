// NCCL's side for the tests: calls the plugin's table of PLUGIN_TEST_VERSION and keeps its log.
#pragma once

#include <string>
#include <vector>

#include "net_plugin/host/buffer.h"

namespace pacecar::test {

using nccl::Buffer;
using nccl::Ends;
using nccl::HandleBytes;
using nccl::HostError;
using nccl::Listening;
using nccl::Part;
using nccl::poll_until;

struct LogLine {
  nccl::LogSeverity severity;
  std::string text;
};
// The lines logged so far in this process. Any thread.
std::vector<LogLine> logged_lines();
bool was_logged(nccl::LogSeverity severity, const std::string& part);

class FakeNcclHost : public nccl::Host {
 public:
  // The table of PLUGIN_TEST_VERSION, or the newest.
  explicit FakeNcclHost(const std::string& plugin_path);
  FakeNcclHost(const std::string& plugin_path, int version);

  // Polls the request until it is done or has failed.
  nccl::NcclResult result_of(void* request) const;
};

}  // namespace pacecar::test

// The flags of `pacecar bw` and `pacecar lat`, with perftest's names where they mean the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/perf/test_parameters.h"
#include "transport/base/result.h"

namespace pacecar::perf {

constexpr uint16_t kDefaultPort = 18515;  // perftest's

enum class TestKind { kBandwidth, kLatency };

// "bw", "lat": the subcommand and the word on the control channel.
std::string_view name_of(TestKind kind);

struct TestOptions {
  std::string host;                          // empty: this end is the server
  uint16_t port = kDefaultPort;              // a server's 0 means any free port
  std::string bind;                          // where a server waits; empty: at its NIC's address
  uint64_t max_buffers = uint64_t{1} << 30;  // bytes that a client may make a server take
  std::string nics;                          // as PACECAR_NICS; empty: its value
  std::vector<uint64_t> sizes;
  TestParameters parameters;
  bool run_infinitely = false;
  std::string json_file;  // empty: none
  double interval_s = 0;  // 0: no rates between
  double min_gbits = 0;   // 0: no threshold
  double max_usec = 0;    // 0: no threshold
  bool quiet = false;
  bool color = true;
};

// Either the options, or the text that --help asked for.
struct ParsedOptions {
  TestOptions options;
  std::string help;
};

// arguments[0] is the subcommand. Errors: kInvalidArgument, one sentence.
Result<ParsedOptions> parse_test_options(TestKind kind, int argc, const char* const* argv);

}  // namespace pacecar::perf

// The flags of `pacecar bw` and `pacecar lat`, with perftest's names where they mean the same.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cli/command_line.h"
#include "bench/perf/test_parameters.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/result.h"

namespace pacecar::perf {

constexpr uint16_t kDefaultPort = 18515;  // perftest's

enum class TestKind { kBandwidth, kLatency };

// "bw", "lat": the subcommand and the word on the control channel.
std::string_view name_of(TestKind kind);

// Which measurements `lat` prints one by one.
enum class Samples { kNone, kSorted, kAsTheyCame };

// A test between many hosts.
struct ManyHosts {
  cli::HostsFlags flags;
  std::string pairs = "disjoint";
  std::string html_file;                // empty: none
  double least = 0;                     // of a typical pair; 0: no threshold
  double pair_limit_s = 0;              // for one measurement; 0: by its expected length
  std::vector<std::string> pair_flags;  // of both ends of each pair
};

// The GPU whose memory this end's messages lie in.
struct GpuFlags {
  int device = -1;     // its number; -1: not given
  std::string bus_id;  // its PCI address; empty: not given
  bool dma_buf = false;

  bool wanted() const { return device >= 0 || !bus_id.empty(); }
};

struct TestOptions {
  std::string host;                          // empty: this end is the server
  uint16_t port = kDefaultPort;              // a server's 0 means any free port
  std::string announce;                      // file into which a server writes its address
  std::string bind;                          // where a server waits; empty: at its NIC's address
  uint64_t max_buffers = uint64_t{1} << 30;  // bytes that a client may make a server take
  std::string nics;                          // as PACECAR_NICS; empty: its value
  std::vector<Setting> settings;             // of this end alone
  std::string source_ip;                     // of the client's control channel; empty: any
  bool huge_pages = false;                   // for this end's messages
  GpuFlags gpu;                              // likewise
  std::vector<uint64_t> sizes;
  TestParameters parameters;
  bool run_infinitely = false;
  std::string json_file;    // empty: none
  double interval_s = 0;    // 0: no intermediate rates
  double min_gbits = 0;     // 0: no threshold
  double max_usec = 0;      // 0: no threshold
  double min_average = 0;   // in the unit of the columns; 0: no threshold
  double min_msg_rate = 0;  // millions per second; 0: no threshold
  double margin_s = 0;      // at the start and at the end of a timed test, excluded
  bool no_peak = false;     // it is printed as 0
  Samples samples = Samples::kNone;
  double gap_us = 0;   // between an answer and the next message
  std::string output;  // print this figure alone: bandwidth, message_rate, latency; empty: columns
  std::vector<std::string> counters;  // print how much these have grown by
  cli::ConsoleFlags console;
  ManyHosts many;
};

// Either the options, or the text for --help.
struct ParsedOptions {
  TestOptions options;
  std::string help;
};

// arguments[0] is the subcommand. Errors: kInvalidArgument, one sentence.
Result<ParsedOptions> parse_test_options(TestKind kind, int argc, const char* const* argv);

// Parses the command line, and calls `run`, unless it is wrong or asks for help, which are printed.
// Returns the exit code.
int run_with_options(
    TestKind kind, int argc, char** argv,
    const std::function<Result<int>(const TestOptions&, const cli::Console&)>& run);

// The error for a flag of perftest 6.x (ib_write_bw, ib_write_lat) that `bw` and `lat` do not have:
// why, and its replacement. Empty: perftest does not have it either. `name` as written: "-R",
// "--rdma_cm". (perftest_flags.cc)
std::string answer_to_perftest_flag(std::string_view name);

}  // namespace pacecar::perf

#include "bench/perf/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

constexpr unsigned kMaxSizeShift = 23;  // -a: 2 .. 2^23 bytes, as perftest
constexpr uint64_t kDefaultBandwidthSize = 65536;
constexpr uint64_t kDefaultLatencySize = 2;
// `lat` has one message in flight. The further send slots, and twice as many receive slots, keep it
// from waiting for batched acknowledgements and CTS slots.
constexpr uint32_t kMaxLatencyDepth = 16;
constexpr uint64_t kLatencyBufferBytes = 1 << 20;
constexpr double kMaxGapUs = 1e7;
constexpr double kQpTimeoutUnitUs = 4.096;
constexpr double kQpTimeouts = 8;        // one try and perftest's seven retries
constexpr uint64_t kMinTimeoutMs = 100;  // PACECAR_TIMEOUT's
constexpr double kMaxRate = 1e13;        // bit/s, as PACECAR_RATE_MAX
constexpr double kPairSeconds = 1;       // with --hosts: 1000 messages would be too short a test
constexpr int kMaxGpu = 1023;
constexpr const char* kDefaultJsonFile = "perftest_out.json";

// Raw flag values, converted after parsing.
struct RawFlags {
  uint64_t size = 0;
  bool all_sizes = false;
  bool unused = false;
  double rate_limit = 0;
  std::string rate_units = "g";
  uint32_t rx_depth = 0;
  bool out_json = false;
  uint32_t ib_port = 1;
  std::string gid_index;
  uint32_t pkey_index = 0;
  unsigned qp_timeout = 0;
  std::string connection = "RC";
  std::string counters;
};

void add_common_flags(CLI::App& app, TestOptions& options, RawFlags& raw) {
  TestParameters& parameters = options.parameters;
  app.add_option("host", options.host, "the server's name or address; without it, be the server");
  app.add_option("-p,--port", options.port, "TCP port of the control channel")
      ->check(whole_number(0, 65535))
      ->capture_default_str();
  app.add_option("--bind", options.bind,
                 "server: address or name to listen on, '*' for all (default: the NIC's, "
                 "and 127.0.0.1)");
  app.add_option("--announce", options.announce,
                 "server: write its address and port to this file (for -p 0)");
  app.add_option("--max-buffers", options.max_buffers,
                 "server: most buffer memory that a client may make it allocate, in bytes")
      ->transform(byte_count(1, kMaxBufferBytes))
      ->capture_default_str();
  app.add_option("-d,--ib-dev", options.nics, "NIC, as an entry of PACECAR_NICS: soft:udp:eth0");
  auto* size = app.add_option("-s,--size", raw.size, "bytes of a message")
                   ->transform(byte_count(1, kMaxMessageBytes))
                   ->capture_default_str();
  app.add_flag("-a,--all", raw.all_sizes, "all sizes from 2 to 2^23 bytes")->excludes(size);
  auto* iterations = app.add_option("-n,--iters", parameters.iterations, "messages per connection")
                         ->check(whole_number(1, kMaxIterations))
                         ->capture_default_str();
  app.add_option("-D,--duration", parameters.duration_s, "seconds to run for, instead of -n")
      ->check(positive_number(kMaxDurationSeconds))
      ->excludes(iterations);
  app.add_option("-m,--mtu", parameters.mtu, "payload bytes per packet")
      ->check(whole_number(256, 16384));
  app.add_option("-T,--tos,--tclass", parameters.tos,
                 "IP type of service of data packets: a multiple of 4")
      ->check(whole_number(0, 252));
  app.add_option("--cc", parameters.congestion_control,
                 "congestion control (see 'pacecar info' for their names)");
  app.add_option("--interval", options.interval_s, "print the rate every so many seconds")
      ->check(positive_number(kMaxDurationSeconds));
  app.add_flag("--data_validation", parameters.validate,
               "send a pattern in every message and check it at the receiver");
  app.add_flag("--cpu_util", parameters.cpu_util, "add a column with this process' CPU time");
  app.add_flag("--run_infinitely", options.run_infinitely,
               "server: serve one client after the other; client: repeat until stopped");
  add_json_flag(app, options.json_file, "write the results");
  app.add_flag("--out_json", raw.out_json,
               fmt::format("perftest's name for --json={}", kDefaultJsonFile));
  app.add_option("--out_json_file", options.json_file, "perftest's name for --json=FILE");
  app.add_flag("--quiet", options.quiet, "no messages but warnings and errors, no progress bar");
  app.add_flag("--no-color", options.no_color, "no colours");
  app.add_flag("-F,--CPU-freq", raw.unused, "accepted for habit; has no effect");
}

void add_many_hosts_flags(CLI::App& app, ManyHosts& many) {
  auto* hosts = add_hosts_flags(app, many.flags, "measure between all of these hosts");
  hosts->excludes("host");
  app.option_defaults()->group("Many hosts");
  app.add_option("--pairs", many.pairs,
                 "disjoint: all pairs, each host in one at a time; all: one pair after the other; "
                 "ring: neighbours only; all of them in both directions")
      ->check(CLI::IsMember({"disjoint", "all", "ring"}))
      ->needs(hosts)
      ->capture_default_str();
  app.add_option("--html", many.html_file, "write a page with the matrix as a heat map")
      ->needs(hosts);
  app.add_option("--least", many.least,
                 "exit with 3 when a pair is worse than this share of the median, such as 0.8")
      ->check(positive_number(1))
      ->needs(hosts);
  app.add_option("--pair-limit", many.pair_limit_s,
                 "seconds that one measurement may take (default: by its length)")
      ->check(positive_number(kMaxDurationSeconds))
      ->needs(hosts);
  app.option_defaults()->group("Options");
}

// perftest's flags that are rarely used, common to both tests.
void add_perftest_flags(CLI::App& app, TestOptions& options, RawFlags& raw) {
  app.option_defaults()->group("As perftest");
  app.add_option("-i,--ib-port", raw.ib_port, "port of the RDMA device that -d names")
      ->check(whole_number(1, 255));
  app.add_option("-x,--gid-index", raw.gid_index, "on RoCE: the GID, as PACECAR_GID_INDEX")
      ->check(whole_number(0, 255));
  app.add_option("-S,--sl", options.parameters.sl, "on InfiniBand: service level of all packets")
      ->check(whole_number(0, 15));
  app.add_option("--pkey_index", raw.pkey_index, "on RDMA hardware: as PACECAR_PKEY")
      ->check(whole_number(0, 65535));
  app.add_option("-u,--qp-timeout", raw.qp_timeout,
                 "peer timeout: 8 x 4.096 us x 2^N, clamped to 0.1 s ... 1 h")
      ->check(whole_number(1, 31));
  app.add_option("-c,--connection", raw.connection,
                 "transport; only RC (reliable, ordered) is accepted")
      ->check(CLI::IsMember({"RC"}));
  app.add_option("--source_ip", options.source_ip,
                 "client: local source address of the control connection");
  auto* huge = app.add_flag("--use_hugepages", options.huge_pages,
                            "messages lie in huge pages of this host");
  auto* gpu = app.add_option("--use_cuda", options.gpu.device,
                             "place this end's buffers in the memory of GPU N")
                  ->check(whole_number(0, kMaxGpu))
                  ->excludes(huge);
  app.add_option("--use_cuda_bus_id", options.gpu.bus_id,
                 "likewise, by the GPU's PCI address: 3b:00.0")
      ->excludes(huge)
      ->excludes(gpu);
  app.add_flag("--use_cuda_dmabuf", options.gpu.dma_buf,
               "the GPU's memory is registered as a dma-buf (default: by PACECAR_GPU)");
  app.add_option("-f,--margin", options.margin_s,
                 "with -D: seconds to exclude at the start and at the end")
      ->check(positive_number(kMaxDurationSeconds))
      ->needs("--duration");
  app.add_option("-W,--report-counters", raw.counters,
                 "comma-separated counters; print the increase of each at both ends");
  app.add_option("--output", options.output,
                 "print one figure alone: bandwidth, message_rate or latency");
  app.add_flag("--perform_warm_up", raw.unused, "it always warms up: has no effect");
  app.add_flag("--mr_per_qp", raw.unused, "each connection has memory of its own: has no effect");
  app.set_version_flag("-V,--version", fmt::format("pacecar {}; 'pacecar --version' prints more\n",
                                                   PACECAR_VERSION));
  app.option_defaults()->group("Options");
}

void add_bandwidth_flags(CLI::App& app, TestOptions& options, RawFlags& raw) {
  TestParameters& parameters = options.parameters;
  app.add_option("-q,--qp", parameters.connections, "number of connections")
      ->check(whole_number(1, kMaxConnections))
      ->capture_default_str();
  app.add_option("-t,--tx-depth", parameters.tx_depth, "messages in flight per connection")
      ->check(whole_number(1, kMaxDepth))
      ->capture_default_str();
  app.add_option("-r,--rx-depth", raw.rx_depth,
                 "receives posted per connection (default: twice the tx depth)")
      ->check(whole_number(1, kMaxDepth));
  app.add_flag("-b,--bidirectional", parameters.bidirectional, "both directions at once");
  app.add_flag("--report_gbits", parameters.gigabits, "report Gb/sec instead of MiB/sec");
  auto* limit =
      app.add_option("--rate_limit", raw.rate_limit,
                     "send at most this fast, per direction, over all connections, with headers")
          ->check(positive_number(kMaxRate));
  app.add_option("--rate_units", raw.rate_units,
                 "unit of --rate_limit: M (MiB/s), g (Gb/s) or p (messages/s)")
      ->check(CLI::IsMember({"M", "g", "p"}))
      ->needs(limit)
      ->capture_default_str();
  auto* both = app.get_option("--bidirectional");
  app.add_flag("--reversed", parameters.reversed, "the server sends and the client receives")
      ->excludes(both);
  app.add_flag("--report-both", parameters.report_both,
               "with -b: columns for what was sent and what was received")
      ->needs(both);
  app.add_option("-l,--post_list", parameters.post_list, "sends that are started together")
      ->check(whole_number(1, kMaxDepth));
  app.add_flag("-N,--noPeak", options.no_peak, "report 0 as peak bandwidth");
  app.add_option("-w,--limit_bw", options.min_average,
                 "exit with 3 when a size's average is below this, in the unit of the columns")
      ->check(positive_number(kMaxRate));
  app.add_option("-y,--limit_msgrate", options.min_msg_rate,
                 "exit with 3 when a size's message rate is below this, in millions per second")
      ->check(positive_number(kMaxRate));
  app.add_option("--min-gbits", options.min_gbits,
                 "exit with 3 when a size's average is below this many Gb/s")
      ->check(positive_number(kMaxRate));
}

void add_latency_flags(CLI::App& app, TestOptions& options) {
  const auto sorted = [&options] { options.samples = Samples::kSorted; };
  const auto as_they_came = [&options] { options.samples = Samples::kAsTheyCame; };
  app.add_flag_callback("-H,--report-histogram", sorted,
                        "print every measurement, the shortest first");
  app.add_flag_callback("-U,--report-unsorted", as_they_came,
                        "print every measurement in its order");
  app.add_option("--latency_gap", options.gap_us,
                 "microseconds between an answer and the next message")
      ->check(positive_number(kMaxGapUs));
  app.add_option("--max-usec", options.max_usec,
                 "exit with 3 when a size's t_typical is above this many microseconds")
      ->check(positive_number(kMaxRate));
}

Result<void> settle_rate(const RawFlags& raw, TestOptions& options) {
  if (raw.rate_limit == 0) return {};
  double bits_per_unit = 1e9;
  if (raw.rate_units == "M") bits_per_unit = 8.0 * 1024 * 1024;
  if (raw.rate_units == "p") {
    if (raw.all_sizes) {
      return fail(ErrorCode::kInvalidArgument,
                  "--rate_units p counts messages of one size: use -s instead of -a, or the units "
                  "M or g");
    }
    bits_per_unit = 8.0 * static_cast<double>(raw.size);
  }
  const double bps = std::round(raw.rate_limit * bits_per_unit);
  if (bps < 1 || bps > kMaxRate) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--rate_limit is {:g} bit/s: give one from 1 bit/s to {:g} bit/s", bps,
                            kMaxRate));
  }
  options.parameters.rate_bps = static_cast<uint64_t>(bps);
  return {};
}

// Translates perftest's flags into parameters.
Result<void> settle_perftest(TestKind kind, const CLI::App& app, const RawFlags& raw,
                             TestOptions& options) {
  if (raw.ib_port != 1) {
    if (options.nics.empty() || options.nics.find_first_of(":,+^") != std::string::npos) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("-i {} is the port of one RDMA device: name it, as -d mlx5_0", raw.ib_port));
    }
    options.nics += fmt::format(":{}", raw.ib_port);
  }
  if (options.gpu.dma_buf && !options.gpu.wanted()) {
    return fail(ErrorCode::kInvalidArgument,
                "--use_cuda_dmabuf needs the GPU whose memory it is: add --use_cuda 0");
  }
  if (!raw.gid_index.empty()) options.settings.emplace_back("PACECAR_GID_INDEX", raw.gid_index);
  if (app.count("--pkey_index") > 0) {
    options.settings.emplace_back("PACECAR_PKEY", std::to_string(raw.pkey_index));
  }
  if (raw.qp_timeout != 0) {
    const double ms =
        kQpTimeouts * kQpTimeoutUnitUs * std::ldexp(1e-3, static_cast<int>(raw.qp_timeout));
    options.parameters.timeout_ms =
        std::clamp(static_cast<uint64_t>(ms), kMinTimeoutMs, kMaxTimeoutMs);
  }
  for (std::string_view left = raw.counters; !left.empty();) {
    const std::string_view name = left.substr(0, left.find(','));
    left.remove_prefix(std::min(left.size(), name.size() + 1));
    options.counters.emplace_back(name.substr(name.rfind('/') + 1));
  }
  if (2 * options.margin_s >= options.parameters.duration_s && options.margin_s > 0) {
    return fail(ErrorCode::kInvalidArgument,
                "-f leaves nothing of -D to measure: give less than half of it");
  }
  const bool bandwidth = kind == TestKind::kBandwidth;
  const bool known = bandwidth ? options.output == "bandwidth" || options.output == "message_rate"
                               : options.output == "latency";
  if (options.output.empty() || known) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--output {}: {} prints {}", options.output, name_of(kind),
                          bandwidth ? "bandwidth or message_rate" : "latency"));
}

// Sets the flags of each pair. Fails for flags that --hosts excludes.
Result<void> settle_many_hosts(const CLI::App& app, TestOptions& options) {
  ManyHosts& many = options.many;
  if (!many.flags.given()) return {};
  for (const char* flag : {"--bind", "--announce", "--source_ip", "--run_infinitely", "--output",
                           "--interval", "--report-histogram", "--report-unsorted"}) {
    const CLI::Option* option = app.get_option_no_throw(flag);
    if (option == nullptr || option->count() == 0) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is for one pair, not for --hosts: leave it out", flag));
  }
  many.pair_flags = given_flags(app, {"--pairs", "--html", "--least", "--pair-limit", "--out_json",
                                      "--out_json_file", "--port", "--CPU-freq"});
  if (app.count("--port") == 0) options.port = 0;  // any free port: it is printed
  if (app.count("--duration") == 0 && app.count("--iters") == 0) {
    options.parameters.duration_s = kPairSeconds;
    many.pair_flags.insert(many.pair_flags.end(), {"--duration", fmt::format("{}", kPairSeconds)});
  }
  return {};
}

Result<void> settle(TestKind kind, const RawFlags& raw, TestOptions& options) {
  TestParameters& parameters = options.parameters;
  if (raw.out_json && options.json_file.empty()) options.json_file = kDefaultJsonFile;
  if (raw.all_sizes) {
    for (unsigned shift = 1; shift <= kMaxSizeShift; ++shift) {
      options.sizes.push_back(uint64_t{1} << shift);
    }
  } else {
    options.sizes.push_back(raw.size);
  }
  if (kind == TestKind::kLatency) {
    const uint64_t fitting = kLatencyBufferBytes / std::max<uint64_t>(options.sizes.back(), 1);
    parameters.tx_depth = static_cast<uint32_t>(std::clamp<uint64_t>(fitting, 2, kMaxLatencyDepth));
  }
  parameters.rx_depth =
      raw.rx_depth != 0 ? raw.rx_depth : std::min(2 * parameters.tx_depth, kMaxDepth);
  const bool client = !options.host.empty();
  if (client && options.port == 0) {
    return fail(ErrorCode::kInvalidArgument, "-p 0 is for the server: name the server's port");
  }
  const uint64_t buffers = buffer_bytes(parameters, options.sizes.back());
  if (buffers > kMaxBufferBytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the messages in flight need {} MiB of buffers, more than {} MiB: "
                            "lower -s, -q, -t or -r",
                            buffers >> 20, kMaxBufferBytes >> 20));
  }
  return settle_rate(raw, options);
}

}  // namespace

std::string_view name_of(TestKind kind) { return kind == TestKind::kBandwidth ? "bw" : "lat"; }

Result<ParsedOptions> parse_test_options(TestKind kind, int argc, const char* const* argv) {
  const bool bandwidth = kind == TestKind::kBandwidth;
  ParsedOptions parsed;
  TestOptions& options = parsed.options;
  RawFlags raw;
  raw.size = bandwidth ? kDefaultBandwidthSize : kDefaultLatencySize;

  CLI::App app(bandwidth ? "Measures the bandwidth between two hosts."
                         : "Measures the latency between two hosts: half of a round trip.",
               fmt::format("pacecar {}", name_of(kind)));
  add_common_flags(app, options, raw);
  if (bandwidth) {
    add_bandwidth_flags(app, options, raw);
  } else {
    add_latency_flags(app, options);
  }
  add_perftest_flags(app, options, raw);
  add_many_hosts_flags(app, options.many);
  app.footer(fmt::format(
      "The client's flags rule the test; a server needs at most -p, -d, --bind, "
      "--max-buffers and --run_infinitely.\n"
      "  server$ pacecar {0}\n"
      "  client$ pacecar {0} -a server\n"
      "Between all of many hosts, with the flags of a pair: for a second each, unless -D "
      "or -n is given.\n"
      "  pacecar {0} --hosts hosts.txt --html matrix.html\n"
      "  pacecar {0} --hosts slurm --launch srun --least 0.8\n{1}",
      name_of(kind), kExitCodesHelp));
  ASSIGN_OR_RETURN(parsed.help,
                   parse_command_line(app, argc, argv, {.unknown_flag = answer_to_perftest_flag}));
  if (!parsed.help.empty()) return parsed;
  if (app.count("host") > 0 && options.host.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "the server's name is empty: leave it out to be the server, or name one");
  }
  RETURN_IF_ERROR(settle_perftest(kind, app, raw, options));
  RETURN_IF_ERROR(settle(kind, raw, options));
  RETURN_IF_ERROR(settle_many_hosts(app, options));
  return parsed;
}

}  // namespace pacecar::perf

#include "bench/perf/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"
#include "transport/base/to_number.h"

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
constexpr double kRepeatSeconds = 5;     // of each test with --run_infinitely, as perftest
constexpr double kPairSeconds = 1;       // with --hosts: 1000 messages would be too short a test
constexpr int kMaxGpu = 1023;
constexpr const char* kDefaultJsonFile = "perftest_out.json";

// Flags whose values depend on other flags.
struct RawFlags {
  uint64_t size = 0;
  bool all_sizes = false;
  double rate_limit = 0;
  std::string rate_units = "g";
  uint32_t ib_port = 1;
};

template <typename Value>
CLI::Option* add_number(CLI::App& app, const char* flag, Value& value, uint64_t min, uint64_t max,
                        const char* help) {
  return app.add_option(flag, value, help)->check(cli::whole_number(min, max));
}

CLI::Option* add_positive(CLI::App& app, const char* flag, double& value, double max,
                          const char* help) {
  return app.add_option(flag, value, help)->check(cli::positive_number(max));
}

CLI::Option* add_seconds(CLI::App& app, const char* flag, double& value, const char* help) {
  return app.add_option(flag, value, help)->transform(cli::seconds(kMaxDurationSeconds));
}

// The flags that most tests need; the first six are those of --help.
void add_first_flags(CLI::App& app, TestOptions& options, RawFlags& raw) {
  TestParameters& parameters = options.parameters;
  app.add_option("host", options.host,
                 "the server's name or address, also HOST:PORT; without it, be the server");
  app.add_option("-d,--nic", options.nics, "NIC, as an entry of PACECAR_NICS: soft:udp:eth0");
  auto* size = app.add_option("-s,--size", raw.size, "bytes of a message")
                   ->transform(cli::byte_count(1, kMaxMessageBytes))
                   ->capture_default_str();
  app.add_flag("-a,--all", raw.all_sizes, "all sizes from 2 to 2^23 bytes")->excludes(size);
  auto* iterations = add_number(app, "-n,--iters", parameters.iterations, 1, kMaxIterations,
                                "messages per connection")
                         ->capture_default_str();
  add_seconds(app, "-D,--duration", parameters.duration_s, "seconds to run for, instead of -n")
      ->excludes(iterations);
}

void add_common_flags(CLI::App& app, TestOptions& options) {
  TestParameters& parameters = options.parameters;
  cli::add_json_flag(app, options.json_file, "write the results");
  add_number(app, "-p,--port", options.port, 0, 65535, "TCP port of the control channel")
      ->capture_default_str();
  app.add_option("--bind", options.bind,
                 "server: address or name to listen on, '*' for all (default: the NIC's, "
                 "and 127.0.0.1)");
  app.add_option("--announce", options.announce,
                 "server: write its address and port to this file (for -p 0)");
  app.add_option("--max-buffers", options.max_buffers,
                 "server: most buffer memory that a client may make it allocate, in bytes")
      ->transform(cli::byte_count(1, kMaxBufferBytes))
      ->capture_default_str();
  app.add_option("--cc", parameters.congestion_control,
                 "congestion control (see 'pacecar info' for their names)");
  add_number(app, "-m,--mtu", parameters.mtu_bytes, 256, 16384,
             "most payload bytes per packet; the banner has those in use");
  add_seconds(app, "--interval", options.interval_s, "seconds after which to print the rate");
  app.add_flag("--data_validation", parameters.validate,
               "send a pattern in every message and check it at the receiver");
  app.add_flag("--run_infinitely", options.run_infinitely,
               "server: serve one client after the other; client: repeat until stopped, for 5 s "
               "each unless -D or -n is given");
  const auto without_folder = [](std::string& counter) {
    counter.erase(0, counter.rfind('/') + 1);
    return std::string();
  };
  app.add_option("-W,--report-counters", options.counters,
                 "comma-separated counters; print the increase of each at both ends")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(CLI::Validator(without_folder, ""));
  auto* huge = app.add_flag("--use_hugepages", options.huge_pages,
                            "messages lie in huge pages of this host");
  add_number(app, "--use_cuda", options.gpu.device, 0, kMaxGpu,
             "place this end's buffers in the memory of GPU N")
      ->excludes(huge);
  cli::add_console_flags(app, options.console);
}

void add_many_hosts_flags(CLI::App& app, ManyHosts& many) {
  auto* hosts = cli::add_hosts_flags(app, many.flags, "measure between all of these hosts");
  for (const char* of_one_pair :
       {"host", "--bind", "--announce", "--source_ip", "--run_infinitely", "--output", "--interval",
        "--report-histogram", "--report-unsorted"}) {
    if (auto* option = app.get_option_no_throw(of_one_pair)) hosts->excludes(option);
  }
  app.option_defaults()->group("Many hosts");
  app.add_option("--pairs", many.pairs,
                 "disjoint: all pairs, each host in one at a time; all: one pair after the other; "
                 "ring: neighbours only; all of them in both directions")
      ->check(CLI::IsMember({"disjoint", "all", "ring"}))
      ->needs(hosts)
      ->capture_default_str();
  app.add_option("--html", many.html_file, "write a page with the matrix as a heat map")
      ->needs(hosts);
  add_positive(app, "--least", many.least, 1,
               "exit with 3 when a pair is worse than this share of a typical one, such as 0.8")
      ->needs(hosts);
  add_seconds(app, "--pair-limit", many.pair_limit_s,
              "seconds that one measurement may take (default: by its length)")
      ->needs(hosts);
  app.option_defaults()->group("Options");
}

// A flag that sets a parameter of the transport at this end.
CLI::Option* add_setting(CLI::App& app, TestOptions& options, const char* flag,
                         const char* parameter) {
  const auto set = [&options, parameter](const std::string& value) {
    options.settings.emplace_back(parameter, value);
  };
  return app.add_option_function<std::string>(flag, set);
}

// perftest's names for our flags and parameters, flags that few tests need, and those that have no
// effect here: `pacecar help perftest` lists them.
void add_perftest_names(CLI::App& app, TestOptions& options, RawFlags& raw) {
  app.option_defaults()->group(cli::kSilent);
  TestParameters& parameters = options.parameters;
  app.add_option("--ib-dev", options.nics);
  app.add_option("--out_json_file", options.json_file);
  const auto default_file = [&options] {
    if (options.json_file.empty()) options.json_file = kDefaultJsonFile;
  };
  app.add_flag_callback("--out_json", default_file);
  add_number(app, "-T,--tos,--tclass", parameters.tos, 0, 252, "");
  app.add_flag("--cpu_util", parameters.cpu_util);
  add_number(app, "-i,--ib-port", raw.ib_port, 1, 255, "");
  add_setting(app, options, "-x,--gid-index", "PACECAR_GID_INDEX")
      ->check(cli::whole_number(0, 255));
  add_number(app, "-S,--sl", parameters.sl, 0, 15, "");
  add_setting(app, options, "--pkey_index", "PACECAR_PKEY")->check(cli::whole_number(0, 65535));
  const auto set_timeout = [&parameters](int exponent) {
    const double ms = kQpTimeouts * kQpTimeoutUnitUs * std::ldexp(1e-3, exponent);
    parameters.timeout_ms = std::clamp(static_cast<uint64_t>(ms), kMinTimeoutMs, kMaxTimeoutMs);
  };
  app.add_option_function<int>("-u,--qp-timeout", set_timeout)->check(cli::whole_number(1, 31));
  app.add_option("-c,--connection")->check(CLI::IsMember({"RC"}));
  app.add_option("--source_ip", options.source_ip);
  app.add_option("--use_cuda_bus_id", options.gpu.bus_id)
      ->excludes("--use_hugepages")
      ->excludes("--use_cuda");
  app.add_flag("--use_cuda_dmabuf", options.gpu.dma_buf);
  add_seconds(app, "-f,--margin", options.margin_s, "")->needs("--duration");
  for (const char* flag : {"-F,--CPU-freq", "--perform_warm_up", "--mr_per_qp"}) {
    app.add_flag_callback(flag, [] {});
  }
  app.set_version_flag("-V,--version", fmt::format("pacecar {}; 'pacecar --version' prints more\n",
                                                   PACECAR_VERSION));
  app.option_defaults()->group("Options");
}

void add_bandwidth_flags(CLI::App& app, TestOptions& options, RawFlags& raw) {
  TestParameters& parameters = options.parameters;
  add_number(app, "-q,--qp", parameters.connections, 1, kMaxConnections, "number of connections")
      ->capture_default_str();
  add_number(app, "-t,--tx-depth", parameters.tx_depth, 1, kMaxDepth,
             "messages in flight per connection")
      ->capture_default_str();
  add_number(app, "-r,--rx-depth", parameters.rx_depth, 1, kMaxDepth,
             "receives posted per connection (default: twice the tx depth)");
  app.add_flag("-b,--bidirectional", parameters.bidirectional, "both directions at once");
  app.add_flag("--report_gbits", parameters.gigabits, "report Gb/sec instead of MiB/sec");
  auto* limit =
      add_positive(app, "--rate_limit", raw.rate_limit, kMaxRate,
                   "send at most this fast, per direction, over all connections, with headers");
  app.add_option("--rate_units", raw.rate_units,
                 "unit of --rate_limit: M (MiB/s), g (Gb/s) or p (messages/s)")
      ->check(CLI::IsMember({"M", "g", "p"}))
      ->needs(limit)
      ->capture_default_str();
  auto* both = app.get_option("--bidirectional");
  app.add_flag("--reversed", parameters.reversed, "the server sends and the client receives")
      ->excludes(both);
  add_positive(app, "--min-gbits", options.min_gbits, kMaxRate,
               "exit with 3 when a size's average is below this many Gb/s");
  add_positive(app, "-y,--limit_msgrate", options.min_msg_rate, kMaxRate,
               "exit with 3 when a size's message rate is below this, in millions per second");
  app.option_defaults()->group(cli::kSilent);
  add_positive(app, "-w,--limit_bw", options.min_average, kMaxRate, "");
  app.add_option("--output", options.output)->check(CLI::IsMember({"bandwidth", "message_rate"}));
  app.add_flag("--report-both", parameters.report_both)->needs(both);
  add_number(app, "-l,--post_list", parameters.post_list, 1, kMaxDepth, "");
  app.add_flag("-N,--noPeak", options.no_peak);
  app.option_defaults()->group("Options");
}

void add_latency_flags(CLI::App& app, TestOptions& options) {
  const auto sorted = [&options] { options.samples = Samples::kSorted; };
  const auto as_they_came = [&options] { options.samples = Samples::kAsTheyCame; };
  app.add_flag_callback("-H,--report-histogram", sorted,
                        "print every measurement, the shortest first");
  app.add_flag_callback("-U,--report-unsorted", as_they_came,
                        "print every measurement in its order");
  add_positive(app, "--max-usec", options.max_usec, kMaxRate,
               "exit with 3 when a size's t_typical is above this many microseconds");
  app.option_defaults()->group(cli::kSilent);
  app.add_option("-q,--qp")->check(CLI::IsMember({"1"}));  // one message is on its way
  app.add_option("--output", options.output)->check(CLI::IsMember({"latency"}));
  add_positive(app, "--latency_gap", options.gap_us, kMaxGapUs, "");
  app.option_defaults()->group("Options");
}

Result<void> convert_rate(const RawFlags& raw, TestOptions& options) {
  if (raw.rate_limit == 0) return {};
  double bits_per_unit = 1e9;
  if (raw.rate_units == "M") bits_per_unit = 8.0 * 1024 * 1024;
  if (raw.rate_units == "p") {
    if (raw.all_sizes) {
      return invalid(
          "--rate_units p counts messages of one size: use -s instead of -a, or the units M or g");
    }
    bits_per_unit = 8.0 * static_cast<double>(raw.size);
  }
  const double bps = std::round(raw.rate_limit * bits_per_unit);
  constexpr double kMinRate = 1e6;  // of PACECAR_RATE_MAX
  if (bps < kMinRate || bps > kMaxRate) {
    return invalid("--rate_limit is {:g} bit/s: give one from {:g} bit/s to {:g} bit/s", bps,
                   kMinRate, kMaxRate);
  }
  options.parameters.rate_bps = static_cast<uint64_t>(bps);
  return {};
}

Result<void> add_port(const RawFlags& raw, TestOptions& options) {
  if (raw.ib_port == 1) return {};
  if (options.nics.empty() || options.nics.find_first_of(":,+^") != std::string::npos) {
    return invalid("-i {} is the port of one RDMA device: name it, as -d mlx5_0", raw.ib_port);
  }
  options.nics += fmt::format(":{}", raw.ib_port);
  return {};
}

// Takes the port out of HOST:PORT and [IPV6]:PORT.
Result<void> split_port(const CLI::App& app, TestOptions& options) {
  const size_t colon = options.host.rfind(':');
  if (colon == std::string::npos || colon == 0) return {};
  const bool bracketed = options.host[colon - 1] == ']';
  if (!bracketed && options.host.find(':') != colon) return {};  // an IPv6 address
  const auto port = to_number<uint16_t>(options.host.substr(colon + 1));
  if (!port || *port == 0 || (app.count("--port") > 0 && options.port != *port)) {
    return invalid("'{}': after the colon give the server's port, 1 to 65535, and no other by -p",
                   options.host);
  }
  options.port = *port;
  options.host.resize(colon);
  return {};
}

// Sets the flags of each pair.
void choose_pair_flags(const CLI::App& app, TestOptions& options) {
  ManyHosts& many = options.many;
  if (!many.flags.given()) return;
  many.pair_flags =
      cli::given_flags(app, {"--pairs", "--html", "--least", "--pair-limit", "--out_json",
                             "--out_json_file", "--port", "--CPU-freq"});
  if (app.count("--port") == 0) options.port = 0;  // any free port: it is printed
  if (app.count("--duration") == 0 && app.count("--iters") == 0) {
    options.parameters.duration_s = kPairSeconds;
    many.pair_flags.insert(many.pair_flags.end(), {"--duration", fmt::format("{}", kPairSeconds)});
  }
}

// Checks flags that depend on each other, and sets what follows from them.
Result<void> complete(TestKind kind, const CLI::App& app, const RawFlags& raw,
                      TestOptions& options) {
  TestParameters& parameters = options.parameters;
  if (app.count("host") > 0 && options.host.empty()) {
    return invalid("the server's name is empty: leave it out to be the server, or name one");
  }
  RETURN_IF_ERROR(split_port(app, options));
  if (!options.host.empty() && options.port == 0) {
    return invalid("-p 0 is for the server: name the server's port");
  }
  if (options.gpu.dma_buf && !options.gpu.wanted()) {
    return invalid("--use_cuda_dmabuf needs the GPU whose memory it is: add --use_cuda 0");
  }
  if (2 * options.margin_s >= parameters.duration_s && options.margin_s > 0) {
    return invalid("-f leaves nothing of -D to measure: give less than half of it");
  }
  for (unsigned shift = 1; raw.all_sizes && shift <= kMaxSizeShift; ++shift) {
    options.sizes.push_back(uint64_t{1} << shift);
  }
  if (!raw.all_sizes) options.sizes.push_back(raw.size);
  if (kind == TestKind::kLatency) {
    const uint64_t fitting = kLatencyBufferBytes / std::max<uint64_t>(options.sizes.back(), 1);
    parameters.tx_depth = static_cast<uint32_t>(std::clamp<uint64_t>(fitting, 2, kMaxLatencyDepth));
  }
  if (options.run_infinitely && parameters.duration_s == 0 && app.count("--iters") == 0) {
    parameters.duration_s = kRepeatSeconds;
  }
  // More than all messages are never in flight.
  const bool counted = kind == TestKind::kBandwidth && parameters.duration_s == 0;
  const uint64_t most = counted ? parameters.iterations : kMaxDepth;
  parameters.tx_depth = static_cast<uint32_t>(std::min<uint64_t>(parameters.tx_depth, most));
  const CLI::Option* rx_depth = app.get_option_no_throw("--rx-depth");
  if (rx_depth == nullptr || rx_depth->count() == 0) {
    parameters.rx_depth =
        static_cast<uint32_t>(std::min<uint64_t>({2 * parameters.tx_depth, kMaxDepth, most}));
  }
  const uint64_t buffers = buffer_bytes(parameters, options.sizes.back());
  if (buffers > kMaxBufferBytes) {
    return invalid(
        "the messages in flight need {} MiB of buffers, more than {} MiB: lower -s, -q, -t or -r",
        buffers >> 20, kMaxBufferBytes >> 20);
  }
  RETURN_IF_ERROR(add_port(raw, options));
  RETURN_IF_ERROR(convert_rate(raw, options));
  choose_pair_flags(app, options);
  return {};
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
  add_first_flags(app, options, raw);
  if (bandwidth) {
    add_bandwidth_flags(app, options, raw);
  } else {
    add_latency_flags(app, options);
  }
  add_common_flags(app, options);
  add_perftest_names(app, options, raw);
  add_many_hosts_flags(app, options.many);
  app.footer(fmt::format(
      "The client's flags rule the test; a server needs at most -p, -d, --bind, --max-buffers\n"
      "and --run_infinitely. The flags of perftest work, too: 'pacecar help "
      "perftest' lists them.\n"
      "  server$ pacecar {0}\n"
      "  client$ pacecar {0} -a server\n"
      "Between all of many hosts, with the flags of a pair: for a second each, unless -D "
      "or -n is given.\n"
      "  pacecar {0} --hosts hosts.txt --html matrix.html\n"
      "  pacecar {0} --hosts slurm --launch srun --least 0.8\n{1}",
      name_of(kind), cli::kExitCodesHelp));
  ASSIGN_OR_RETURN(parsed.help, cli::parse_command_line(app, argc, argv,
                                                        {.unknown_flag = answer_to_perftest_flag}));
  if (!parsed.help.empty()) return parsed;
  RETURN_IF_ERROR(complete(kind, app, raw, options));
  return parsed;
}

int run_with_options(
    TestKind kind, int argc, char** argv,
    const std::function<Result<int>(const TestOptions&, const cli::Console&)>& run) {
  const auto parsed = parse_test_options(kind, argc, argv);
  if (!parsed) {
    cli::Console(false, true).error(parsed.error().message);
    return cli::kExitUsage;
  }
  const TestOptions& options = parsed->options;
  if (parsed->help.empty()) {
    const cli::Console console(options.console.quiet, !options.console.no_color);
    return cli::code_of(run(options, console), console);
  }
  fmt::print("{}", parsed->help);
  return cli::kExitOk;
}

}  // namespace pacecar::perf

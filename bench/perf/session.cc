// run_test(): the client side and the server side of a session. On the control channel:
//
//   both prove the cluster's key, if there is one (control_listener.h)
//   client: hello {protocol, release, test, parameters}      server: welcome, or error
//   per size: client: test {size}; both set up streams; phases warm-up and measurement;
//             client: result {result}
//   client: end {status}
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/cli/files.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/json_fields.h"
#include "bench/perf/control_listener.h"
#include "bench/perf/options.h"
#include "bench/perf/probe.h"
#include "bench/perf/report.h"
#include "bench/perf/streams.h"
#include "bench/perf/test_parameters.h"
#include "transport/base/invalid.h"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"
#include "transport/engine/open/cluster_key.h"

namespace pacecar::perf {
namespace {

using Json = nlohmann::json;

std::string_view key_of_output(std::string_view output) {
  if (output == "latency") return "t_avg";
  return output == "message_rate" ? "MsgRate" : "BW_average";
}

// Prints the columns of a test as its results come, and keeps them for the JSON document.
class Reporter {
 public:
  // Prints the header. `parameters` come from the client; files and thresholds from `options`.
  Reporter(TestKind kind, const TestOptions& options, const TestParameters& parameters)
      : kind_(kind), options_(options), columns_(columns_of(kind, parameters)) {
    options_.parameters = parameters;
    if (!options_.output.empty()) {
      std::erase_if(columns_, [this](const Column& column) {
        return column.key != key_of_output(options_.output);
      });
      return;
    }
    print(header_line(columns_));
  }

  // `nic`: that the streams used. Errors: kPeer when a peer's result lacks a number.
  Result<void> add(Json result, size_t nic) {
    nic_ = nic;
    ASSIGN_OR_RETURN(const auto line, result_line(columns_, result));
    print(options_.output.empty() ? line : line.substr(line.find_first_not_of(' ')));
    for (const std::string& further : further_lines(options_, result)) print(further);
    any_ = true;
    if (missed_.empty()) missed_ = missed_threshold(options_, result);
    if (!options_.json_file.empty()) results_.push_back(std::move(result));
    return {};
  }
  bool any() const { return any_; }
  // The first threshold that was missed; empty: none.
  const std::string& missed() const { return missed_; }
  // Writes the document where the options say, if they do. Errors: kSystem.
  Result<void> write_json(std::span<const NicInfo> nics) const {
    return cli::write_json(options_.json_file,
                           report_document(kind_, options_, nics[nic_], results_));
  }

 private:
  void print(const std::string& line) const {
    if (options_.json_file == cli::kStandardOutput) return;  // columns would spoil the document
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }

  TestKind kind_;
  TestOptions options_;
  std::vector<Column> columns_;
  std::vector<Json> results_;
  std::string missed_;
  bool any_ = false;
  size_t nic_ = 0;
};

constexpr uint64_t kProtocol = 3;
// Together below the 5 s that a client may take to say that it cannot reach its server.
constexpr Duration kControlLimit = Duration::from_ms(2500);
constexpr Duration kWelcomeLimit = Duration::from_s(2);  // and for the first word of a proof
// Before the first connections, when it may be anybody.
constexpr Duration kFirstLimit = Duration::from_s(5);
// Between two sizes, and while the client prints.
constexpr Duration kNextLimit = Duration::from_s(60);
constexpr uint64_t kWarmupBytes = 4 << 20;
constexpr uint64_t kMaxWarmupMessages = 1000;
constexpr const char* kLoopback = "127.0.0.1";

uint64_t warmup_messages(const TestParameters& parameters, uint64_t size) {
  const uint64_t group = group_size(parameters.rx_depth);
  const uint64_t messages = std::clamp<uint64_t>(kWarmupBytes / size, 1, kMaxWarmupMessages);
  return (messages + group - 1) / group * group;
}

// As a context of this process finds it.
Result<bootstrap::ClusterKey> cluster_key() {
  ASSIGN_OR_RETURN(const auto params, load_params_from_environment({}, nullptr));
  return read_cluster_key(params.key_file);
}

// One end's side of a test.
struct Side {
  TestKind kind;
  const TestOptions& options;
  const MessagePlace& place;
  const cli::Console& console;
  Duration connect_limit;  // from when streams are asked for until they are there

  bool echo() const { return kind == TestKind::kLatency; }  // the server answers each message

  Result<std::unique_ptr<Context>> open_context(const TestParameters& parameters) const {
    Options opening{.settings = transport_settings(parameters, options.nics),
                    .log = console.log_sink()};
    opening.settings.insert(opening.settings.end(), options.settings.begin(),
                            options.settings.end());
    auto context = Context::open(opening);
    constexpr std::string_view kParameter = "PACECAR_NICS";
    if (!context && !options.nics.empty() && context.error().message.starts_with(kParameter)) {
      context.error().message.replace(0, kParameter.size(), "-d");
    }
    return context;
  }

  Result<Streams> connect(Context& context, ControlChannel& channel,
                          const TestParameters& parameters, uint64_t size, bool client) const {
    const bool both = parameters.bidirectional || echo();
    return make_streams(context, channel,
                        {.size = size,
                         .send = both || parameters.reversed != client,
                         .receive = both || parameters.reversed == client,
                         .echo = echo(),
                         .place = place,
                         .connect_limit = connect_limit},
                        parameters);
  }
};

class Client : Side {
 public:
  // `own`: of this end alone. Its environment has what the options have from there.
  Client(const Side& side, const TestParameters& own) : Side(side), own_(own) {}

  // Returns an ExitCode.
  Result<int> run() {
    ASSIGN_OR_RETURN(const auto context, open_context(own_));
    console.note(context->banner());
    RETURN_IF_ERROR(check_counters(options.counters, *context));
    ASSIGN_OR_RETURN(auto channel, ControlChannel::connect(options.host, options.port,
                                                           kControlLimit, options.source_ip));
    auto status = run_session(*context, channel);
    if (!status) channel.send_error(status.error().message);
    return status;
  }

 private:
  Result<int> run_session(Context& context, ControlChannel& channel) {
    RETURN_IF_ERROR(greet(channel));
    const cli::Interrupt interrupt;
    Reporter reporter(kind, options, options.parameters);
    bool cut_off = false;
    do {
      for (const uint64_t size : options.sizes) {
        const auto measured = run_size(context, channel, size, reporter);
        if (cli::Interrupt::asked() && reporter.any()) {
          cut_off = !measured;  // what was measured before stays
          break;
        }
        RETURN_IF_ERROR(measured);
      }
    } while (options.run_infinitely && !cli::Interrupt::asked());
    if (cli::Interrupt::asked()) console.note("interrupted: this is what was measured until then");
    constexpr uint64_t kLeastSamples = 20;  // a few of them show only how the flow began
    if (kind == TestKind::kBandwidth && limits_.samples() >= kLeastSamples) {
      console.note("limited by: " + limits_.words());
    }
    constexpr double kWorthANote = 1e-3;
    const double repeated =
        static_cast<double>(repeated_) / static_cast<double>(std::max<uint64_t>(sent_, 1));
    if (repeated >= kWorthANote) {
      console.note(
          fmt::format("{:.2g}% of the packets were sent again: the path loses or delays "
                      "them",
                      100 * repeated));
    }
    RETURN_IF_ERROR(reporter.write_json(context.nics()));
    const bool met = reporter.missed().empty();
    if (!met) console.error(reporter.missed());
    const int status = met ? cli::kExitOk : cli::kExitThresholdMissed;
    if (cut_off) {
      channel.send_error("the client was interrupted");
      return status;
    }
    RETURN_IF_ERROR(channel.send({{"type", "end"}, {"status", status}}));
    return status;
  }

  Result<void> greet(ControlChannel& channel) const {
    ASSIGN_OR_RETURN(const auto key, cluster_key());
    RETURN_IF_ERROR(prove(channel, key, kWelcomeLimit));
    const Json hello = {{"type", "hello"},
                        {"protocol", kProtocol},
                        {"release", PACECAR_VERSION},
                        {"test", name_of(kind)},
                        {"parameters", to_json(options.parameters)}};
    return channel.ask(hello, "welcome", kWelcomeLimit).map([](const Json&) {});
  }

  Result<void> run_size(Context& context, ControlChannel& channel, uint64_t size,
                        Reporter& reporter) {
    const TestParameters& parameters = options.parameters;
    RETURN_IF_ERROR(channel.send({{"type", "test"}, {"size", size}}));
    ASSIGN_OR_RETURN(auto streams, connect(context, channel, parameters, size, /*client=*/true));
    const End end{context, channel, streams, !echo()};

    ProbeSetup setup{size, {warmup_messages(parameters, size), {}}, options, console, false};
    if (options.margin_s > 0) setup.goal = {0, cli::duration_of(options.margin_s)};
    RETURN_IF_ERROR(run_phase(end, *make_probe(kind, setup)));

    setup.visible = true;
    setup.goal = {parameters.iterations, {}};
    if (parameters.duration_s > 0) {
      setup.goal = {0, cli::duration_of(parameters.duration_s - 2 * options.margin_s)};
    }
    const auto probe = make_probe(kind, setup);
    ASSIGN_OR_RETURN(const auto phase, run_phase(end, *probe));
    Json result = probe->result(phase);
    if (result["n_iterations"] == 0) {
      return fail(ErrorCode::kUnavailable,
                  cli::Interrupt::asked() ? "interrupted before anything was measured"
                                          : "no message arrived in the time of the measurement: "
                                            "raise -D, or look for stalls on the path");
    }
    compare_controls(phase);
    limits_.add(probe->limits());
    for (const EndReport* one : {&phase.client, &phase.server}) {
      sent_ += one->growth.packets_sent;
      repeated_ += one->growth.packets_retransmitted;
    }
    Json reported = result;
    reported.erase("samples");  // ours alone, and many
    RETURN_IF_ERROR(channel.send({{"type", "result"}, {"result", std::move(reported)}}));
    return reporter.add(std::move(result), streams.nic);
  }

  // Each end has its own PACECAR_* parameters, except the ones that the client's hello sets.
  void compare_controls(const PhaseResult& phase) {
    const std::string& ours = phase.client.growth.congestion_control;
    const std::string& theirs = phase.server.growth.congestion_control;
    if (controls_compared_ || ours == theirs) return;
    controls_compared_ = true;
    console.warn(fmt::format(
        "the congestion control is {} here and {} at the server: choose one for both with --cc",
        ours, theirs));
  }

  TestParameters own_;
  bool controls_compared_ = false;
  // In all measurements, at both ends:
  LimitsSeen limits_;
  uint64_t sent_ = 0;  // packets
  uint64_t repeated_ = 0;
};

// The addresses as a client may give them: a link-local one with an interface of its own.
std::string for_clients(std::vector<std::string> hosts) {
  for (std::string& host : hosts) {
    const size_t scope = host.find('%');
    if (scope != std::string::npos) host.replace(scope, std::string::npos, "%(its interface)");
  }
  return fmt::format("{}", fmt::join(hosts, " and "));
}

class Server : Side {
 public:
  explicit Server(const Side& side) : Side(side) {}

  // Returns the client's ExitCode, unless the server runs infinitely.
  Result<int> run() {
    ASSIGN_OR_RETURN(auto listener, open_listener());
    if (!options.announce.empty()) {  // for a parent that does not read the output
      RETURN_IF_ERROR(cli::write_text(options.announce,
                                      fmt::format("{} {}\n", hosts_.front(), listener.port())));
    }
    for (;;) {
      console.note(fmt::format("waiting for a client of 'pacecar {}' at {} on port {}",
                               name_of(kind), for_clients(hosts_), listener.port()));
      const auto status = serve_next(listener);
      if (!status) console.error(status.error().message);
      if (!options.run_infinitely) return status ? *status : cli::kExitFailed;
    }
  }

 private:
  // Every client gets a context of its own, with its parameters. Until a client comes, another
  // context stays open, because a client's NIC may be the other end of ours and not open without it
  // (net_virtio_user).
  Result<void> wait_with_nics() {
    if (waiting_ != nullptr) return {};
    ASSIGN_OR_RETURN(waiting_, open_context(TestParameters()));
    return {};
  }

  // Reports mistakes of this side before a client comes.
  Result<ControlListener> open_listener() {
    RETURN_IF_ERROR(wait_with_nics());
    console.note(waiting_->banner());
    ASSIGN_OR_RETURN(const auto params, load_params_from_environment({}, nullptr));
    ASSIGN_OR_RETURN(const auto key, read_cluster_key(params.key_file));
    hosts_ = {options.bind};
    if (options.bind.empty()) {
      hosts_ = {waiting_->nics().front().address};
      // Clients on this host reach the NIC's address as well.
      if (hosts_.front() != kLoopback) hosts_.emplace_back(kLoopback);
    }
    return ControlListener::open(hosts_, options.port, key, params.ports);
  }

  // Serves the next test. A failure before its first connections are made does not end the server:
  // the client may be a stranger, or mistaken.
  Result<int> serve_next(ControlListener& listener) {
    for (;;) {
      if (auto ok = wait_with_nics(); !ok) console.warn(ok.error().message);
      ASSIGN_OR_RETURN(auto caller, listener.accept("hello", [this](const Error& why) {
        console.warn(why.message);
      }));
      std::optional<Reporter> reporter;  // of a test that has begun
      auto status = serve(caller.channel, caller.greeting, reporter);
      if (status) return status;
      caller.channel.send_error(status.error().message);
      if (reporter) return status;
      console.warn(fmt::format("{}: {}", caller.channel.peer(), status.error().message));
    }
  }

  Result<TestParameters> check_hello(const Json& hello) const {
    const auto protocol = cli::unsigned_field(hello, "protocol", 0, UINT64_MAX);
    const auto release = cli::text_field(hello, "release", 64);
    if (!protocol || !release || *protocol != kProtocol) {
      return fail(ErrorCode::kPeer,
                  "client and server are different versions (server {}, client {}): install the "
                  "same one on both hosts",
                  PACECAR_VERSION, release ? *release : "unknown");
    }
    const auto test = cli::text_field(hello, "test", 64);
    if (!test || *test != name_of(kind)) {
      return fail(ErrorCode::kPeer,
                  "the server runs 'pacecar {}' and the client 'pacecar {}': start the same test "
                  "on both hosts",
                  name_of(kind), test ? *test : "?");
    }
    return test_parameters_from_json(hello.value("parameters", Json()));
  }

  Result<int> serve(ControlChannel& channel, const Json& hello, std::optional<Reporter>& reporter) {
    ASSIGN_OR_RETURN(const auto parameters, check_hello(hello));
    RETURN_IF_ERROR(channel.send({{"type", "welcome"}}));
    waiting_.reset();
    // May take seconds.
    ASSIGN_OR_RETURN(const auto context, open_context(parameters));
    console.note(fmt::format("serving {}", channel.peer()));
    for (;;) {
      ASSIGN_OR_RETURN(const auto message, channel.receive(reporter ? kNextLimit : kFirstLimit));
      if (reporter && message.value("type", Json()) == "end") {
        ASSIGN_OR_RETURN(const auto status, cli::unsigned_field(message, "status", cli::kExitOk,
                                                                cli::kExitThresholdMissed));
        RETURN_IF_ERROR(reporter->write_json(context->nics()));
        return static_cast<int>(status);
      }
      RETURN_IF_ERROR(serve_size(*context, channel, message, parameters, reporter));
    }
  }

  Result<void> serve_size(Context& context, ControlChannel& channel, const Json& message,
                          const TestParameters& parameters,
                          std::optional<Reporter>& reporter) const {
    ASSIGN_OR_RETURN(const auto size, cli::unsigned_field(message, "size", 1, kMaxMessageBytes));
    if (const uint64_t wanted = buffer_bytes(parameters, size); wanted > options.max_buffers) {
      return fail(ErrorCode::kPeer,
                  "the client asks for {} MiB of buffers, and the server allows {}: lower -s, -q, "
                  "-t or -r, or raise --max-buffers there",
                  wanted >> 20, options.max_buffers >> 20);
    }
    ASSIGN_OR_RETURN(auto streams, connect(context, channel, parameters, size, /*client=*/false));
    if (!reporter) reporter.emplace(kind, options, parameters);
    const End end{context, channel, streams, !echo()};
    for (int phase = 0; phase < 2; ++phase) {  // warm-up, measurement
      RETURN_IF_ERROR(serve_phase(end, echo()));
    }
    ASSIGN_OR_RETURN(const auto received, channel.expect("result", kNextLimit));
    return reporter->add(received.value("result", Json()), streams.nic);
  }

  std::vector<std::string> hosts_;    // where it waits
  std::unique_ptr<Context> waiting_;  // until a client comes
};

// PACECAR_CC of the client's environment applies to both ends, as --cc does.
void choose_control(const Params& params, TestParameters& parameters) {
  const auto row = std::ranges::find(param_table(), "PACECAR_CC", &ParamInfo::name);
  const auto index = static_cast<size_t>(row - param_table().begin());
  const bool chosen = params.origin(index) != Params().origin(index);
  if (chosen && parameters.congestion_control.empty()) parameters.congestion_control = params.cc;
}

}  // namespace

Result<int> run_test(TestKind kind, TestOptions options, const cli::Console& console) {
  RETURN_IF_ERROR(cli::check_writable(options.json_file));
  ASSIGN_OR_RETURN(const auto params, load_params_from_environment({}, nullptr));
  const bool server = options.host.empty();
  const TestParameters own = options.parameters;
  if (!server) choose_control(params, options.parameters);
  ASSIGN_OR_RETURN(const auto place, find_place(options));
  const Side side{kind, options, place, console, params.connect_timeout};
  return server ? Server(side).run() : Client(side, own).run();
}

}  // namespace pacecar::perf

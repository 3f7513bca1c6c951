#include <fmt/format.h>

#include <algorithm>

#include "transport/api/joining.h"
#include "transport/api/memory.h"
#include "transport/api/pacecar.hpp"
#include "transport/api/state_document.h"
#include "transport/base/params_environment.h"
#include "transport/engine/clock.h"
#include "transport/engine/open_nic.h"
#include "transport/state/state_server.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

std::vector<ParamSetting> with_origin(const std::vector<Setting>& settings,
                                      const std::string& origin) {
  std::vector<ParamSetting> all;
  for (const Setting& setting : settings) all.push_back({setting.first, setting.second, origin});
  return all;
}

NicInfo describe_nic(const OpenedNic& nic, const Params& params) {
  const NicCaps& caps = std::as_const(*nic.port).nic().caps();
  return NicInfo{
      .name = nic.name,
      .device = nic.device,
      .address = ip_to_string(nic.port->address()),
      .pci_path = nic.pci_path,
      .guid = nic.guid,
      .speed_mbps = nic.speed.bps() / 1'000'000,
      .mtu_bytes = caps.mtu,
      .paths = caps.paths,
      .max_connections = params.max_connections,
      .traffic_class = params.tc,
      .ecn = caps.sees_ecn,
  };
}

class EngineContext final : public Context {
 public:
  struct RunningNic {
    NicInfo info;
    std::shared_ptr<Engine> engine;
  };

  EngineContext(Params params, std::vector<RunningNic> nics, LogSink log)
      : params_(std::move(params)), nics_(std::move(nics)), log_(log) {
    for (const RunningNic& nic : nics_) infos_.push_back(nic.info);
    serve_state();
  }

  std::span<const NicInfo> nics() const override { return infos_; }

  std::string banner() const override {
    std::string text = "Pacecar on";
    for (const NicInfo& info : infos_) {
      text += fmt::format(" {} ({}, {} B packets, {} paths)", info.name, info.address,
                          info.mtu_bytes, info.paths);
    }
    text += fmt::format("; congestion control {}", params_.cc);
    for (size_t row = 0; row < param_table().size(); ++row) {
      if (params_.origin(row) == "default") continue;
      text += fmt::format("; {}={} ({})", param_table()[row].name, params_.text(row),
                          params_.origin(row));
    }
    return text;
  }

  Result<std::unique_ptr<Listener>> listen(size_t nic) override {
    if (nic >= nics_.size()) return no_such_nic(nic);
    return make_listener(own(nics_[nic]), params_);
  }

  Result<std::unique_ptr<Connecting>> connect(size_t nic, const Handle& handle,
                                              uint32_t weight) override {
    if (nic >= nics_.size()) return no_such_nic(nic);
    if (weight > kMaxWeight) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("a connection's weight is {}: give 1 to {}, or 0 for PACECAR_WEIGHT",
                              weight, kMaxWeight));
    }
    return make_connecting(own(nics_[nic]), params_, handle, weight);
  }

  void expect(uint32_t senders, uint32_t connections_per_sender) override {
    for (const RunningNic& nic : nics_) nic.engine->expect({senders, connections_per_sender});
  }

  Result<const Memory*> register_memory(size_t nic, void* address, size_t length) override {
    if (nic >= nics_.size()) return no_such_nic(nic);
    auto region = nics_[nic].engine->exclusively([&](Messenger&, Nic& device, Instant) {
      return device.register_memory(address, length, Access::kRemoteWrite);
    });
    if (!region) return tl::unexpected(region.error());
    return new Memory(*region);  // until deregister_memory
  }

  Result<void> deregister_memory(size_t nic, const Memory* memory) override {
    if (nic >= nics_.size()) return no_such_nic(nic);
    nics_[nic].engine->exclusively([memory](Messenger& messenger, Nic& device, Instant) {
      if (!device.shared(memory->region())) messenger.forget_memory(memory->region().key);
      device.deregister_memory(memory->region());
    });
    delete memory;
    return {};
  }

  void rest(size_t nic) override {
    if (nic < nics_.size()) nics_[nic].engine->rest();
  }

  Statistics statistics(size_t nic) const override;

 private:
  void serve_state();
  std::string state() const;

  tl::unexpected<Error> no_such_nic(size_t nic) const {
    return fail(ErrorCode::kNotFound, fmt::format("there is no NIC number {}: the last one is {}",
                                                  nic, nics_.size() - 1));
  }

  OwnNic own(const RunningNic& nic) const {
    return {nic.engine, nic.info.name, params_.timeout, log_};
  }

  const Params params_;
  const std::vector<RunningNic> nics_;
  const LogSink log_;
  std::vector<NicInfo> infos_;
  const ProcessName process_ = own_process();
  const Instant opened_ = clock_now();
  std::unique_ptr<StateServer> state_server_;  // the last: it calls state()
};

// Without it everything works but `pacecar doctor`.
void EngineContext::serve_state() {
  if (params_.state_dir == kNoStateDirectory) return;
  const std::string directory =
      params_.state_dir.empty() ? default_state_directory() : params_.state_dir;
  auto server = StateServer::open(directory, [this] { return state(); });
  if (server) {
    state_server_ = std::move(*server);
  } else {
    log_(LogLevel::kInfo, "pacecar doctor will not see this process: " + server.error().message);
  }
}

std::string EngineContext::state() const {
  ProcessState told{
      .name = process_, .uptime = clock_now() - opened_, .banner = banner(), .nics = {}};
  for (size_t i = 0; i < nics_.size(); ++i) {
    Engine& engine = *nics_[i].engine;
    told.nics.push_back(
        {.info = nics_[i].info,
         .identity = engine.identity(),
         .line_rate = engine.caps().line_rate,
         .statistics = statistics(i),
         .flows = engine.exclusively([](const Messenger& messenger, Nic&, Instant now) {
           return messenger.flow_statuses(now);
         })});
  }
  return state_document(told);
}

Statistics EngineContext::statistics(size_t nic) const {
  Statistics statistics;
  if (nic >= nics_.size()) return statistics;
  nics_[nic].engine->exclusively([&](Messenger& messenger, Nic& device, Instant) {
    const MessengerCounters& messages = messenger.counters();
    const NicCounters& packets = device.counters();
    const FlowReport report = messenger.report();
    statistics = Statistics{
        .messages_sent = messages.messages_sent,
        .messages_received = messages.messages_received,
        .bytes_sent = messages.bytes_sent,
        .bytes_received = messages.bytes_received,
        .packets_sent = packets.data_packets_sent,
        .packets_received = packets.data_packets_received,
        .packets_retransmitted = packets.packets_retransmitted,
        .timeouts = packets.timeouts,
        .duplicates = packets.duplicates,
        .rejected = packets.malformed + packets.bad_checksum + packets.unknown_queue_pair +
                    packets.wrong_source + packets.out_of_window + packets.access_errors +
                    messages.protocol_errors,
        .marked_packets = packets.marked_packets,
        .flows = report.flows,
        .expected_senders = report.hint.peers,
        .flow_state_bytes = messenger.flow_memory().state,
        .flow_queue_bytes = messenger.flow_memory().queues,
        .rate_bps = static_cast<double>(report.decision.rate.bps()),
        .rtt_us = report.rtt.us(),
        .weight = report.weight,
        .congestion_control = params_.cc,
    };
    for (HardwareCounter& counter : device.hardware_counters()) {
      statistics.device_counters.push_back({std::move(counter.name), counter.count});
    }
  });
  return statistics;
}

}  // namespace

Result<std::unique_ptr<Context>> Context::open(const Options& options) {
  std::vector<std::string> warnings;
  auto params =
      load_params_from_environment(with_origin(options.settings, "command line"), &warnings,
                                   kSystemParamFile, with_origin(options.defaults, "application"));
  if (!params) return tl::unexpected(params.error());
  LogSink log = options.log;
  log.most = params->log;
  for (const std::string& warning : warnings) log(LogLevel::kWarn, warning);

  const auto chosen = choose_nics(params->nics, list_nics());
  if (!chosen) return tl::unexpected(chosen.error());
  std::vector<EngineContext::RunningNic> nics;
  for (const NicCandidate& candidate : *chosen) {
    auto nic = open_nic(candidate, *params, log);
    if (!nic) return tl::unexpected(nic.error());
    NicInfo info = describe_nic(*nic, *params);
    auto engine = Engine::open(*params, std::move(nic->port));
    if (!engine) return tl::unexpected(engine.error());
    nics.push_back({.info = std::move(info), .engine = std::move(*engine)});
  }
  return std::make_unique<EngineContext>(std::move(*params), std::move(nics), log);
}

}  // namespace pacecar

#include <fmt/format.h>

#include <algorithm>

#include "transport/api/joining.h"
#include "transport/api/memory.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/params_environment.h"
#include "transport/engine/clock.h"
#include "transport/engine/nic_list.h"
#include "transport/engine/open_io.h"
#include "transport/engine/soft_port.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

// Only what PACECAR_LOG asks for.
struct FilteredLog {
  LogSink sink;
  LogLevel most;
  void operator()(LogLevel level, std::string_view line) const {
    if (level <= most) sink(level, line);
  }
};

std::vector<ParamSetting> with_origin(const std::vector<Setting>& settings,
                                      const std::string& origin) {
  std::vector<ParamSetting> all;
  for (const Setting& setting : settings) all.push_back({setting.first, setting.second, origin});
  return all;
}

NicInfo describe_nic(const InterfaceInfo& interface, const Engine& engine, const Params& params) {
  const Rate speed = params.line_rate.bps() != 0 ? params.line_rate : interface.speed;
  return NicInfo{
      .name = (interface.raw ? "soft:raw:" : "soft:udp:") + interface.name,
      .device = interface.name,
      .address = ip_to_string(engine.address()),
      .pci_path = interface.pci_path,
      .guid = interface.guid,
      .speed_mbps = speed.bps() / 1'000'000,
      .mtu_bytes = engine.caps().mtu,
      .paths = engine.caps().paths,
      .max_connections = params.max_connections,
      .traffic_class = params.tc,
      .ecn = engine.caps().sees_ecn,
  };
}

class EngineContext final : public Context {
 public:
  struct OpenNic {
    NicInfo info;
    std::shared_ptr<Engine> engine;
  };

  EngineContext(Params params, std::vector<OpenNic> nics)
      : params_(std::move(params)), nics_(std::move(nics)) {
    for (const OpenNic& nic : nics_) infos_.push_back(nic.info);
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
    return make_listener(nics_[nic].engine, params_);
  }

  Result<std::unique_ptr<Connecting>> connect(size_t nic, const Handle& handle,
                                              uint32_t weight) override {
    if (nic >= nics_.size()) return no_such_nic(nic);
    if (weight > kMaxWeight) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("a connection's weight is {}: give 1 to {}, or 0 for PACECAR_WEIGHT",
                              weight, kMaxWeight));
    }
    return make_connecting(nics_[nic].engine, params_, handle, weight);
  }

  void expect(uint32_t senders, uint32_t connections_per_sender) override {
    for (const OpenNic& nic : nics_) nic.engine->expect({senders, connections_per_sender});
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
      messenger.forget_memory(memory->region().key);
      device.deregister_memory(memory->region());
    });
    delete memory;
    return {};
  }

  Statistics statistics(size_t nic) const override;

 private:
  tl::unexpected<Error> no_such_nic(size_t nic) const {
    return fail(ErrorCode::kNotFound, fmt::format("there is no NIC number {}: the last one is {}",
                                                  nic, nics_.size() - 1));
  }

  const Params params_;
  const std::vector<OpenNic> nics_;
  std::vector<NicInfo> infos_;
};

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
  const FilteredLog log{options.log, params->log};
  for (const std::string& warning : warnings) log(LogLevel::kWarn, warning);

  const std::vector<InterfaceInfo> interfaces = list_interfaces();
  const auto chosen = choose_interfaces(params->nics, interfaces);
  if (!chosen) return tl::unexpected(chosen.error());
  std::vector<EngineContext::OpenNic> nics;
  for (const InterfaceInfo& interface : *chosen) {
    auto io = open_io(*params, interface);
    if (!io) return tl::unexpected(io.error());
    auto engine = Engine::open(*params, make_soft_port(*params, std::move(*io), clock_now()));
    if (!engine) return tl::unexpected(engine.error());
    NicInfo info = describe_nic(interface, **engine, *params);
    nics.push_back({std::move(info), std::move(*engine)});
  }
  return std::make_unique<EngineContext>(std::move(*params), std::move(nics));
}

}  // namespace pacecar

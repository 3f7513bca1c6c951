// A workload as the text of a .cm file, and the bytes of its busiest host: tests compare workloads
// by both.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "bench/workload/workload.h"

namespace pacecar {

// "2.5" for 2500 ns.
inline std::string microseconds(Duration duration) {
  std::string text = fmt::format("{}.{:03}", duration.ns() / 1000, duration.ns() % 1000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

// parse_cm() gives the same flows and triggers, in one job, numbered from 1.
inline std::string write_cm(const Workload& workload) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "Nodes {}\nConnections {}\n", workload.hosts, workload.flows.size());
  if (!workload.triggers.empty()) fmt::format_to(out, "Triggers {}\n", workload.triggers.size());
  size_t id = 0;
  for (const WorkloadFlow& flow : workload.flows) {
    fmt::format_to(out, "{}->{} id {}", flow.source, flow.destination, ++id);
    if (flow.trigger != kNoTrigger) fmt::format_to(out, " trigger {}", flow.trigger + 1);
    if (flow.trigger == kNoTrigger || flow.start > Duration()) {
      fmt::format_to(out, " start {}", microseconds(flow.start));
    }
    fmt::format_to(out, " size {}", flow.bytes);
    for (const uint32_t trigger : flow.on_sent) {
      fmt::format_to(out, " send_done_trigger {}", trigger + 1);
    }
    for (const uint32_t trigger : flow.on_received) {
      fmt::format_to(out, " recv_done_trigger {}", trigger + 1);
    }
    text += '\n';
  }
  for (size_t i = 0; i < workload.triggers.size(); ++i) {
    const WorkloadTrigger& trigger = workload.triggers[i];
    fmt::format_to(out, "trigger id {} ", i + 1);
    switch (trigger.kind) {
      case WorkloadTrigger::Kind::kOneShot: text += "oneshot\n"; break;
      case WorkloadTrigger::Kind::kMultiShot: text += "multishot\n"; break;
      case WorkloadTrigger::Kind::kBarrier:
        fmt::format_to(out, "barrier count {}\n", trigger.count);
        break;
    }
  }
  return text;
}

// The bytes that the busiest host sends, or receives if that is more.
inline Bytes busiest_host_bytes(const Workload& workload) {
  std::vector<Bytes> sent(workload.hosts, 0);
  std::vector<Bytes> received(workload.hosts, 0);
  for (const WorkloadFlow& flow : workload.flows) {
    sent[flow.source] += flow.bytes;
    received[flow.destination] += flow.bytes;
  }
  Bytes most = 0;
  for (uint32_t host = 0; host < workload.hosts; ++host) {
    most = std::max({most, sent[host], received[host]});
  }
  return most;
}

}  // namespace pacecar

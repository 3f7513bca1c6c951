#include "transport/api/reports.h"

#include <fmt/format.h>

#include "transport/wire/address.h"

namespace pacecar {
namespace {

std::string gbps(Rate rate) { return fmt::format("{:.3g} Gb/s", rate.real_bps() * 1e-9); }

std::string limits_of(const Stall& stall) {
  const Explanation& flow = stall.explanation;
  std::string text = fmt::format("the flow may send {}, limited by {}", gbps(flow.rate),
                                 to_string(flow.limited_by));
  if (flow.grant > Rate()) {
    text += fmt::format(" (grant {}, {:.0f} ms old)", gbps(flow.grant), flow.grant_age.us() * 1e-3);
  }
  if (stall.rtt > Duration()) text += fmt::format("; last round trip {:.0f} us", stall.rtt.us());
  return text;
}

}  // namespace

Error describe(MessageFailure failure, const std::string& peer, Duration timeout,
               const std::string& fault, const std::string& own) {
  const auto of_peer = [&](std::string_view what) {
    return Error{ErrorCode::kPeer, fmt::format("peer {} {}", peer, what)};
  };
  switch (failure) {
    case MessageFailure::kPeerSilent:
      if (!own.empty()) return {ErrorCode::kPeer, own};
      if (!fault.empty()) return {ErrorCode::kPeer, fmt::format("peer {}: {}", peer, fault)};
      return of_peer(
          fmt::format("does not answer: it has died or the network between is down "
                      "(PACECAR_TIMEOUT={:g}s bounds the wait)",
                      timeout.seconds()));
    case MessageFailure::kPeerClosed:
      return of_peer(
          "closed the connection before the message was complete: look for the first error there");
    case MessageFailure::kPeerRefused:
      return of_peer(
          "refused the write: its receive buffer was deregistered; look for the first error there");
    case MessageFailure::kPeerAbandoned:
      return of_peer("gave up a message before it was complete: look for the first error there");
    case MessageFailure::kPeerProtocol:
      return of_peer(
          "broke the protocol: run the same version of Pacecar on both sides; if it is, packets "
          "may be changed on the way, which PACECAR_INTEGRITY=full mends");
    case MessageFailure::kTooLong:
      return {
          ErrorCode::kInvalidArgument,
          fmt::format("a message to or from {} is larger than the posted receive buffer: the ranks "
                      "call different collectives, or differ in NCCL_* settings such as "
                      "NCCL_BUFFSIZE; other programs must post larger buffers",
                      peer)};
    case MessageFailure::kMemoryGone:
      return {ErrorCode::kInvalidArgument,
              fmt::format("memory of a message to or from {} was deregistered or unmapped before "
                          "the message was complete: wait for its requests first",
                          peer)};
    case MessageFailure::kNone: break;
  }
  return {ErrorCode::kInternal, "a request failed without a reason"};
}

LogLevel level_of(const Stall& stall) {
  return stall.expected() ? LogLevel::kInfo : LogLevel::kWarn;
}

std::string describe(const Stall& stall, const std::string& end, const std::string& address) {
  const std::string of =
      stall.connections <= 1 ? "" : fmt::format(" on {} connections", stall.connections);
  const std::string begin = fmt::format("{}: nothing has moved for {:.0f} s{}, {} requests wait",
                                        end, stall.lasted.seconds(), of, stall.requests);
  if (stall.silent()) {
    return fmt::format(
        "{}, and no answer comes from {} to {}: its process is stopped, or the network between "
        "drops packets there or back (a firewall? PACECAR_PORTS sets the ports; a filter of "
        "traffic classes or ECN marks? an MTU below 576?)",
        begin, stall.peer_address, address);
  }
  if (stall.awaits_peer) {
    return begin + ": the peer has not come to this message; if it does not compute, look there";
  }
  return fmt::format("{}, {} writes are not acknowledged; {}", begin, stall.writes,
                     limits_of(stall));
}

std::string describe_path(const FlowFacts& flow, const std::string& nic) {
  if (flow.path_mtu == 0) {
    return fmt::format("packets of all sizes pass to {} over {} again", flow.peer_address, nic);
  }
  return fmt::format(
      "packets above {} bytes do not pass to {} over {}, although it began with larger ones: "
      "smaller ones are sent; check the MTU of the switches between, and of both interfaces",
      flow.path_mtu, flow.peer_address, nic);
}

void StallWatch::report(const OwnNic& nic) {
  const auto take = [](Messenger& messenger) {
    return std::pair(messenger.take_changed_paths(), messenger.take_stalls());
  };
  const auto [paths, stalls] = nic.engine->exclusively(take);
  for (const FlowFacts& flow : paths) {
    nic.log(flow.path_mtu == 0 ? LogLevel::kInfo : LogLevel::kWarn, describe_path(flow, nic.name));
  }
  for (const auto& [sending, over, stall] : stalls) {
    const std::string end = fmt::format("{} {} over {}", sending ? "send to" : "receive from",
                                        stall.peer_address, nic.name);
    const Address& address = nic.engine->address();
    const std::string own = over ? "" : own_trouble(nic.name, address, stall.peer_address);
    nic.log(level_of(stall), over          ? end + " moves again"
                             : own.empty() ? describe(stall, end, to_string(address))
                                           : end + ": " + own);
  }
}

}  // namespace pacecar

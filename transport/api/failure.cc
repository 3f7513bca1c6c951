#include "transport/api/failure.h"

#include <fmt/format.h>

namespace pacecar {

Error describe(MessageFailure failure, const std::string& peer, Duration timeout,
               const std::string& fault) {
  switch (failure) {
    case MessageFailure::kPeerSilent:
      if (!fault.empty()) return {ErrorCode::kPeer, fmt::format("peer {}: {}", peer, fault)};
      return {ErrorCode::kPeer,
              fmt::format("peer {} does not answer: it has died or the network between is down "
                          "(PACECAR_TIMEOUT={:g}s bounds the wait)",
                          peer, timeout.seconds())};
    case MessageFailure::kPeerClosed:
      return {ErrorCode::kPeer,
              fmt::format("peer {} closed the connection before the message was complete: look for "
                          "the first error there",
                          peer)};
    case MessageFailure::kPeerRefused:
      return {
          ErrorCode::kPeer,
          fmt::format("peer {} refused the write: its receive buffer was deregistered; look for "
                      "the first error there",
                      peer)};
    case MessageFailure::kPeerAbandoned:
      return {ErrorCode::kPeer,
              fmt::format("peer {} gave up a message before it was complete: look for the first "
                          "error there",
                          peer)};
    case MessageFailure::kPeerProtocol:
      return {ErrorCode::kPeer, fmt::format("peer {} broke the protocol: run the same version of "
                                            "Pacecar on both sides",
                                            peer)};
    case MessageFailure::kTooLong:
      return {
          ErrorCode::kInvalidArgument,
          fmt::format("a message to or from {} is larger than the posted receive buffer: post a "
                      "buffer at least as large, or let it be cut (PACECAR_STRICT=0)",
                      peer)};
    case MessageFailure::kMemoryGone:
      return {ErrorCode::kInvalidArgument,
              fmt::format("memory of a message to or from {} was deregistered before the message "
                          "was complete: wait for its requests first",
                          peer)};
    case MessageFailure::kNone:
      break;
  }
  return {ErrorCode::kInternal, "a request failed without a reason"};
}

}  // namespace pacecar

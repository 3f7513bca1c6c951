// The control channel: a TCP connection between the two ends of a test. A message is a JSON object
// on one line, with its kind in the member "type". The peer's bytes are untrusted: lines are
// bounded, and a line without a JSON object is an error of code kPeer. Servers accept clients by
// control_listener.h. Thread rule: one thread at a time. Time limits are relative to the call.
#pragma once

#include <netdb.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar::perf {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;
// TCP addresses of a host ("[::1]" is "::1"), by getaddrinfo() with these flags. Errors: kNotFound,
// only the reason.
Result<Addresses> resolve(const std::string& host, uint16_t port, int flags = 0);

class ControlChannel {
 public:
  static constexpr size_t kMaxLine = 1024 * 1024;  // bytes of one message
  static constexpr size_t kMaxText = 1024;         // characters of a peer's error message

  // Takes a connected socket that does not block. Without `peer`, its name is the address of
  // the TCP peer.
  explicit ControlChannel(FileDescriptor socket, const std::string& peer = "");

  // Tries every address of `host` within `limit`, from the local address `source`; empty: any.
  // Errors also: kInvalidArgument when `source` is not an address of this host.
  static Result<ControlChannel> connect(const std::string& host, uint16_t port, Duration limit,
                                        const std::string& source = {});

  Result<void> send(const nlohmann::json& message);
  // Reports to the peer why this end gives up; best effort.
  void send_error(std::string_view text);

  // The next message. A message of type "error" is returned as an error with the peer's text.
  Result<nlohmann::json> receive(Duration limit);
  // The next message, which must be of this type.
  Result<nlohmann::json> expect(std::string_view type, Duration limit);
  // Sends a message; the answer must be of this type.
  Result<nlohmann::json> ask(const nlohmann::json& message, std::string_view type, Duration limit);
  // The next message, if it has arrived.
  Result<std::optional<nlohmann::json>> poll();
  // An error if the peer is gone or has sent an error; keeps other messages for later.
  Result<void> check_peer();
  // An error if the message is of another type.
  Result<void> require(const nlohmann::json& message, std::string_view type) const;
  Error timed_out(Duration limit) const;

  // The error to report after a failure that the peer may have caused: the peer's own, if it
  // arrives within half a second, otherwise `error`.
  Error explain(Error error);

  int descriptor() const { return socket_.get(); }  // to wait for

  const std::string& peer() const { return peer_; }

 private:
  // False when `limit` passed; errors when the peer is gone or its line too long.
  Result<bool> fill(Duration limit);
  Result<std::optional<nlohmann::json>> next_message();
  tl::unexpected<Error> wrong_protocol() const;
  tl::unexpected<Error> gone() const;

  FileDescriptor socket_;
  std::string peer_;
  std::string input_;
  bool gave_up_ = false;  // the peer sent an error
};

}  // namespace pacecar::perf

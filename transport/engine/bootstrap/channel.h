// One TCP socket that never blocks, and the frames on it.
// Invariants: at most one frame is being sent and at most one is being read, both in fixed buffers;
// a frame's length is checked before its body is read. Thread rule: one thread at a time.
#pragma once

#include <sys/socket.h>

#include <span>
#include <string_view>
#include <utility>

#include "transport/base/file_descriptor.h"
#include "transport/base/port_range.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/engine/bootstrap/wire.h"

namespace pacecar::bootstrap {

// Errors are left in errno.
class Socket : public FileDescriptor {
 public:
  using FileDescriptor::FileDescriptor;
  static constexpr int kBacklog = 256;

  // A listening or a connecting TCP socket; an empty one on failure. Port 0: the first free one of
  // `ports`. The connection may not be complete yet. Its source is the IP of `local`, unless
  // `remote` is of another IP version.
  // `backlog`: callers that the kernel holds until they are accepted.
  static Socket listen_on(const Address& local, PortRange ports = {}, int backlog = kBacklog);
  static Socket connect_to(const Address& remote, const Address& local);
  // The next caller of a listening socket, and its address; an empty socket if there is none.
  Socket accept(Address& remote) const;

  Address local() const;

  // True when the peer has closed and everything that it sent has been received.
  bool at_end() const;
};

// TCP breaks the connection if the peer's host acknowledges nothing for `limit`; zero: its default.
void expect_host(const FileDescriptor& socket, Duration limit);

// The error of a failed system call, with its cure where one is known; `code` is its errno.
Error socket_error(std::string_view what, int code);

enum class ChannelStatus {
  kPending,       // again later
  kReady,         // done
  kClosed,        // by the peer (receive(): errno is 0), or broken (errno says how)
  kForeign,       // the bytes are not the frame that was expected
  kOtherVersion,  // the peer has peer_version()
};

class Channel {
 public:
  Channel(Socket socket, const Address& peer) : socket_(std::move(socket)), peer_(peer) {}

  // 0 when connected, EINPROGRESS while connecting, otherwise the errno of the failure.
  int connect_error() const;

  void expect_host(Duration limit) { bootstrap::expect_host(socket_, limit); }

  // The previous frame must have been sent: flush() has returned kReady.
  void queue(const Frame& frame);
  ChannelStatus flush();

  // kReady: body() is a frame of the type, valid until the next receive().
  ChannelStatus receive(FrameType expected);
  std::span<const uint8_t> body() const {
    return std::span(in_).subspan(kHeaderBytes, header_.body_size);
  }
  uint8_t peer_version() const { return header_.version; }

  bool at_end() const { return socket_.at_end(); }
  // The last call.
  Socket take_socket() { return std::move(socket_); }

  const Address& peer() const { return peer_; }

 private:
  Socket socket_;
  Address peer_;
  Frame out_;
  size_t sent_ = 0;
  std::array<uint8_t, Frame::kMaxBytes> in_{};
  size_t received_ = 0;
  FrameHeader header_{};
};

}  // namespace pacecar::bootstrap

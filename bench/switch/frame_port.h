// A port that receives and sends Ethernet frames of a real network, in bursts. Frames are whole,
// from the destination address on (kEthernetBytes at least), without preamble and FCS; checksums
// inside them are complete. Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar {

struct ReceivedFrame {
  std::span<const uint8_t> bytes;  // valid until the port's next receive()
  Instant time;                    // of its arrival, by the clock of receive()'s `now`
};

// One frame to send, in two pieces.
struct OutgoingFrame {
  std::span<const uint8_t> head;
  std::span<const uint8_t> rest;  // may be empty
};

struct FramePortCounters {
  uint64_t received_frames = 0;
  uint64_t missed = 0;    // dropped by the kernel before receive()
  uint64_t too_long = 0;  // received, but longer than frame_bytes(); dropped
  uint64_t refused = 0;   // could not be sent
};

class FramePort {
 public:
  virtual ~FramePort() = default;

  virtual std::string_view name() const = 0;
  // The longest frame.
  virtual Bytes frame_bytes() const = 0;
  // Fills up to frames.size() entries in the order of arrival and returns how many; fewer means
  // that no other frame waits. All times are `now` or earlier.
  virtual size_t receive(std::span<ReceivedFrame> frames, Instant now) = 0;
  // Sends what the kernel takes; counts the rest as refused.
  virtual void send(std::span<const OutgoingFrame> frames) = 0;
  // A file descriptor that is readable when frames wait.
  virtual int wait_fd() const = 0;
  virtual FramePortCounters counters() = 0;
};

// A port on a network interface: a packet socket (AF_PACKET). Linux, with the capability
// CAP_NET_RAW. It completes the checksums that senders left to the device. Packets that senders
// joined (GSO) are longer than a frame may be, and dropped: senders must cut them ('ip link set DEV
// gso_max_segs 1' on their side). Errors: kNotFound for no such interface, kUnavailable for one
// that is down, kPermission without the capability, kSystem.
Result<std::unique_ptr<FramePort>> open_packet_socket(const std::string& interface);

}  // namespace pacecar

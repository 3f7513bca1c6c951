// A cable and what is at its ends: the queue and the transmitter of each direction, and the buffer
// of the switch that it leads to. fabric_links.cc moves packets through them. Thread rule: one
// thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "transport/base/check.h"
#include "transport/base/prefetch.h"
#include "transport/base/units.h"
#include "transport/io/decorators/pcap_writer.h"
#include "transport/sim/event_loop.h"
#include "transport/sim/fabric_config.h"
#include "transport/sim/fabric_packet.h"

namespace pacecar {

// When a transmitter has sent the last bit of each packet. Rounding errors do not add
// up: the time at which it becomes free is kept as nanoseconds and a remainder in units of 1/rate
// nanoseconds.
class SerialClock {
 public:
  explicit SerialClock(Rate rate) : rate_(rate.bps()) { PACECAR_CHECK(rate_ > 0); }

  Rate rate() const { return Rate::from_bps(rate_); }
  // Rounded down: a packet that begins then begins a fraction of a nanosecond later.
  Instant free_at() const { return free_at_; }
  bool busy(Instant now) const { return now < free_at_; }

  // Sends a packet after all others, from `now` on at the earliest. Returns when its last bit is
  // sent, rounded up. `size` is below 2^31.
  Instant send(uint64_t size, Instant now) {
    if (now > free_at_) {
      free_at_ = now;
      remainder_ = 0;
    }
    if (size != last_size_) measure(size);
    remainder_ += last_remainder_;
    int64_t ns = last_ns_;
    if (remainder_ >= rate_) {
      remainder_ -= rate_;
      ++ns;
    }
    free_at_ = free_at_ + Duration::from_ns(ns);
    return free_at_ + Duration::from_ns(remainder_ > 0 ? 1 : 0);
  }

  // A packet that is being sent goes on at the old rate.
  void set_rate(Rate rate) {
    PACECAR_CHECK(rate.bps() > 0);
    if (remainder_ > 0) free_at_ = free_at_ + Duration::from_ns(1);
    *this = SerialClock(rate, free_at_);
  }

 private:
  SerialClock(Rate rate, Instant free_at) : rate_(rate.bps()), free_at_(free_at) {}

  // One division per change of size: most packets are as long as the one before.
  void measure(uint64_t size) {
    const uint64_t work = size * 8'000'000'000U;  // bits x ns/s
    last_size_ = size;
    last_ns_ = static_cast<int64_t>(work / rate_);
    last_remainder_ = work % rate_;
  }

  uint64_t rate_;
  Instant free_at_;
  uint64_t remainder_ = 0;  // below the rate
  uint64_t last_size_ = 0;
  int64_t last_ns_ = 0;
  uint64_t last_remainder_ = 0;
};

// A token bucket that drops what exceeds it, as networks that sell a rate have at their edges:
// packets pass as long as they come no faster than `rate`, but for `burst` bytes at once. Exact in
// the long run, like the transmitters.
class Policer {
 public:
  Policer(Rate rate, Bytes burst) : clock_(rate), depth_(rate.time_for(burst)) {}

  // The tokens that are missing from the bucket are what a transmitter of its rate would still have
  // to send.
  bool passes(Bytes size, Instant now) {
    const Duration missing = clock_.busy(now) ? clock_.free_at() - now : Duration();
    if (missing + clock_.rate().time_for(size) > depth_) return false;
    clock_.send(size, now);
    return true;
  }

 private:
  SerialClock clock_;
  Duration depth_;
};

// --- the queue in front of one direction of a cable; the caller checks sizes first ---

// The packets of one class. In a NIC that several processes of a host share, the processes take
// turns, packet by packet.
class ClassQueue {
 public:
  // `processes`: that share the queue; of a switch it is 1.
  explicit ClassQueue(uint32_t processes) {
    if (processes > 1) behind_ = std::make_unique<Behind>(processes);
  }

  bool empty() const { return list_.empty(); }
  Bytes bytes() const { return bytes_; }
  Bytes bytes(uint8_t process) const {
    if (!behind_) return bytes_;
    const bool next = !list_.empty() && list_.front().source_process == process;
    return behind_->lists[process].bytes + (next ? list_.front().wire_bytes : 0);
  }
  size_t count() const { return list_.count() + (behind_ ? behind_->count : 0); }
  const FabricPacket& front() const { return list_.front(); }
  // Only in switches.
  const FabricPacket& last() const { return list_.back(); }

  void push(FabricPacket& packet) {
    bytes_ += packet.wire_bytes;
    if (behind_ && !list_.empty()) return behind_->push(packet);
    list_.push(packet);
  }
  FabricPacket& pop() {
    FabricPacket& packet = list_.pop();
    bytes_ -= packet.wire_bytes;
    if (behind_ && behind_->count > 0) list_.push(behind_->pop(packet.source_process));
    return packet;
  }
  // Puts `packet` in the place of the last one and leaves that one in `packet`. Only in switches.
  void exchange_last(FabricPacket& packet) {
    FabricPacket& last = list_.back();
    bytes_ += packet.wire_bytes - Bytes{last.wire_bytes};
    std::swap(last, packet);
    last.next = nullptr;
  }

 private:
  // For several processes: the packets that wait behind the one whose turn it is.
  struct Behind {
    struct List {
      PacketList packets;
      Bytes bytes = 0;
    };

    explicit Behind(uint32_t processes) : lists(processes) {}
    void push(FabricPacket& packet) {
      List& list = lists[packet.source_process];
      list.packets.push(packet);
      list.bytes += packet.wire_bytes;
      ++count;
    }
    // Takes a packet of the first process after this one that has some; one has.
    FabricPacket& pop(uint8_t after) {
      size_t process = after;
      do {
        process = process + 1 < lists.size() ? process + 1 : 0;
      } while (lists[process].packets.empty());
      FabricPacket& packet = lists[process].packets.pop();
      lists[process].bytes -= packet.wire_bytes;
      --count;
      return packet;
    }

    std::vector<List> lists;  // by process
    size_t count = 0;
  };

  PacketList list_;  // in a NIC of several processes: only the packet whose turn it is
  Bytes bytes_ = 0;
  std::unique_ptr<Behind> behind_;
};

// The data and control packets. Control goes first, or `control_weight` control packets before each
// waiting data packet.
class EgressQueue {
 public:
  EgressQueue(uint32_t control_weight, uint32_t processes)
      : data_(processes), control_(processes), control_weight_(control_weight) {}

  bool empty() const { return data_.empty() && control_.empty(); }
  size_t count() const { return data_.count() + control_.count(); }
  const ClassQueue& data() const { return data_; }
  const ClassQueue& control() const { return control_; }

  void push(FabricPacket& packet) { (packet.is_data() ? data_ : control_).push(packet); }
  // The next packet to send, nullptr if there is none; data waits while it is paused.
  FabricPacket* pop(bool data_paused) {
    const bool data = !data_paused && !data_.empty();
    const bool data_is_due = data && control_weight_ > 0 && control_run_ >= control_weight_;
    if (!control_.empty() && !data_is_due) {
      control_run_ = data ? control_run_ + 1 : 0;
      return &control_.pop();
    }
    if (!data) return nullptr;
    control_run_ = 0;
    return &data_.pop();
  }
  void exchange_last_data(FabricPacket& packet) { data_.exchange_last(packet); }

  // Fetches what pop() will touch.
  void prefetch_next() const {
    if (!data_.empty()) prefetch(data_.front());
    if (!control_.empty()) prefetch(control_.front());
  }

 private:
  ClassQueue data_;
  ClassQueue control_;
  uint32_t control_weight_;
  uint32_t control_run_ = 0;  // control packets sent since data had to wait for them
};

// The buffer that the ports of a switch share, and priority flow control (IEEE 802.1Qbb) of what
// came in by each port. Holds what waits; a packet that is being sent is not in it any more.
//
// A data packet beyond its ingress port's threshold, alpha x free, goes into that port's headroom,
// and so do all that follow until the headroom is empty again; the first one pauses the sender.
//

// The part of its switch's buffer that one ingress port holds.
struct IngressShare {
  Bytes shared_bytes = 0;
  Bytes headroom_bytes = 0;
  Bytes headroom_limit = 0;
  bool pausing = false;  // the sender is paused
};

class SwitchBuffer {
 public:
  explicit SwitchBuffer(const SwitchConfig& config)
      : pfc_(config.pfc), buffer_bytes_(config.buffer_bytes) {}

  Bytes held_bytes() const { return held_bytes_; }
  Bytes max_bytes() const { return max_bytes_; }

  // Control packets and trimmed headers. False: no room.
  bool admit_control(Bytes size) {
    if (!fits(size)) return false;
    shared_bytes_ += size;
    hold(size);
    return true;
  }
  // False: no room. After true, pause the sender if should_pause() is true.
  bool admit_data(IngressShare& from, Bytes size) {
    if (!pfc_.enabled) return admit_control(size);
    if (from.headroom_bytes == 0 && from.shared_bytes + size <= threshold() && fits(size)) {
      from.shared_bytes += size;
      shared_bytes_ += size;
    } else {
      if (from.headroom_bytes + size > from.headroom_limit) return false;
      from.headroom_bytes += size;
    }
    hold(size);
    return true;
  }
  bool should_pause(const IngressShare& from) const {
    return pfc_.enabled && from.headroom_bytes > 0 && !from.pausing;
  }

  void release_control(Bytes size) {
    shared_bytes_ -= size;
    held_bytes_ -= size;
  }
  // After this, let the sender continue if should_resume() is true.
  void release_data(IngressShare& from, Bytes size) {
    if (!pfc_.enabled) return release_control(size);
    held_bytes_ -= size;
    const Bytes headroom = std::min(size, from.headroom_bytes);
    from.headroom_bytes -= headroom;
    from.shared_bytes -= size - headroom;
    shared_bytes_ -= size - headroom;
  }
  bool should_resume(const IngressShare& from) const {
    return pfc_.enabled && from.pausing && from.headroom_bytes == 0 &&
           (from.shared_bytes == 0 || from.shared_bytes + pfc_.resume_offset <= threshold());
  }

 private:
  bool fits(Bytes size) const {
    return buffer_bytes_ == 0 || shared_bytes_ + size <= buffer_bytes_;
  }
  Bytes threshold() const {
    const Bytes free = buffer_bytes_ - std::min(buffer_bytes_, shared_bytes_);
    return static_cast<Bytes>(pfc_.alpha * static_cast<double>(free));
  }
  void hold(Bytes size) {
    held_bytes_ += size;
    max_bytes_ = std::max(max_bytes_, held_bytes_);
  }

  PfcConfig pfc_;
  Bytes buffer_bytes_;
  Bytes shared_bytes_ = 0;  // without headroom
  Bytes held_bytes_ = 0;
  Bytes max_bytes_ = 0;
};

// One direction of a cable: its transmitter, the queue in front of it, and the packets on it.
//
// Members that every packet touches come first: the transmitter, the cable, the queue, the
// counters, each in about a cache line.
struct alignas(64) FabricLink {
  // `processes`: that send on it; from a switch it is 1.
  FabricLink(Rate rate, Duration delay_, NodeId from_, NodeId to_, uint32_t control_weight,
             uint32_t processes)
      : clock(rate), delay(delay_), from(from_), to(to_), queue(control_weight, processes) {}

  // Data that waits or is being sent at `now`.
  Bytes data_bytes(Instant now) const {
    const bool sending = in_service != nullptr && clock.busy(now);
    return queue.data().bytes() + (sending ? in_service_data : 0);
  }
  // Of one process.
  Bytes data_bytes(Instant now, uint8_t process) const {
    const bool sending =
        in_service != nullptr && in_service->source_process == process && clock.busy(now);
    return queue.data().bytes(process) + (sending ? in_service_data : 0);
  }
  bool waiting() const { return !queue.empty() || pause_due != PacketKind::kData; }

  SerialClock clock;
  Duration delay;
  FabricPacket* in_service = nullptr;    // also the last of `flight`; null once it has left
  PacketList flight;                     // in order of arrival
  EventLoop::TimerId arrival_timer = 0;  // of the first in `flight`
  EventLoop::TimerId free_timer = 0;     // of the transmitter; armed only if something waits
  NodeId from;
  NodeId to;
  uint32_t in_service_data = 0;  // bytes of the data packet in service; 0: another kind
  bool up = true;
  bool paused = false;       // data, by the far end
  bool room_wanted = false;  // the host in front of it waits until it has sent a packet
  PacketKind pause_due = PacketKind::kData;  // kPause or kResume: to be sent before all else
  std::unique_ptr<PcapWriter> capture;       // of what comes out; null: none
  double loss = 0;
  std::unique_ptr<Policer> policer;  // of what comes out; null: none
  EgressQueue queue;
  LinkStats stats;       // without what is known from elsewhere
  Instant paused_since;  // when paused
  IngressShare ingress;  // of the switch at the far end
};

}  // namespace pacecar

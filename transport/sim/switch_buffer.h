// The buffer that the ports of a switch share, and priority flow control (IEEE 802.1Qbb) of the
// packets of each ingress port. Holds waiting packets; a packet that is being sent has left it. A
// data packet beyond its ingress port's threshold, alpha x free, goes into that port's headroom, as
// do all after it until the headroom is empty; the first pauses the sender. One thread.
#pragma once

#include <algorithm>

#include "transport/base/units.h"
#include "transport/sim/fabric_config.h"

namespace pacecar {

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

}  // namespace pacecar

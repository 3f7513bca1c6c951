// The other end of a connection of NCCL's kernels, written from the description of the protocols:
// how a transfer is divided, where its bytes and flags lie, and when each counter grows.
//   SIMPLE  slices, each of some steps: data; then the sender's count of steps
//   LL      lines of data, flag, data, flag, of 4 bytes each
//   LL128   units of 16 lines of 120 bytes and a flag of 8
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "tests/support/device_communicator.h"

namespace pacecar::test {

struct ProtocolUse {
  nccl::cpu::Protocol protocol = nccl::cpu::Protocol::kSimple;
  uint32_t slices = 1;  // of a transfer, and steps of each
  uint32_t slice_steps = 1;
  size_t element_bytes = 1;
  StepBytes bytes{};
};

// How many bytes each slice of a transfer has.
inline std::vector<size_t> slice_bytes(const ProtocolUse& use, size_t elements) {
  if (use.protocol != nccl::cpu::Protocol::kSimple) return {elements * use.element_bytes};
  const size_t unit = size_t{16} * use.slices;
  const size_t least = use.bytes.simple / use.element_bytes * use.slice_steps / 32;
  const size_t most = std::max((elements + unit - 1) / unit * 16, least);
  std::vector<size_t> slices;
  for (uint32_t i = 0; i < use.slices; ++i) {
    slices.push_back(std::min(most, elements) * use.element_bytes);
    elements -= std::min(most, elements);
  }
  return slices;
}

class ReferencePeer {
 public:
  ReferencePeer(DeviceLink& link, const ProtocolUse& use, uint64_t step = 0)
      : link_(link), use_(use), step_(step) {}

  uint64_t step() const { return step_; }

  // Begins with the next transfer; the one before is done. `user`: a buffer of the user at
  // the other end, registered with the NIC.
  void begin(size_t elements, char* user = nullptr) {
    user_ = user;
    slices_ = slice_bytes(use_, elements);
    next_ = 0;
    data_.resize(elements * use_.element_bytes);
    place_ = 0;
    written_ = 0;
  }
  void begin(std::vector<char> data, char* user = nullptr) {
    begin(data.size() / use_.element_bytes, user);
    data_ = std::move(data);
  }
  const std::vector<char>& data() const { return data_; }
  // Flags are written one at a time, so that the other end sees all that lies between.
  void set_slow() { slow_ = true; }

  // As far as it goes now. True: the transfer is done.
  bool send() {
    if (user_ != nullptr && !allowed_) {  // to write there: once in a group
      allowed_ = link_.announced(step_) != DeviceLink::kNothing;
      if (!allowed_) return false;
      link_.announce(step_, DeviceLink::kNothing);
    }
    while (next_ < slices_.size() && link_.head() + kDeviceSteps >= step_ + steps()) {
      if (!write(span())) return false;
      // Between GPUs only SIMPLE counts; a proxy thread counts what arrived.
      step_ += steps();
      if (simple() || link_.has_fifo()) link_.set_tail(step_);
      complete_slice();
    }
    return next_ == slices_.size();
  }
  bool receive() {
    while (next_ < slices_.size() && arrived()) {
      check_announcement();
      read(span());
      step_ += steps();
      link_.set_head(step_);
      complete_slice();
    }
    return next_ == slices_.size();
  }

 private:
  static constexpr uint64_t kFlagsRepeat = 0x7ffffff8;
  static constexpr size_t kUnitData = 1920;
  static constexpr size_t kLineData = 120;

  bool simple() const { return use_.protocol == nccl::cpu::Protocol::kSimple; }
  bool ll() const { return use_.protocol == nccl::cpu::Protocol::kLl; }
  uint64_t steps() const { return simple() ? use_.slice_steps : 1; }
  std::span<char> span() { return {data_.data() + place_, slices_[next_]}; }
  char* buffer() { return user_ != nullptr ? user_ + place_ : link_.buffer(use_.protocol, step_); }
  static size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit; }
  void complete_slice() {
    place_ += slices_[next_++];
    written_ = 0;
  }

  // The word of LL that holds bytes 4 x `number` and on.
  uint64_t* word(size_t number) { return reinterpret_cast<uint64_t*>(buffer()) + number; }
  // The line of LL128 of that number; its last word is the flag.
  uint64_t* line(size_t number) { return reinterpret_cast<uint64_t*>(buffer()) + number * 16; }
  static uint64_t load(const uint64_t* from) { return __atomic_load_n(from, __ATOMIC_ACQUIRE); }
  static void store(uint64_t* to, uint64_t value) { __atomic_store_n(to, value, __ATOMIC_RELEASE); }
  uint32_t short_flag() const { return static_cast<uint32_t>(step_ + 1); }

  bool arrived() {
    // A proxy thread looks there first; nothing else shows that an empty transfer was sent.
    if (link_.has_fifo() && link_.announced(step_) == DeviceLink::kNothing) return false;
    if (simple()) return link_.tail() >= step_ + steps();
    const size_t bytes = slices_[next_];
    if (ll()) {
      for (size_t i = 0; i < 2 * rounded(bytes, 8); ++i) {
        if (load(word(i)) >> 32 != short_flag()) return false;
      }
    } else {
      for (size_t i = 0; i < 16 * rounded(bytes, kUnitData); ++i) {
        if (load(line(i) + 15) != step_ + 1) return false;
      }
    }
    return ll() || !link_.has_fifo() || link_.tail() >= step_ + 1;
  }

  void check_announcement() {
    if (!link_.has_fifo()) return;
    const size_t bytes = slices_[next_];
    size_t expected = bytes;
    if (ll()) {
      const bool all = (step_ & kFlagsRepeat) == kFlagsRepeat;
      expected = all ? use_.bytes.ll : 16 * rounded(bytes, 8);
    }
    if (use_.protocol == nccl::cpu::Protocol::kLl128) expected = 2048 * rounded(bytes, kUnitData);
    EXPECT_EQ(link_.announced(step_), static_cast<int64_t>(expected)) << "step " << step_;
    link_.announce(step_, DeviceLink::kNothing);
  }

  // False: more of it comes later.
  bool write(std::span<const char> from) {
    if (from.empty()) return true;
    if (simple()) {
      std::memcpy(buffer(), from.data(), from.size());
      return true;
    }
    const size_t all = ll() ? 2 * rounded(from.size(), 8) : 16 * rounded(from.size(), kUnitData);
    const size_t each = ll() ? 4 : kLineData;
    for (; written_ < all; ++written_) {
      const size_t begin = std::min(written_ * each, from.size());
      const auto piece = from.subspan(begin, std::min(each, from.size() - begin));
      if (ll()) {
        uint32_t value = 0;
        std::memcpy(&value, piece.data(), piece.size());
        store(word(written_), uint64_t{short_flag()} << 32 | value);
      } else {
        std::memcpy(line(written_), piece.data(), piece.size());
        store(line(written_) + 15, step_ + 1);
      }
      if (slow_) return ++written_ == all;
    }
    return true;
  }

  void read(std::span<char> to) {
    if (to.empty()) return;
    if (simple()) {
      std::memcpy(to.data(), buffer(), to.size());
      return;
    }
    const size_t each = ll() ? 4 : kLineData;
    for (size_t i = 0; i * each < to.size(); ++i) {
      const auto piece = to.subspan(i * each, std::min(each, to.size() - i * each));
      std::memcpy(piece.data(), ll() ? word(i) : line(i), piece.size());
    }
  }

  DeviceLink& link_;
  ProtocolUse use_;
  uint64_t step_;
  std::vector<size_t> slices_;
  size_t next_ = 0;  // slice
  size_t place_ = 0;
  size_t written_ = 0;  // words or lines
  std::vector<char> data_;
  char* user_ = nullptr;
  bool allowed_ = false;
  bool slow_ = false;
};

}  // namespace pacecar::test

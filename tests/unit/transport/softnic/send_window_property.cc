// SendWindow against a plain table of packets: it accounts for every packet.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "transport/base/prng.h"
#include "transport/softnic/extended/send_window.h"

namespace pacecar::send_window_property {
namespace {

struct Model {
  struct Entry {
    SendWindow::Packet packet;
    Instant sent;
    uint16_t path = 0;
    bool lost = false;
    bool acknowledged = false;
  };
  std::map<uint64_t, Entry> packets = {};  // from the oldest unacknowledged one on
  uint64_t next = 0;

  Bytes in_flight() const {
    Bytes bytes = 0;
    for (const auto& [psn, entry] : packets) {
      if (!entry.lost && !entry.acknowledged) bytes += entry.packet.bytes;
    }
    return bytes;
  }
  void advance() {
    while (!packets.empty() && packets.begin()->second.acknowledged) packets.erase(packets.begin());
  }
  uint64_t unacknowledged() const { return packets.empty() ? next : packets.begin()->first; }
};

class Run {
 public:
  explicit Run(uint64_t seed)
      : prng_(seed),
        size_(uint32_t{1} << (1 + prng_.below(7))),
        window_(size_, prng_.chance(0.5) ? prng_.below(10) : prng_.next_u64() >> 8) {
    model_.next = window_.next();
  }

  void step() {
    now_ = now_ + Duration::from_ns(static_cast<int64_t>(prng_.below(3) * 100));
    switch (prng_.below(9)) {
      case 0:
      case 1:
      case 2: return send();
      case 3: return acknowledge_up_to();
      case 4: return acknowledge_some();
      case 5: return lose();
      case 6: resend_one(); return;
      case 7: return refuse();
      default: return lose_sending();
    }
  }

  void check() {
    RC_ASSERT(window_.next() == model_.next);
    RC_ASSERT(window_.unacknowledged() == model_.unacknowledged());
    RC_ASSERT(window_.in_flight() == model_.in_flight());
    RC_ASSERT(window_.empty() == model_.packets.empty());
    RC_ASSERT(window_.full() == (model_.next - model_.unacknowledged() == size_));
  }

  // Faults end: all lost packets are retransmitted, and all packets acknowledged.
  void finish() {
    lose_all();
    while (resend_one()) check();
    for (const auto& [psn, entry] : model_.packets) {
      RC_ASSERT(entry.acknowledged || !entry.lost);
    }
    while (!model_.packets.empty()) {
      acknowledge(model_.unacknowledged());
      advance();
    }
    check();
    RC_ASSERT(window_.empty());
    RC_ASSERT(window_.in_flight() == 0);
  }

 private:
  static bool same(const SendWindow::Packet& a, const SendWindow::Packet& b) {
    return a.request == b.request && a.index == b.index && a.bytes == b.bytes;
  }
  uint64_t random_psn() { return model_.unacknowledged() + prng_.below(size_ + 2); }

  // As the requester does: lost packets are retransmitted before new ones are sent.
  void send() {
    if (resend_one() || window_.full()) return;
    if (prng_.chance(0.3)) return send_run();
    const SendWindow::Packet packet{.request = static_cast<uint32_t>(prng_.next_u64()),
                                    .index = static_cast<uint32_t>(prng_.below(100)),
                                    .bytes = static_cast<uint32_t>(prng_.below(9000))};
    const uint16_t path = next_path_++;
    RC_ASSERT(window_.send(packet, path, now_) == model_.next);
    model_.packets[model_.next++] = {.packet = packet, .sent = now_, .path = path};
  }
  void send_run() {
    const auto count = static_cast<uint32_t>(1 + prng_.below(window_.room()));
    SendWindow::Packet packet{.request = static_cast<uint32_t>(prng_.next_u64()),
                              .index = static_cast<uint32_t>(prng_.below(100)),
                              .bytes = static_cast<uint32_t>(prng_.below(9000))};
    const uint16_t path = next_path_++;
    RC_ASSERT(window_.send_run(packet, count, path, now_) == model_.next);
    for (uint32_t i = 0; i < count; ++i, ++packet.index) {
      model_.packets[model_.next++] = {.packet = packet, .sent = now_, .path = path};
    }
  }
  void acknowledge(uint64_t psn) {
    SendWindow::Packet packet;
    const auto found = model_.packets.find(psn);
    const bool counts = found != model_.packets.end() && !found->second.acknowledged;
    RC_ASSERT(window_.acknowledge(psn, &packet) == counts);
    if (!counts) return;
    RC_ASSERT(same(packet, found->second.packet));
    found->second.acknowledged = true;
  }
  void advance() {
    window_.advance();
    model_.advance();
  }
  void acknowledge_oldest(uint64_t end) {
    const SendWindow::Acknowledged taken = window_.acknowledge_oldest(end);
    Bytes bytes = 0;
    for (uint32_t i = 0; i < taken.packets; ++i) {
      auto& entry = model_.packets.at(model_.unacknowledged());
      RC_ASSERT(model_.unacknowledged() < end);
      RC_ASSERT(in_flight(entry));
      RC_ASSERT(entry.packet.request == taken.request);
      entry.acknowledged = true;
      bytes += entry.packet.bytes;
      model_.advance();
    }
    RC_ASSERT(taken.bytes == bytes);
    const bool could = !model_.packets.empty() && model_.unacknowledged() < end;
    // In parentheses, as the macro evaluates both sides of an operator.
    RC_ASSERT((taken.packets > 0 || !could || !in_flight(model_.packets.begin()->second)));
    // The caller advances over packets that were acknowledged before.
    advance();
  }
  void acknowledge_up_to() {
    const uint64_t end = random_psn();
    if (prng_.chance(0.5)) acknowledge_oldest(end);
    for (uint64_t psn = model_.unacknowledged(); psn < end; ++psn) acknowledge(psn);
    advance();
  }
  void acknowledge_some() {
    for (int i = 0; i < 4; ++i) acknowledge(random_psn());
    advance();
  }
  // The window must declare packets lost in the order of their transmission.
  void declare_lost(Instant limit) {
    Instant last;
    while (const auto loss = window_.lose_oldest_before(limit)) {
      const auto entry = std::ranges::find_if(model_.packets, [&](const auto& candidate) {
        return in_flight(candidate.second) && candidate.second.path == loss->path;
      });
      RC_ASSERT(entry != model_.packets.end());
      RC_ASSERT(loss->bytes == entry->second.packet.bytes);
      RC_ASSERT(entry->second.sent >= last && entry->second.sent < limit);
      last = entry->second.sent;
      entry->second.lost = true;
    }
    Instant oldest = Instant::never();
    for (const auto& [psn, entry] : model_.packets) {
      if (in_flight(entry)) oldest = std::min(oldest, entry.sent);
    }
    RC_ASSERT(oldest >= limit);
    RC_ASSERT(window_.oldest_sending() == oldest);
  }
  static bool in_flight(const Model::Entry& entry) { return !entry.lost && !entry.acknowledged; }
  void lose() { declare_lost(now_ - Duration::from_ns(static_cast<int64_t>(prng_.below(1000)))); }
  void lose_all() {
    now_ = now_ + Duration::from_ns(1);
    declare_lost(now_);
  }
  bool resend_one() {
    uint64_t psn = 0;
    SendWindow::Packet packet;
    const bool any_lost = std::ranges::any_of(model_.packets, [](const auto& entry) {
      return entry.second.lost && !entry.second.acknowledged;
    });
    RC_ASSERT(!any_lost || window_.has_lost());
    RC_ASSERT(window_.next_lost(&psn, &packet) == any_lost);
    if (!any_lost) return false;
    auto& entry = model_.packets.at(psn);
    RC_ASSERT(!entry.acknowledged);
    RC_ASSERT(same(packet, entry.packet));
    entry.path = next_path_++;
    window_.resend(psn, entry.path, now_);
    entry.lost = false;
    entry.sent = now_;
    return true;
  }
  void refuse() {
    const uint64_t psn = random_psn();
    SendWindow::Packet packet;
    const auto found = model_.packets.find(psn);
    const bool counts =
        found != model_.packets.end() && !found->second.acknowledged && !found->second.lost;
    RC_ASSERT(window_.refuse(psn, &packet) == counts);
    if (!counts) return;
    RC_ASSERT(same(packet, found->second.packet));
    found->second.lost = true;
  }

  // Only the newest transmission of a packet can be lost, and only once.
  void lose_sending() {
    const uint64_t psn = random_psn();
    const auto found = model_.packets.find(psn);
    const Instant sent =
        found != model_.packets.end() && prng_.chance(0.8) ? found->second.sent : now_;
    const auto timestamp = static_cast<uint32_t>(sent.ns());
    const bool newest = found != model_.packets.end() && found->second.sent == sent;
    if (newest) RC_ASSERT(window_.path_of(psn, timestamp) == found->second.path);
    if (psn >= model_.next) RC_ASSERT(!window_.path_of(psn, timestamp));
    const auto loss = window_.lose_sending(psn, timestamp);
    RC_ASSERT(loss.has_value() == (newest && in_flight(found->second)));
    if (!loss) return;
    RC_ASSERT(loss->path == found->second.path);
    RC_ASSERT(loss->bytes == found->second.packet.bytes);
    found->second.lost = true;
  }

  Prng prng_;
  uint32_t size_;
  SendWindow window_;
  Model model_;
  Instant now_ = Instant::from_ns(1'000'000);
  uint16_t next_path_ = 0;  // each transmission has its own path
};

RC_GTEST_PROP(SendWindow, BehavesAsATable, (uint64_t seed)) {
  Run run(seed);
  for (int i = 0; i < 1000; ++i) {
    run.step();
    run.check();
  }
  run.finish();
}

// One packet is retransmitted many times. The loss of each packet is still found.
TEST(SendWindow, LossesAreFoundAfterManyRetransmissions) {
  constexpr uint32_t kSize = 8;
  SendWindow window(kSize, 0);
  Instant now = Instant::from_ns(1'000);
  const auto later = [&now] { return now = now + Duration::from_ns(10); };
  for (uint32_t i = 0; i < kSize; ++i) window.send({.request = i, .bytes = 100}, 0, later());
  for (uint32_t i = 0; i < 10 * kSize; ++i) {
    SendWindow::Packet packet;
    ASSERT_TRUE(window.refuse(0, &packet));
    window.resend(0, 0, later());
  }
  later();
  uint32_t lost = 0;
  while (window.lose_oldest_before(now)) ++lost;
  EXPECT_EQ(lost, kSize);
  EXPECT_EQ(window.in_flight(), 0U);
}

}  // namespace
}  // namespace pacecar::send_window_property

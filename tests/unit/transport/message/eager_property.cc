// Eager messages: SendQueue and ReceiveQueue over a network that reorders all writes. The k-th
// message of each tag must go into its k-th buffer.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/pending.h"
#include "transport/base/fresh_pages.h"
#include "transport/base/prng.h"
#include "transport/message/receive_queue.h"
#include "transport/message/send_queue.h"

namespace pacecar::eager_property {
namespace {

using State = MessageRequest::State;

constexpr Bytes kEager = 12000;  // beyond the cells for tiny messages
constexpr EagerCells kCells(kEager);
constexpr Bytes kLargest = 16000;
constexpr Bytes kShort = 300;        // small messages that wait together share a write
constexpr Bytes kWriteBytes = 4096;  // larger messages take several writes
constexpr int32_t kTags = 3;

// The traffic of the applications.
struct Traffic {
  uint32_t messages = 0;  // a multiple of kTags
  Bytes largest = 0;
  bool full = false;  // as many requests as a connection takes, with as many buffers each
};
constexpr Traffic kMixed{.messages = 399, .largest = kLargest};
constexpr Traffic kStream{.messages = 1500, .largest = 100, .full = true};

// Sends and receives until all messages have arrived.
class World {
 public:
  World(uint64_t seed, const Traffic& traffic)
      : traffic_(traffic), prng_(seed), idle_receiver_(1 + prng_.below(traffic.full ? 2 : 20)) {
    receiver_.enable_eager(kCells, receive_cells_.data());
    sender_.enable_eager(kCells, send_cells_.data(), 0,
                         {reinterpret_cast<uint64_t>(receive_cells_.data()), 0});
  }

  void run() {
    for (uint32_t turn = 0; completed_ < traffic_.messages; ++turn) {
      RC_ASSERT(turn < 200 * traffic_.messages);
      switch (prng_.below(8)) {
        case 0:
          while (send() && traffic_.full) {
          }
          break;
        case 1:
          if (prng_.below(idle_receiver_) > 0) break;
          while (receive() && traffic_.full) {
          }
          break;
        case 2: match(); break;
        case 3: post(); break;
        case 4: advertise(); break;
        default: prng_.below(3) > 0 ? deliver() : acknowledge();
      }
      complete();
    }
    while (!in_flight_.empty() || !delivered_.empty()) {
      deliver();
      acknowledge();
    }
    match();  // removes the slots of eager messages
    advertise_all();
    match();
    RC_ASSERT(sender_.idle());
    RC_ASSERT(sender_.all_arrived());
    RC_ASSERT(receiver_.idle());
    RC_ASSERT(!receiver_.holds_messages());
    RC_ASSERT(arrived_bytes_ == sent_bytes_);
    RC_ASSERT(done_ == traffic_.messages);
    RC_TAG(ahead_ == 0                      ? "none ahead"
           : ahead_ < traffic_.messages / 4 ? "some ahead"
                                            : "many ahead");
  }

 private:
  struct Message {
    std::vector<uint8_t> bytes;
    int32_t tag = 0;
    bool used_again = false;
    MessageSend request;
  };
  struct Receive {
    std::array<std::vector<uint8_t>, kMaxGroup> buffers;
    std::array<int32_t, kMaxGroup> tags{};
    uint32_t count = 0;
    MessageReceive request;
  };
  struct Transfer {
    WorkRequest write;
    bool advertises = false;
  };

  // Each kTags messages have all tags once, in random order: sends and receives have equally many
  // of each tag.
  int32_t shuffled_tag(std::vector<int32_t>& bag) {
    if (bag.empty()) {
      for (int32_t tag = 0; tag < kTags; ++tag) bag.push_back(tag);
    }
    const size_t index = prng_.below(bag.size());
    const int32_t tag = bag[index];
    bag.erase(bag.begin() + static_cast<ptrdiff_t>(index));
    return tag;
  }

  // False if no message may be posted.
  bool send() {
    if (sent_.size() == traffic_.messages) return false;
    uint32_t pending = 0;
    for (const Message& message : sent_) pending += message.request.state() == State::kPending;
    if (pending == kMaxSends) return false;
    Message& message = sent_.emplace_back();
    constexpr std::array kBelow = {kShort, kEager, kLargest};
    const Bytes below = std::min(kBelow[prng_.below(kBelow.size())], traffic_.largest);
    message.bytes.resize(prng_.below(below + 1));
    sent_bytes_ += message.bytes.size();
    for (uint8_t& byte : message.bytes) byte = static_cast<uint8_t>(prng_.next_u64());
    message.tag = shuffled_tag(send_bag_);
    RC_ASSERT(sender_.post(test::pending(
        message.request, {message.bytes.data(), message.bytes.size(), message.tag, 1})));
    expected_[message.tag].push_back(message.bytes);
    return true;
  }

  bool receive() {
    const uint32_t most = std::min(traffic_.messages - posted_, kMaxGroup);
    if (most == 0 || receives_.size() - finished_ == kMaxReceives) return false;
    Receive& receive = receives_.emplace_back();
    receive.count = traffic_.full ? most : 1 + static_cast<uint32_t>(prng_.below(most));
    receive.request.clear();
    for (uint32_t i = 0; i < receive.count; ++i) {
      receive.buffers[i].resize(kLargest);
      uint8_t* const data = receive.buffers[i].data();
      receive.tags[i] = shuffled_tag(receive_bag_);
      receive.request.add(data, kLargest, receive.tags[i], {reinterpret_cast<uint64_t>(data), 1});
    }
    receive.request.set(State::kPending);
    RC_ASSERT(receiver_.post(receive.request));
    posted_ += receive.count;
    ReceiveQueue::Progress progress;
    RC_ASSERT(receiver_.take_eager(&progress) == ReceiveQueue::Arrival::kOk);
    return true;
  }

  void match() {
    RC_ASSERT(sender_.match(send_table_[0], kWriteBytes, [](uint64_t) {}) == SendQueue::Match::kOk);
    if (prng_.below(2) == 0) receive_table_->peer_wanted = sender_.wanted_slots();
    // The application may overwrite a buffer once its send is complete.
    for (Message& message : sent_) {
      if (message.request.state() == State::kDone && !std::exchange(message.used_again, true)) {
        std::ranges::fill(message.bytes, 0xEE);
      }
    }
  }

  void post() {
    WorkRequest write;
    if (!sender_.next_write(0, &write)) return;
    sender_.on_posted();
    ahead_ += Immediate::unpack(write.immediate).writes == Immediate::kEager;
    in_flight_.push_back({write});
  }

  void advertise() {
    // Slots that are not urgent are advertised later, at random.
    if (!receiver_.urgent(receive_table_->peer_wanted) && prng_.below(20) > 0) return;
    const ReceiveQueue::Run run = receiver_.next_run();
    if (run.count == 0) return;
    receiver_.write(run, 1, receive_table_[0]);
    receiver_.on_run_posted(run.count);
    in_flight_.push_back(
        {{.local = reinterpret_cast<const uint8_t*>(&receive_table_->slots[run.first]),
          .remote = reinterpret_cast<uint64_t>(&send_table_->slots[run.first]),
          .length = run.count * sizeof(CtsSlot)},
         true});
  }

  void advertise_all() {
    for (auto run = receiver_.next_run(); run.count > 0; run = receiver_.next_run()) {
      receiver_.write(run, 1, receive_table_[0]);
      receiver_.on_run_posted(run.count);
      std::copy_n(&receive_table_->slots[run.first], run.count, &send_table_->slots[run.first]);
    }
  }

  // The source is read only now, as a retransmission may read it this late.
  void deliver() {
    if (in_flight_.empty()) return;
    const auto chosen = in_flight_.begin() + static_cast<ptrdiff_t>(prng_.below(in_flight_.size()));
    const Transfer transfer = *chosen;
    in_flight_.erase(chosen);
    const WorkRequest& write = transfer.write;
    if (write.length > 0) {
      std::memcpy(reinterpret_cast<uint8_t*>(write.remote), write.local, write.length);
    }
    if (transfer.advertises) return;
    ReceiveQueue::Progress progress;
    RC_ASSERT(receiver_.on_write(Immediate::unpack(write.immediate), write.length, &progress) ==
              ReceiveQueue::Arrival::kOk);
    arrived_bytes_ += progress.payload;
    delivered_.push_back(static_cast<uint32_t>(write.id));
  }

  void acknowledge() {
    if (delivered_.empty()) return;
    done_ += sender_.on_write_done(delivered_.front(), CompletionStatus::kOk);
    delivered_.pop_front();
  }

  void complete() {
    while (finished_ < receives_.size() &&
           receives_[finished_].request.state() != State::kPending) {
      const Receive& receive = receives_[finished_++];
      RC_ASSERT(receive.request.state() == State::kDone);
      for (uint32_t i = 0; i < receive.count; ++i) {
        auto& queue = expected_[receive.tags[i]];
        RC_ASSERT(!queue.empty());
        RC_ASSERT(receive.request.sizes[i] == queue.front().size());
        RC_ASSERT(
            std::equal(queue.front().begin(), queue.front().end(), receive.buffers[i].begin()));
        queue.pop_front();
        ++completed_;
      }
    }
  }

  const Traffic traffic_;
  Prng prng_;
  uint64_t idle_receiver_;  // a receive is posted in one of this many chances
  OwnPages<SendTable> send_table_;
  OwnPages<ReceiveTable> receive_table_;
  OwnPages<uint8_t> send_cells_{kCells.bytes()};
  OwnPages<uint8_t> receive_cells_{kCells.bytes()};
  SendQueue sender_;
  ReceiveQueue receiver_;
  std::vector<int32_t> send_bag_;
  std::vector<int32_t> receive_bag_;
  std::deque<Message> sent_;
  std::deque<Receive> receives_;
  std::vector<Transfer> in_flight_;
  std::deque<uint32_t> delivered_;
  std::map<int32_t, std::deque<std::vector<uint8_t>>> expected_;
  uint32_t posted_ = 0;
  uint32_t completed_ = 0;
  uint32_t ahead_ = 0;
  Bytes sent_bytes_ = 0;
  Bytes arrived_bytes_ = 0;
  uint32_t done_ = 0;  // completed sends
  size_t finished_ = 0;
};

RC_GTEST_PROP(Eager, EachMessageArrivesInItsBuffer, (uint64_t seed)) { World(seed, kMixed).run(); }

// Receives complete and are posted again before their slots are advertised.
RC_GTEST_PROP(Eager, EachMessageOfAStreamArrivesInItsBuffer, (uint64_t seed)) {
  World(seed, kStream).run();
}

}  // namespace
}  // namespace pacecar::eager_property

// World: a few hosts that run the real ends of `pace`, PaceSenders and PaceReceiver, and exchange
// encoded control words over a network whose faults a Chooser picks. Time goes in steps of a
// quarter of a round trip, data is a fluid: what a flow sends in a step is what its newest decision
// allows. Receiving links are served at line rate, and the excess waits in a queue in front of
// them; data is never lost.
//
// The hosts do what the message layer does: they ask for decisions at the same places, send no word
// twice in a row, and replace a word that is not sent yet by a newer one. A message begins at its
// sender with the CTS, which holds a grant, is never lost, and may be late.
//
// Properties are checked at every step (checks.h). One thread.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "cc/pace/receiver.h"
#include "cc/pace/sender.h"
#include "tests/model/checks.h"
#include "tests/model/chooser.h"
#include "tests/model/scenario.h"

namespace pacecar::model {

class World {
 public:
  World(const Scenario& scenario, Chooser& chooser, bool trace);

  // Runs until all messages are acknowledged or a property does not hold.
  Result run();
  const std::string& trace() const { return trace_; }

 private:
  enum class WordKind : uint8_t { kGrant, kDemand, kCts };
  struct Word {
    WordKind kind = WordKind::kGrant;
    uint32_t flow = 0;
    uint64_t content = 0;
    int64_t due = 0;  // step
    uint32_t message = 0;
  };
  // Bytes on their way, to the receiver or, as an acknowledgement, back.
  struct Load {
    uint32_t flow = 0;
    Bytes bytes = 0;
    int64_t due = 0;  // step
    Duration waited;  // in the queue of the receiving link
  };
  struct Flow {
    uint32_t sender = 0;
    uint32_t receiver = 0;
    Controller* controller = nullptr;  // null: no such flow
    FlowStats stats;
    FlowLimits decision;
    Bytes unsent = 0;
    int64_t busy_since = 0;  // step in which it began to have a backlog
    Bytes arrived = 0;
    Bytes finished = 0;                // of messages that have arrived whole
    Bytes earned = 0;                  // by the pacer, towards the next packet
    uint64_t newest_word[2] = {0, 0};  // newest grant and demand word
    bool pending[2] = {false, false};
    std::deque<uint32_t> expected;  // messages posted and not arrived
    // The newest epochs delivered, grant and demand, for "the newest wins".
    uint16_t newest[2] = {0, 0};
    bool received[2] = {false, false};
    Bytes known = 0;          // wanted in all, by the newest demand that has arrived
    bool cts_counts = false;  // the grant in force came with a CTS
  };
  struct Host {
    std::unique_ptr<PaceSenders> senders;
    std::unique_ptr<PaceReceiver> receiver;
    std::deque<Load> queue;
    Bytes queued = 0;
  };

  uint32_t index(uint32_t sender, uint32_t receiver) const {
    return sender * scenario_.receivers + receiver;
  }
  bool silent() const { return step_ >= scenario_.silent_from && step_ < scenario_.silent_until; }

  bool dead(const Flow& flow) const {
    return step_ >= scenario_.dies && flow.sender == scenario_.dead;
  }

  void step();
  void remove_dead();
  void deliver_words();
  void on_grant(Flow& flow, const Word& word);
  void on_cts(Flow& flow, const Word& word);
  void on_demand(Flow& flow, const Word& word);
  void deliver_data();
  void enqueue(uint32_t receiver);
  void serve(uint32_t receiver);
  void arrive(Flow& flow, Bytes bytes, Duration waited);
  void deliver_acks();
  void post_receives();
  void announce(Flow& flow);
  void decide(Flow& flow);
  void poll_senders();
  void poll_receiver(uint32_t receiver);
  void grant(uint32_t receiver, const GrantUpdate& update);
  void queue_word(Flow& flow, WordKind kind, uint64_t content);
  void send_words();
  void send_word(Word word);
  void send_data();
  Bytes packets(Flow& flow);
  Bytes room(const Flow& flow) const;
  FlowView view(const Flow& flow) const;
  void note(const Word& word, std::string_view fate);
  template <typename... Args>
  void note(const Flow& flow, std::string_view format, Args&&... args);

  const Scenario& scenario_;
  Chooser& chooser_;
  const bool tracing_;
  std::string trace_;
  Checks checks_;
  std::vector<Flow> flows_;
  std::vector<Host> senders_;
  std::vector<Host> receivers_;
  std::vector<Word> words_;  // on their way, in the order in which they were sent
  std::deque<Load> data_;    // by due step
  std::deque<Load> acks_;
  int64_t step_ = 0;
  Instant now_;
  size_t begun_ = 0;  // messages
  Bytes left_ = 0;    // not acknowledged, of all messages
};

}  // namespace pacecar::model

// What both ends of a bonded connection do: watch lanes, give up lost ones, exchange notes about
// them (lanes.h). Thread rule: any thread; members that are not public need the lock.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <ranges>
#include <string>
#include <vector>

#include "transport/api/bond/keeper.h"
#include "transport/api/bond/lanes.h"
#include "transport/api/pacecar.hpp"
#include "transport/api/reports.h"

namespace pacecar {

class BondedEnd {
 public:
  virtual ~BondedEnd() = default;
  bool drive(Instant now);  // Called by BondKeeper from time to time; true: again soon.
  // This memory is about to be deregistered: messages that have not begun must not use it any more.
  virtual void forget_memory(const Memory& memory) = 0;

 protected:
  enum class State : uint8_t {
    kFlowing,
    kComplaining,  // a sender: a lane is lost, and the receiver will pause the connection
    kPausing,      // until nothing is outstanding
    kPaused,       // a sender: until the receiver lets it resume
    kResuming,     // a receiver: until the sender knows what to send again
  };

  BondedEnd(std::vector<BondLane> lanes, std::shared_ptr<BondKeeper> keeper);

  // Hands the requests over, which are free. They must not move.
  template <typename Request>
  void add_requests(std::vector<Request>& requests) {
    for (Request& request : requests) free_.push_back(&request);
    pending_.reserve(requests.size());
  }
  MessageRequest* take_request();  // A free request, which is then pending; nullptr: none.
  // The pending requests, in order, until they are tested as done.
  template <typename Request>
  auto pending() const {
    return pending_ | std::views::transform([](MessageRequest* request) -> Request& {
             return static_cast<Request&>(*request);
           });
  }

  virtual void collect(Instant now) = 0;  // Completes requests.
  virtual void on_note(const LaneNote& note, Instant now) = 0;
  // In kPausing: takes the next step if nothing is outstanding.
  virtual void finish_pause(Instant now) = 0;
  virtual void on_loss() = 0;  // A lane has been lost, and others remain.
  // A lane has failed with something other than the peer's silence: ends the connection.
  virtual void on_failure(size_t lane, MessageFailure failure) = 0;
  void progress();  // Lends the caller's thread to all lanes.
  // The result of test(); a request that is done or has failed is given back.
  Result<TestResult> outcome(MessageRequest& request);
  LaneSight sight(size_t lane) const { return lanes_[lane].at.call(&Lanes::lane); }
  // False: the lane has failed, and is given up.
  bool healthy(size_t lane, MessageFailure failure);
  // Gives up the lane's flow, with all its connections. An empty cause: as the NIC reports it.
  void give_up(size_t lane, const std::string& cause);
  void end(Error error);  // Ends the connection: all pending requests fail.
  void end(MessageFailure failure, size_t lane = 0) { end(error_of(failure, lane, "")); }
  void send_note(NoteKind kind, LaneMask lanes);
  void send_note(LaneNote note);
  // The peer's last note on one lane.
  std::optional<LaneNote> last_note(size_t lane) const { return read_note(*inboxes_[lane]); }

  mutable std::mutex mutex_;
  std::vector<BondLane> lanes_;
  const std::shared_ptr<BondKeeper> keeper_;
  State state_ = State::kFlowing;
  uint32_t epoch_ = 0;
  std::optional<Error> ended_;

 private:
  void watch(Instant now);
  // The newest note from the peer, if it is newer than all received before.
  std::optional<LaneNote> receive_note();
  // Writes the newest note on every lane that has not sent it. True: all living lanes have sent it.
  bool deliver_note();
  Error error_of(MessageFailure failure, size_t lane, const std::string& fault) const;

  std::vector<MessageRequest*> free_;
  std::vector<MessageRequest*> pending_;
  std::vector<StallWatch> stalls_;  // by lane
  LaneWatch watch_;
  std::vector<const NoteWords*> inboxes_;        // by lane
  LaneNote note_;                                // the newest one to the peer
  std::array<uint64_t, kMaxLanes> delivered_{};  // by lane: the number of the last note sent
  uint64_t last_received_ = 0;                   // the number of the peer's newest note
};

// The sender divides each message among the lanes; the receiver posts each buffer on all. If a lane
// is lost, they agree which buffers are filled. The receiver posts the others again, and the sender
// repeats their messages over the others. `lanes`: at most kMaxLanes, known to their messengers.
std::unique_ptr<SendConnection> make_bonded_send(std::vector<BondLane> lanes,
                                                 std::shared_ptr<BondKeeper> keeper);
std::unique_ptr<ReceiveConnection> make_bonded_receive(std::vector<BondLane> lanes,
                                                       std::shared_ptr<BondKeeper> keeper);

}  // namespace pacecar

// An endpoint: its peers, the operations that it has under way with them, and the receives that it
// has posted. All with the domain's lock held.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "net_plugin/libfabric/core/frame.h"
#include "net_plugin/libfabric/core/matcher.h"
#include "net_plugin/libfabric/core/operation_table.h"
#include "net_plugin/libfabric/core/pieces.h"
#include "net_plugin/libfabric/link/inbox.h"
#include "net_plugin/libfabric/link/meeting.h"
#include "net_plugin/libfabric/link/outbox.h"
#include "net_plugin/libfabric/link/put_box.h"
#include "net_plugin/libfabric/objects.h"
#include "transport/base/fresh_pages.h"

namespace pacecar::fabric {

// Local memory of an operation.
struct Local {
  std::array<Piece, kMostPlaces> pieces{};
  std::array<MemoryRegion*, kMostPlaces> regions{};  // null: registered when it is needed
  size_t count = 0;

  std::span<const Piece> all() const { return {pieces.data(), count}; }
  size_t bytes() const { return total(all()); }
};

// Memory of the host in place of a GPU's.
struct Bounce {
  explicit Bounce(uint64_t size) : host(std::max<uint64_t>(size, 1)), bytes(size) {}

  OwnPages<uint8_t> host;
  uint64_t bytes;
  Local device;  // where what comes goes; none: it has gone there, or this sends
};

// A buffer for several messages: it is given back with the last of them.
struct SharedBuffer {
  uint32_t receiving = 0;  // messages that are not complete
  bool spent = false;
};

// A receive that was posted.
struct Receive {
  void* context = nullptr;
  uint64_t flags = 0;
  Local local;
  std::shared_ptr<SharedBuffer> shared;  // of FI_MULTI_RECV
};

// A message for which there was no receive.
struct Unexpected {
  Frame frame;
  std::vector<uint8_t> payload;  // of a whole message
};

// What an application asks for.
struct Asked {
  FrameKind kind = FrameKind::kMessage;
  bool tagged = false;
  bool inject = false;  // no completion; the buffer is the application's again at once
  bool has_data = false;
  Local local;
  fi_addr_t to = FI_ADDR_UNSPEC;
  uint64_t tag = 0;      // or the key of remote memory
  uint64_t address = 0;  // in remote memory
  uint64_t data = 0;
  void* context = nullptr;
  uint64_t flags = 0;
  // Of an atomic:
  uint8_t operation = 0;
  uint8_t datatype = 0;
  Local comparands;
  Local results;
  bool fetches = false;
  bool compares = false;
};

class Endpoint : public fid_ep {
 public:
  Endpoint(Domain& domain, const fi_info& info);
  ~Endpoint();

  int bind(struct fid* other, uint64_t flags);
  int enable();
  int set_name(const void* address, size_t bytes);
  int get_name(void* address, size_t* bytes) const;
  ssize_t cancel(void* context);
  void progress();
  // Frames that have not left the process.
  bool holds() const;
  void forget(const MemoryRegion& region);
  // What was asked for leaves, as far as it does within a moment.
  void flush();

  // Each returns 0 or a negative fi_errno; -FI_EAGAIN: full, again later.
  ssize_t start(const Asked& asked);
  ssize_t post(bool with_tag, const Pattern& pattern, const Receive& receive);
  // FI_PEEK, FI_CLAIM and FI_DISCARD of tagged receives.
  ssize_t peek(const Pattern& pattern, const Receive& receive);
  ssize_t post_claimed(const Receive& receive);

  // nullopt: there is no such address.
  std::optional<PeerId> peer_number(fi_addr_t address);
  bool directed() const { return (caps_ & FI_DIRECTED_RECV) != 0; }
  uint64_t tx_flags() const { return tx_flags_; }
  uint64_t rx_flags() const { return rx_flags_; }
  size_t inject_bytes() const { return inject_bytes_; }
  bool enabled() const { return meeting_ != nullptr; }

  Domain& domain() const { return domain_; }
  size_t min_multi_receive = 64;

 private:
  // What is done when it is known that it will leave.
  struct Outcome {
    Completion completion;
    bool completes = false;  // in the queue; if it fails, it does anyway
    uint64_t counts = 0;     // FI_SEND, FI_WRITE, FI_READ
  };

  struct Operation {
    enum class Kind : uint8_t {
      kOffer,     // a message, until it is cleared and put
      kDelivery,  // a message, until its delivery is told
      kWrite,
      kRead,
      kAtomic,
      kReceive,  // a message that was cleared, until it is placed
      kServeWrite,
      kServeRead,
    };
    Kind kind = Kind::kOffer;
    PeerId peer = 0;
    Outcome outcome;
    Local local;
    std::array<const Memory*, kMostPlaces> registered{};  // for it alone
    size_t registered_nic = 0;
    uint64_t length = 0;
    uint32_t puts = 0;  // that are not done
    bool cleared = false;
    bool put = false;         // all puts have been handed over
    bool wants_done = false;  // the peer says when it has all
    uint64_t peers_number = 0;
    std::array<PlaceFrame, kMostPlaces> places{};
    size_t place_count = 0;
    std::shared_ptr<SharedBuffer> shared;  // kReceive
    std::unique_ptr<Bounce> bounce;        // its `local`, where that would be a GPU's
    Frame asks;                            // kRead, kServeWrite
  };

  // A connection that comes from a peer.
  struct Lane {
    std::unique_ptr<Inbox> inbox;
    std::optional<FrameReader> reading;  // the oldest message, where it was left
  };

  struct Peer {
    Name name;
    Name other_name;  // that he has for himself
    Token token{};    // what he says first
    uint64_t instance = 0;
    std::vector<Meeting::CallId> calls;
    bool calling = false;
    std::unique_ptr<Connecting> connecting;
    Token his_token{};
    std::unique_ptr<Outbox> outbox;
    Lane frames;
    Lane placed;  // what he says behind his puts
    Handle his_listener;
    std::unique_ptr<Connecting> connecting_puts;
    std::unique_ptr<PutBox> puts;  // once there was something to put
    std::deque<Outcome> waiting;   // for the connection
    std::deque<uint64_t> to_put;   // operations that wait for room
    std::deque<uint64_t> to_ask;   // reads, likewise
    uint32_t serving = 0;          // of his large reads and writes
    bool left = false;
    std::optional<Meeting::Clock::time_point> lost;
    uint64_t source = FI_ADDR_NOTAVAIL;
    uint64_t source_version = ~uint64_t{0};
  };

  enum class Taken : uint8_t { kYes, kLater, kNonsense };

  // endpoint_peers.cc
  PeerId peer_named(const Name& name);
  uint64_t source_of(Peer& peer);
  void call(Peer& peer);
  Greeting greeting_for(const Peer& peer) const;
  void meet();
  void on_event(const Meeting::Event& event);
  void on_greeting(const Meeting::Event& event);
  void join(PeerId number);
  void join_puts(PeerId number);
  void accept_strangers();
  void greet_strangers();
  void fail_peer(PeerId number, int error, const std::string& why);
  void fail_operations(PeerId number, int error, const std::string& why);
  void forget_messages_of(PeerId number);
  void fail_receives_from(PeerId number, int error, const std::string& why);

  // endpoint_send.cc
  ssize_t start_from_host(const Asked& asked, PeerId number);
  ssize_t start_eagerly(const Asked& asked, PeerId number);
  ssize_t start_offered(const Asked& asked, PeerId number);
  ssize_t start_read(const Asked& asked, PeerId number);
  ssize_t start_atomic(const Asked& asked, PeerId number);
  Outcome outcome_of(const Asked& asked) const;
  void start(PeerId number, bool patient);
  void settle(Peer& peer, Outcome outcome);
  std::optional<size_t> describe_places(Operation& operation, size_t nic, uint64_t bytes);
  Result<const Memory*> memory_for(Operation& operation, size_t piece, size_t nic);
  void try_reads(PeerId number);
  void try_puts(PeerId number);
  void put_all(Peer& peer, uint64_t number, Operation& operation);
  void on_put_done(uint64_t number);
  void end_if_done(uint64_t number, const Operation& operation);
  void end(uint64_t number, int error, const std::string& why);
  void release(uint64_t number, Operation& operation);

  // endpoint_receive.cc
  using Messages = Matcher<Receive, Unexpected>;
  Taken on_message(PeerId number, const FrameView& view);
  Messages& messages_of(const Frame& frame) {
    return (frame.flags & kTagged) != 0 ? tagged_ : untagged_;
  }
  Receive take_receive(Messages& messages, Messages::Receives::iterator at, uint64_t length);
  void receive_message(PeerId number, const Frame& frame, std::span<const uint8_t> payload,
                       const Receive& receive);
  void clear(PeerId number, const Frame& frame, const Receive& receive, Outcome outcome);
  Outcome receive_outcome(const Frame& frame, const Receive& receive, PeerId from);
  void discard(PeerId number, const Unexpected& message);

  // endpoint_frames.cc
  void read_frames(PeerId number, Lane& lane);
  Taken on_frame(PeerId number, const Lane& lane, const FrameView& view);
  Taken on_write(PeerId number, const FrameView& view);
  Taken on_write_offer(PeerId number, const Frame& frame);
  bool waits_for_room(PeerId number, const Frame& frame) const;
  Taken on_read(PeerId number, const FrameView& view);
  Taken on_atomic(PeerId number, const FrameView& view);
  Taken on_clear(PeerId number, const FrameView& view);
  Taken on_placed(PeerId number, const Frame& frame);
  Taken on_done(PeerId number, const FrameView& view);
  struct Target {
    Status status = Status::kOk;
    Local memory;

    MemoryRegion& region() const { return *memory.regions[0]; }
  };
  Target target_of(const Frame& frame, uint64_t access) const;
  // nullptr: a GPU's memory cannot be copied.
  std::pair<uint64_t, Operation*> serve(PeerId number, Operation::Kind kind, const Local& memory);
  void on_changed(MemoryRegion& region, const Frame& frame, PeerId from, uint64_t kind);
  void answer(PeerId number, const Frame& frame, std::span<const uint8_t> payload = {});
  void answer_status(PeerId number, uint64_t id, Status status);

  // endpoint_device.cc
  static bool on_device(const Local& local);
  // Errors: as StagedRange::copy; there are none without a GPU's memory.
  static Result<void> read_out(const Local& local, std::span<uint8_t> to);
  static Result<void> take_in(const Local& local, std::span<const uint8_t> bytes);
  // Calls apply(bytes of the host), of one piece: where it lies, or of a copy that is taken back.
  template <typename Apply>
  static Result<void> change(const Local& local, Apply apply) {
    if (!on_device(local)) {
      apply(local.pieces[0].data);
      return {};
    }
    std::vector<uint8_t> copy(local.bytes());
    if (auto read = read_out(local, copy); !read) return read;
    apply(copy.data());
    return take_in(local, copy);
  }
  // Null where no memory is a GPU's. `sends`: with what lies there.
  static Result<std::unique_ptr<Bounce>> bounce_for(const Local& local, uint64_t bytes, bool sends);
  static void go_through(Operation& operation, std::unique_ptr<Bounce> bounce);
  static Result<void> deliver(Operation& operation);

  // endpoint.cc
  void tell(Outcome& outcome, CompletionQueue* queue);
  void tell_error(Outcome& outcome, CompletionQueue* queue, int error, const std::string& why);
  void count(uint64_t what, bool failed);
  bool receives_full() const;

  Domain& domain_;
  uint64_t caps_;
  uint64_t tx_flags_;
  uint64_t rx_flags_;
  size_t tx_size_;
  size_t rx_size_;
  size_t inject_bytes_;
  Name wanted_name_;
  Name name_;
  uint64_t instance_;

  AddressVector* vector_ = nullptr;
  EventQueue* events_ = nullptr;
  CompletionQueue* tx_queue_ = nullptr;
  CompletionQueue* rx_queue_ = nullptr;
  bool tx_selective_ = false;
  bool rx_selective_ = false;
  std::map<uint64_t, Counter*> counters_;  // by what they count: one FI_ bit each

  std::unique_ptr<Meeting> meeting_;
  std::unique_ptr<Listener> listener_;
  Meeting::Clock::time_point met_{};

  std::deque<std::unique_ptr<Peer>> peers_;
  std::map<Name, PeerId> peers_by_name_;
  std::vector<PeerId> peers_by_address_;  // a copy of what the vector says, of `copied_version_`
  uint64_t copied_version_ = 0;
  size_t turn_ = 0;
  // A connection of which nobody has said yet whose it is.
  struct Stranger {
    std::unique_ptr<Inbox> inbox;
    Meeting::Clock::time_point begun;
  };
  std::vector<Stranger> strangers_;

  static constexpr uint32_t kMostOperations = 1 << 16;
  static constexpr uint32_t kMostServed = 1024;           // of one peer's, so that others have room
  static constexpr size_t kMostKept = size_t{256} << 20;  // bytes of unexpected messages
  OperationTable<Operation> operations_{kMostOperations};
  uint32_t sending_ = 0;  // of them, that we have asked for
  Messages untagged_;
  Messages tagged_;
  size_t kept_bytes_ = 0;
};

}  // namespace pacecar::fabric

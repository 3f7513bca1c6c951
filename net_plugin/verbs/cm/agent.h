// Queue pair 1 of a device: sends, repeats and receives the messages of connection management, and
// passes each one to its end of a connection.
// Each process of a peer's address has a queue pair 1, by its slot (roce::general_services_of); one
// of the processes has the service. A request goes first to slot 0, which NICs and rdma_rxe use as
// well; if that process refuses or does not answer, to all slots.
// A peer cannot act for another host: an end accepts messages from its peer's address only.
// Thread rule: call with the NIC's mutex held.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "net_plugin/verbs/cm/core/connection.h"
#include "net_plugin/verbs/process_nic.h"

namespace pacecar::ibverbs::cm {

struct CmDevice;
struct Id;

// The source or destination of a message.
struct Peer {
  Gid gid{};
  uint32_t slot = 0;  // of its process
};

// One end of a connection, or of a lookup of a UD service (SIDR).
struct End {
  End(Id& user, uint32_t local_id, Duration limit) : connection(local_id, limit), id(&user) {}
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void on_notice(Notice notice, const Message& message);

  Connection connection;
  Id* id;  // null: the program has destroyed it
  Peer peer;
  // It is not known yet which process has the service. After a refusal all are asked; if none of
  // them accepts until `search_ends`, the refusal is reported.
  bool searching = false;
  bool sent_to_all = false;
  Instant search_ends = Instant::never();
  std::optional<Message> refusal;  // the newest one
};

class Agent final : CompletionSink, Timed {
 public:
  static Result<std::unique_ptr<Agent>> open(CmDevice& device);  // Errors: kUnavailable.

  uint32_t new_id();
  uint64_t new_transaction() { return next_transaction_++; }

  void add(End& end);  // A passive end after its connection's on_request().
  void remove(End& end);
  // The id is destroyed: disconnects, and keeps the end until the peer has answered kDisconnect.
  void abandon(std::unique_ptr<End> end);
  void disconnect_all();          // Disconnects all ends, for a process that exits.
  bool all_disconnected() const;  // No kDisconnect is unanswered.
  void disconnect(End& end);      // Does nothing unless the end is connected.
  // Sends the message that a call on the end's connection has returned; null: none.
  void send(End& end, const Message* message);

 private:
  Agent(CmDevice& device, QueuePairId id, std::unique_ptr<uint8_t[]> buffers,
        const MemoryRegion& region);
  void post_receive(uint32_t slot);
  // False: the message is lost for lack of room.
  bool send_to(const Peer& peer, const Message& message);
  void send_to_all(End& end);
  void on_completion(const Completion& completion) override;
  void take(const Message& message, const Peer& from);
  void on_request(const Message& request, const Peer& from);
  void on_unknown(const Message& message, const Peer& from);
  bool continue_search(End& end, const Message& message);
  void run(End& end, const Connection::Step& step, const Message& message);
  void on_end_due(End& end, Instant now);
  Instant due() const override { return due_; }
  void on_due(Instant now) override;

  using RemoteKey = std::tuple<Gid, uint32_t, uint32_t>;  // of the peer: address, slot, number

  CmDevice& device_;  // with the services of this process
  ProcessNic& nic_;
  const QueuePairId id_;
  const std::unique_ptr<uint8_t[]> buffers_;  // receive buffers
  const MemoryRegion region_;
  std::unordered_map<uint64_t, Staging> sending_;  // by work request
  uint64_t next_send_ = 0;
  uint64_t next_transaction_ = 0;
  std::unordered_map<uint32_t, End*> ends_;  // by number
  std::map<RemoteKey, uint32_t> requested_;  // passive ends by the peer's number
  std::unordered_map<uint32_t, std::unique_ptr<End>> abandoned_;
  Instant due_ = Instant::never();  // no end is due before
};

}  // namespace pacecar::ibverbs::cm

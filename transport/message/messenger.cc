// Making connections, and the calls of the application.
#include "transport/message/messenger.h"

#include <algorithm>
#include <cstddef>

#include "cc/registry.h"
#include "transport/base/check.h"
#include "transport/message/flow.h"

namespace pacecar {
namespace {

constexpr std::string_view kFlowEnded =
    "the flow that this connection was to share has ended: connect again";

}  // namespace

Result<std::unique_ptr<Messenger>> Messenger::create(Nic& nic, const MessengerConfig& config,
                                                     Instant now) {
  PACECAR_CHECK(config.max_connections <= kMaxConnections);
  PACECAR_CHECK(config.line_rate.bps() > 0);
  PACECAR_CHECK(config.eager <= std::min<Bytes>(kMaxEager, nic.caps().write_bytes / 2));
  FlowEnvironment flow = environment(nic, config);
  flow.host_link = config.outgoing;
  auto controllers = make_controllers(config.congestion_control, flow, config.rate_max,
                                      config.constants, nic.caps().flows);
  if (!controllers) return tl::unexpected(controllers.error());
  flow.host_link = config.incoming;
  const std::string_view own = controller_info(config.congestion_control)->allocator;
  const std::string_view name = config.allocator.empty() ? own : config.allocator;
  const auto constants =
      std::span(config.constants).first(name == own ? config.constants.size() : 0);
  auto allocator = make_allocator(name, flow, nic.caps().flows, constants);
  if (!allocator) return tl::unexpected(allocator.error());
  auto messenger = std::unique_ptr<Messenger>(
      new Messenger(nic, config, std::move(*allocator), std::move(*controllers), now));
  messenger->obeys_ = allocator_name(own);
  messenger->own_allocator_ = allocator_name(name);
  const auto region = nic.register_memory(messenger->words_out_.data(),
                                          messenger->words_out_.size_bytes(), Access::kLocalRead);
  if (!region) return tl::unexpected(region.error());
  messenger->words_out_region_ = *region;
  return messenger;
}

FlowEnvironment Messenger::environment(const Nic& nic, const MessengerConfig& config) {
  return {.line_rate = config.line_rate,
          .mtu = nic.caps().mtu,
          .overhead = nic.caps().packet_overhead,
          .burst_bytes = nic.caps().burst_bytes,
          .base_rtt = config.base_rtt,
          .trimming = config.trimming,
          .oversubscription = config.oversubscription,
          .jitter = nic.caps().jitter,
          .pause = nic.caps().pause,
          .receivers_look = nic.caps().times_arrivals,
          .first_rate = config.first_rate,
          .grid_origin = config.grid_origin};
}

Messenger::Messenger(Nic& nic, const MessengerConfig& config, std::unique_ptr<Allocator> allocator,
                     std::unique_ptr<ControllerSet> controllers, Instant now)
    : nic_(nic),
      config_(config),
      allocator_(std::move(allocator)),
      controllers_(std::move(controllers)),
      flows_(nic.caps().flows),
      words_(2 * size_t{nic.caps().flows}),
      words_in_(words_.data(), nic.caps().flows),
      words_out_(words_.data() + nic.caps().flows, nic.caps().flows),
      words_seen_(nic.caps().flows),
      send_tables_(config.max_connections, EagerCells(config.eager).bytes()),
      receive_tables_(config.max_connections, EagerCells(config.eager).bytes()),
      senders_(config.max_connections),
      receivers_(config.max_connections),
      matching_(config.max_connections),
      posting_(config.max_connections),
      to_advertise_(config.max_connections),
      word_pending_(nic.caps().flows),
      unsettled_(nic.caps().flows),
      open_senders_(config.max_connections),
      open_receivers_(config.max_connections),
      next_flow_number_(config.first_flow_number),
      now_(now),
      next_housekeeping_(now) {
  nic_.report_arrivals(allocator_->wants_arrivals());
}

// Peers write into our words and tables until the queue pairs are destroyed.
Messenger::~Messenger() {
  for (const auto& [peer, id] : flows_with_) {
    const Flow& flow = flows_[id];
    if (flow.state != Flow::State::kBroken) destroy_queue_pairs(flow);
  }
  nic_.deregister_memory(words_out_region_);
}

Result<Messenger::Offered> Messenger::open_send(const NicIdentity& peer, Instant now,
                                                uint32_t weight, Role role) {
  PACECAR_CHECK(weight <= kMaxWeight);
  poll_completions(now);  // a flow that has broken is not shared
  if (senders_.full()) {
    return fail(ErrorCode::kUnavailable,
                "all connections of the NIC are used: close some or raise PACECAR_MAX_CONNECTIONS");
  }
  const ConnectionId place = senders_.next();
  auto sender = std::make_unique<Sender>(config_.strict);
  sender->id = place;
  sender->eager = role == Role::kWhole ? config_.eager : 0;
  sender->table = send_tables_.renew(place);
  const auto region = expose(nic_, *sender->table, send_tables_.place_bytes());
  if (!region) {
    send_tables_.give_back(place);
    return tl::unexpected(region.error());
  }
  sender->table_region = *region;
  Flow* flow = find_flow(true, peer, std::nullopt);
  sender->shares = flow != nullptr;
  if (flow == nullptr) {
    auto made = make_flow(true, peer, next_flow_number_++);
    if (!made) {
      nic_.deregister_memory(*region);
      send_tables_.give_back(place);
      return tl::unexpected(made.error());
    }
    flow = *made;
  }
  sender->flow = flow;
  sender->weight = weight == 0 ? config_.weight : weight;
  sender->number = flow->numbered.add(place);
  ++flow->connections;
  const Offer offer{.sender = config_.identity,
                    .flow = flow->number,
                    .joined = flow->state == Flow::State::kOpen,
                    .obeys = obeys_,
                    .weight = sender->weight,
                    .eager = sender->eager,
                    .number = sender->number,
                    .count = ++offers_,
                    .end = flow->local,
                    .table = remote_address_of(*region)};
  if (senders_.add(std::move(sender)).weight > flow->weight) weigh(*flow, now);
  return Offered{place, encode(offer)};
}

Result<void> Messenger::finish_send(ConnectionId connection, std::span<const uint8_t> bytes,
                                    Instant now) {
  Sender& sender = senders_[connection];
  auto answer = decode_answer(bytes);
  if (!answer) return tl::unexpected(answer.error());
  Flow& flow = *sender.flow;
  if (flow.state == Flow::State::kJoining) {
    if (auto joined = join(flow, answer->end, now); !joined) {
      break_flow(flow, MessageFailure::kPeerProtocol);
      return joined;
    }
  } else if (flow.state == Flow::State::kBroken ||
             !std::ranges::equal(flow.remote.data.view(), answer->end.data.view())) {
    return fail(ErrorCode::kStale, std::string(kFlowEnded));
  }
  if (answer->eager > sender.eager) {
    return fail(ErrorCode::kPeer,
                "the peer's answer has more room than was asked for: run the same version of "
                "Pacecar on both sides");
  }
  sender.remote_table = answer->table;
  sender.queue.enable_eager(EagerCells(answer->eager), send_tables_.cells(connection),
                            sender.table_region.key,
                            {answer->table.address + sizeof(ReceiveTable), answer->table.key});
  sender.open = true;
  return {};
}

bool Messenger::doubt_flow(ConnectionId connection, ErrorCode failure, Instant now) {
  poll_completions(now);
  const Sender& sender = senders_[connection];
  Flow& flow = *sender.flow;
  const bool ended = sender.shares && failure == ErrorCode::kStale;
  flow.doubted = flow.doubted || ended;
  return ended || flow.state == Flow::State::kBroken;
}

Result<Messenger::Answered> Messenger::open_receive(std::span<const uint8_t> bytes, Instant now) {
  auto offer = decode_offer(bytes);
  if (!offer) return tl::unexpected(offer.error());
  poll_completions(now);  // a flow that has broken is not shared
  if (receivers_.full()) {
    return fail(ErrorCode::kUnavailable,
                "all connections of the NIC are used: close some or raise PACECAR_MAX_CONNECTIONS");
  }
  const uint32_t eager = std::min(offer->eager, config_.eager);
  const ConnectionId place = receivers_.next();
  auto receiver = std::make_unique<Receiver>(config_.strict);
  receiver->id = place;
  receiver->table = receive_tables_.renew(place);
  receiver->remote_table = offer->table;
  receiver->queue.enable_eager(EagerCells(eager), receive_tables_.cells(place));
  const auto region = expose(nic_, *receiver->table, receive_tables_.place_bytes());
  if (!region) {
    receive_tables_.give_back(place);
    return tl::unexpected(region.error());
  }
  receiver->table_region = *region;
  const auto give_up = [&](Error error) {
    nic_.deregister_memory(*region);
    receive_tables_.give_back(place);
    return tl::unexpected(std::move(error));
  };
  Flow* flow = find_flow(false, offer->sender, offer->flow);
  if (flow == nullptr) {
    if (offer->joined) return give_up({ErrorCode::kStale, std::string(kFlowEnded)});
    auto made = make_flow(false, offer->sender, offer->flow);
    if (!made) return give_up(made.error());
    flow = *made;
    flow->obeys = offer->obeys == own_allocator_;
    if (auto joined = join(*flow, offer->end, now); !joined) {
      destroy_flow(*flow);
      return give_up(joined.error());
    }
  } else if (!std::ranges::equal(flow->remote.data.view(), offer->end.data.view())) {
    return give_up({ErrorCode::kPeer, "the peer offers a flow that is another one here"});
  } else if (!takes_number(*flow, *offer)) {
    return give_up({ErrorCode::kPeer, "the peer has given up this offer"});
  }
  flow->state = Flow::State::kOpen;  // also if it was leaving
  look_ = true;
  ++flow->connections;
  receiver->flow = flow;
  receiver->number = offer->number;
  receiver->offered = offer->count;
  receiver->weight = offer->weight;
  take_number(*flow, *offer, place);
  const Answer answer{.end = flow->local, .eager = eager, .table = remote_address_of(*region)};
  if (receivers_.add(std::move(receiver)).weight > flow->weight) weigh(*flow, now);
  return Answered{place, encode(answer)};
}

// False for a late offer that the sender has abandoned.
bool Messenger::takes_number(const Flow& flow, const Offer& offer) const {
  const ConnectionId last = flow.numbered.at(offer.number);
  return last == FlowConnections::kNone || receivers_[last].offered < offer.count;
}

// A connection that had the number before fails: the sender has released it, and nothing more comes
// for it.
void Messenger::take_number(Flow& flow, const Offer& offer, ConnectionId receiver) {
  const ConnectionId last = flow.numbered.at(offer.number);
  if (last != FlowConnections::kNone) {
    receivers_[last].peer_closed = true;
    fail_connection(receivers_[last], MessageFailure::kPeerClosed);
  }
  flow.numbered.put(offer.number, receiver);
}

// --- calls of the application ---

bool Messenger::send(ConnectionId connection, const SendOperation& operation) {
  Sender& sender = senders_[connection];
  PACECAR_CHECK(!operation.put || sender.eager == 0);
  if (sender.failure != MessageFailure::kNone) {
    operation.request->failure = sender.failure;
    operation.request->set(MessageRequest::State::kFailed);
    return true;
  }
  if (!sender.queue.post(operation)) return false;
  matching_.add(connection);
  open_senders_.add(connection);
  look_ = true;
  housekeeping_due_ = true;
  return true;
}

bool Messenger::receive(ConnectionId connection, const ReceiveOperation& operation, Instant now) {
  Receiver& receiver = receivers_[connection];
  look_for_close(receiver, now);
  // A peer that has ended may have sent eager messages before; nothing follows a failed receive.
  const bool failed = receiver.failure != MessageFailure::kNone;
  const bool ended = receiver.failure == MessageFailure::kPeerClosed ||
                     receiver.failure == MessageFailure::kPeerSilent;
  if (failed && !(ended && receiver.queue.idle() && receiver.queue.holds_messages())) {
    operation.request->failure = receiver.failure;
    operation.request->set(MessageRequest::State::kFailed);
    return true;
  }
  Bytes bytes = 0;
  for (uint32_t i = 0; i < operation.count; ++i) bytes += operation.buffers[i].size;
  if (!receiver.queue.post(operation)) return false;
  if (receiver.flow->obeys) allocator_->on_posted(now, receiver.flow->id, bytes);
  if (receiver.queue.holds_messages()) {
    ReceiveQueue::Progress progress;
    const auto arrival = receiver.queue.take_eager(&progress);
    on_arrival(receiver, arrival, progress, now);
    if (!failed && receiver.failure != MessageFailure::kNone) return true;  // protocol error
    bytes -= std::min(bytes, progress.finished);
  }
  if (failed) {  // no more will come
    receiver.queue.fail(receiver.failure);
    if (receiver.flow->obeys) allocator_->on_finished(now, receiver.flow->id, bytes);
    return true;
  }
  to_advertise_.add(connection);
  open_receivers_.add(connection);
  housekeeping_due_ = true;
  return true;
}

void Messenger::forget_memory(uint32_t key) {
  for (size_t i = 0; i < open_senders_.size(); ++i) {
    senders_[open_senders_[i]].queue.forget_memory(key);
  }
  for (size_t i = 0; i < open_receivers_.size(); ++i) {
    Receiver& receiver = receivers_[open_receivers_[i]];
    if (receiver.queue.uses(key)) fail_connection(receiver, MessageFailure::kMemoryGone);
  }
}

void Messenger::hint(const TrafficHint& hint, Instant now) {
  hint_ = hint;
  if (hint_.peers > nic_.caps().flows) hint_.peers = 0;
  allocator_->on_hint(now, hint_);
}

}  // namespace pacecar

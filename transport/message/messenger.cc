// Making and ending flows and connections.
#include "transport/message/messenger.h"

#include <algorithm>
#include <cstddef>

#include "cc/grant_word.h"
#include "cc/registry.h"
#include "transport/base/check.h"
#include "transport/message/flow.h"

namespace pacecar {
namespace {

constexpr uint32_t kDataWorkRequests = 256;
constexpr uint32_t kControlWorkRequests = 64;
constexpr std::string_view kFlowEnded =
    "the flow that this connection was to share has ended: connect again";

// Data goes one way; the other end of a flow answers by control words.
QueuePairConfig data_config(FlowId flow, bool sending) {
  return {.flow = flow, .work_requests = kDataWorkRequests, .posts = sending};
}

QueuePairConfig control_config(FlowId flow) {
  return {.flow = flow,
          .traffic_class = TrafficClass::kControl,
          .paced = false,
          .work_requests = kControlWorkRequests};
}

// A free place in a table of bounded size; its size when full.
template <typename T>
size_t free_place(const std::vector<std::unique_ptr<T>>& table) {
  return static_cast<size_t>(std::find(table.begin(), table.end(), nullptr) - table.begin());
}

RemotePlace place_of(const MemoryRegion& region, size_t offset) {
  return {reinterpret_cast<uint64_t>(region.address) + offset, region.key};
}

template <typename T>
Result<MemoryRegion> expose(Nic& nic, T& place, size_t size = sizeof(T)) {
  return nic.register_memory(&place, size, Access::kRemoteWrite);
}

}  // namespace

Result<std::unique_ptr<Messenger>> Messenger::create(Nic& nic, const MessengerConfig& config,
                                                     Instant now) {
  PACECAR_CHECK(config.max_connections <= Immediate::kMaxConnections);
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
  const auto region =
      nic.register_memory(messenger->words_out_.data(),
                          messenger->words_out_.size() * sizeof(uint64_t), Access::kLocalRead);
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
      words_in_(nic.caps().flows),
      words_seen_(nic.caps().flows),
      words_out_(nic.caps().flows),
      send_tables_(config.max_connections, EagerCells(config.eager).bytes()),
      receive_tables_(config.max_connections, EagerCells(config.eager).bytes()),
      senders_(config.max_connections),
      receivers_(config.max_connections),
      matching_(config.max_connections),
      posting_(config.max_connections),
      telling_(config.max_connections),
      speaking_(nic.caps().flows),
      next_flow_number_(config.first_flow_number),
      now_(now),
      next_housekeeping_(now) {
  nic_.tell_arrivals(allocator_->wants_arrivals());
}

Messenger::~Messenger() { nic_.deregister_memory(words_out_region_); }

QueuePairMemory Messenger::flow_memory() const {
  const QueuePairMemory data = nic_.queue_pair_memory(data_config(0, true));
  const QueuePairMemory control = nic_.queue_pair_memory(control_config(0));
  return {sizeof(Flow) + 3 * sizeof(uint64_t) + data.state + control.state,
          data.queues + control.queues};
}

// --- flows ---

Result<Messenger::Flow*> Messenger::make_flow(bool sending, const NicIdentity& peer,
                                              uint64_t number) {
  const size_t place = free_place(flows_);
  if (place == flows_.size()) {
    return fail(ErrorCode::kUnavailable,
                "all flows of the NIC are used: close connections or raise PACECAR_MAX_FLOWS");
  }
  auto flow = std::make_unique<Flow>();
  flow->id = static_cast<FlowId>(place);
  flow->sending = sending;
  flow->peer = peer;
  flow->number = number;
  words_in_[place] = words_seen_[place] = words_out_[place] = 0;
  const auto data = nic_.create_queue_pair(data_config(flow->id, sending));
  if (!data) return tl::unexpected(data.error());
  const auto control = nic_.create_queue_pair(control_config(flow->id));
  const auto region = expose(nic_, words_in_[place]);
  if (!control || !region) {
    nic_.destroy_queue_pair(*data);
    if (control) nic_.destroy_queue_pair(*control);
    if (region) nic_.deregister_memory(*region);
    return tl::unexpected(control ? region.error() : control.error());
  }
  flow->data = *data;
  flow->control = *control;
  flow->word_region = *region;
  flow->local = FlowEnd{nic_.queue_pair_address(*data), nic_.queue_pair_address(*control),
                        place_of(*region, 0)};
  open_flows_.push_back(flow->id);
  flows_[place] = std::move(flow);
  return flows_[place].get();
}

// The sender finds a flow that it may use for a new connection by its peer alone; the receiver
// finds the one that the sender means by its number.
Messenger::Flow* Messenger::find_flow(bool sending, const NicIdentity& peer,
                                      std::optional<uint64_t> number) {
  for (const FlowId id : open_flows_) {
    Flow& flow = *flows_[id];
    if (flow.sending != sending || flow.peer != peer || flow.state == Flow::State::kBroken)
      continue;
    const bool shareable = flow.state != Flow::State::kLeaving && !flow.doubted;
    if (number ? flow.number == *number : shareable) return &flow;
  }
  return nullptr;
}

Result<void> Messenger::join(Flow& flow, const FlowEnd& remote, Instant now) {
  if (auto joined = nic_.connect_queue_pair(flow.data, remote.data.view()); !joined) return joined;
  if (auto joined = nic_.connect_queue_pair(flow.control, remote.control.view()); !joined) {
    return joined;
  }
  flow.remote = remote;
  flow.peer_address = nic_.peer(flow.data);
  flow.state = Flow::State::kOpen;
  flow.last_word = now;
  look_ = true;  // the peer may have been faster
  if (!flow.sending) {
    if (flow.obeys) allocator_->add_flow(now, flow.id);
    return {};
  }
  flow.controller = &controllers_->add_flow(now, flow.id);
  controllers_->set_weight(now, flow.id, flow.weight);
  decide(flow, now);
  return {};
}

void Messenger::leave(Flow& flow, Instant now) {
  if (--flow.connections > 0) return;
  if (flow.state != Flow::State::kOpen) return destroy_flow(flow);
  flow.state = Flow::State::kLeaving;
  flow.leave_at = now + config_.silence_limit / 5;
  house_busy_ = true;
}

void Messenger::destroy_flow(Flow& flow) {
  if (flow.state != Flow::State::kJoining) {
    if (flow.obeys) allocator_->remove_flow(now_, flow.id);
    if (flow.controller != nullptr) controllers_->remove_flow(now_, flow.id);
  }
  nic_.destroy_queue_pair(flow.data);
  nic_.destroy_queue_pair(flow.control);
  nic_.deregister_memory(flow.word_region);
  speaking_.remove(flow.id);
  std::erase(open_flows_, flow.id);
  flows_[flow.id].reset();
}

void Messenger::weigh(Flow& flow, Instant now) {
  uint32_t weight = 1;
  const auto look = [&](const auto& ends) {
    for (const auto& end : ends) {
      if (end != nullptr && end->flow == &flow) weight = std::max(weight, end->weight);
    }
  };
  look(senders_);
  look(receivers_);
  if (weight == flow.weight) return;
  flow.weight = weight;
  if (flow.controller != nullptr) controllers_->set_weight(now, flow.id, weight);
  if (flow.obeys) allocator_->set_weight(now, flow.id, weight);
}

void Messenger::break_flow(Flow& flow, MessageFailure failure) {
  flow.state = Flow::State::kBroken;
  nic_.destroy_queue_pair(flow.data);
  nic_.destroy_queue_pair(flow.control);
  for (auto& sender : senders_) {
    if (sender != nullptr && sender->flow == &flow) fail_connection(*sender, failure);
  }
  for (auto& receiver : receivers_) {
    if (receiver != nullptr && receiver->flow == &flow) fail_connection(*receiver, failure);
  }
  house_busy_ = true;
}

// --- connections ---

Result<Messenger::Offered> Messenger::open_send(const NicIdentity& peer, Instant now,
                                                uint32_t weight, Role role) {
  PACECAR_CHECK(weight <= kMaxWeight);
  poll_completions(now);  // a flow that has broken is not shared
  const size_t place = free_place(senders_);
  if (place == senders_.size()) {
    return fail(ErrorCode::kUnavailable,
                "all connections of the NIC are used: close some or raise PACECAR_MAX_CONNECTIONS");
  }
  auto sender = std::make_unique<Sender>(config_.strict);
  sender->id = static_cast<ConnectionId>(place);
  sender->eager = role == Role::kWhole ? config_.eager : 0;
  sender->table = send_tables_.renew(place);
  const auto region = expose(nic_, *sender->table, send_tables_.place_bytes());
  if (!region) return tl::unexpected(region.error());
  sender->table_region = *region;
  Flow* flow = find_flow(true, peer, std::nullopt);
  sender->shares = flow != nullptr;
  if (flow == nullptr) {
    auto made = make_flow(true, peer, next_flow_number_++);
    if (!made) {
      nic_.deregister_memory(*region);
      return tl::unexpected(made.error());
    }
    flow = *made;
    flow->last_word = now;
  }
  sender->flow = flow;
  sender->weight = weight == 0 ? config_.weight : weight;
  ++flow->connections;
  const Offer offer{.sender = config_.identity,
                    .flow = flow->number,
                    .joined = flow->state == Flow::State::kOpen,
                    .obeys = obeys_,
                    .weight = sender->weight,
                    .eager = sender->eager,
                    .end = flow->local,
                    .table = place_of(*region, 0)};
  senders_[place] = std::move(sender);
  weigh(*flow, now);
  return Offered{static_cast<ConnectionId>(place), encode(offer)};
}

Result<void> Messenger::finish_send(ConnectionId connection, std::span<const uint8_t> bytes,
                                    Instant now) {
  Sender& sender = *senders_[connection];
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
  if (answer->connection >= Immediate::kMaxConnections) {
    return fail(ErrorCode::kPeer,
                "the peer's answer names an impossible connection: run the same "
                "version of Pacecar on both sides");
  }
  sender.remote_connection = answer->connection;
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
  const Sender& sender = *senders_[connection];
  Flow& flow = *sender.flow;
  const bool ended = sender.shares && failure == ErrorCode::kStale;
  flow.doubted = flow.doubted || ended;
  return ended || flow.state == Flow::State::kBroken;
}

Result<Messenger::Answered> Messenger::open_receive(std::span<const uint8_t> bytes, Instant now) {
  auto offer = decode_offer(bytes);
  if (!offer) return tl::unexpected(offer.error());
  poll_completions(now);  // a flow that has broken is not shared
  const size_t place = free_place(receivers_);
  if (place == receivers_.size()) {
    return fail(ErrorCode::kUnavailable,
                "all connections of the NIC are used: close some or raise PACECAR_MAX_CONNECTIONS");
  }
  const uint32_t eager = std::min(offer->eager, config_.eager);
  auto receiver = std::make_unique<Receiver>(config_.strict);
  receiver->id = static_cast<ConnectionId>(place);
  receiver->table = receive_tables_.renew(place);
  receiver->remote_table = offer->table;
  receiver->queue.enable_eager(EagerCells(eager), receive_tables_.cells(place));
  const auto region = expose(nic_, *receiver->table, receive_tables_.place_bytes());
  if (!region) return tl::unexpected(region.error());
  receiver->table_region = *region;
  const auto give_up = [&](Error error) {
    nic_.deregister_memory(*region);
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
  }
  flow->state = Flow::State::kOpen;  // also when it was about to leave
  look_ = true;
  ++flow->connections;
  receiver->flow = flow;
  receiver->weight = offer->weight;
  const Answer answer{.end = flow->local,
                      .connection = receiver->id,
                      .eager = eager,
                      .table = place_of(*region, 0)};
  receivers_[place] = std::move(receiver);
  weigh(*flow, now);
  return Answered{static_cast<ConnectionId>(place), encode(answer)};
}

// --- what the application asks for ---

bool Messenger::send(ConnectionId connection, const SendOperation& operation) {
  Sender& sender = *senders_[connection];
  if (sender.failure != MessageFailure::kNone) {
    operation.request->failure = sender.failure;
    operation.request->set(MessageRequest::State::kFailed);
    return true;
  }
  if (!sender.queue.post(operation)) return false;
  matching_.add(connection);
  look_ = true;
  house_busy_ = true;
  return true;
}

bool Messenger::receive(ConnectionId connection, const ReceiveOperation& operation, Instant now) {
  Receiver& receiver = *receivers_[connection];
  // A peer that has closed may have sent ahead before.
  const bool failed = receiver.failure != MessageFailure::kNone;
  const bool closed = receiver.failure == MessageFailure::kPeerClosed;
  if (failed && !(closed && receiver.queue.holds_messages())) {
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
    if (!failed && receiver.failure != MessageFailure::kNone) return true;  // they were nonsense
    bytes -= std::min(bytes, progress.finished);
  }
  if (failed) {  // no more will come
    receiver.queue.fail(receiver.failure);
    if (receiver.flow->obeys) allocator_->on_finished(now, receiver.flow->id, bytes);
    return true;
  }
  telling_.add(connection);
  house_busy_ = true;
  return true;
}

void Messenger::forget_memory(uint32_t key) {
  for (auto& sender : senders_) {
    if (sender != nullptr) sender->queue.forget_memory(key);
  }
  for (auto& receiver : receivers_) {
    if (receiver != nullptr && receiver->queue.uses(key)) {
      fail_connection(*receiver, MessageFailure::kMemoryGone);
    }
  }
}

void Messenger::hint(const TrafficHint& hint, Instant now) {
  hint_ = hint;
  if (hint_.peers > nic_.caps().flows) hint_.peers = 0;
  allocator_->on_hint(now, hint_);
}

}  // namespace pacecar

#include "bench/perf/streams.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/cli/clock.h"
#include "bench/cli/json_fields.h"
#include "transport/base/check.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

// The first matching NIC; the transport takes another if the peer has no NIC of its network.
constexpr size_t kNic = 0;

struct Connections {
  std::vector<std::unique_ptr<SendConnection>> senders;
  std::vector<std::unique_ptr<ReceiveConnection>> receivers;
};

// Makes `count` connections in each direction of the plan. The other end makes them with
// the directions reversed.
Result<Connections> connect_all(Context& context, ControlChannel& channel, const StreamPlan& plan,
                                size_t count) {
  std::unique_ptr<Listener> listener;
  if (plan.receive) {
    ASSIGN_OR_RETURN(listener, context.listen(kNic));
  }
  const std::string own = listener != nullptr ? cli::to_hex(listener->handle().bytes) : "";
  ASSIGN_OR_RETURN(const auto message, channel.ask({{"type", "handle"}, {"handle", own}}, "handle",
                                                   plan.connect_limit));
  std::vector<std::unique_ptr<Connecting>> pending;
  if (plan.send) {
    Handle remote;
    RETURN_IF_ERROR(cli::bytes_field(message, "handle", remote.bytes));
    for (size_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(pending.emplace_back(), context.connect(kNic, remote));
    }
  }
  Connections made;
  const size_t outgoing = pending.size();
  const size_t incoming = plan.receive ? count : 0;
  const Instant deadline = cli::steady_now() + plan.connect_limit;
  while (!pending.empty() || made.receivers.size() < incoming) {
    if (!pending.empty()) {
      ASSIGN_OR_RETURN(auto sender, pending.back()->poll());
      if (sender) {
        made.senders.push_back(std::move(sender));
        pending.pop_back();
      }
    }
    if (made.receivers.size() < incoming) {
      ASSIGN_OR_RETURN(auto receiver, listener->accept());
      if (receiver) made.receivers.push_back(std::move(receiver));
    }
    RETURN_IF_ERROR(channel.check_peer());
    if (cli::steady_now() > deadline) {
      return fail(ErrorCode::kPeer,
                  "only {} of {} connections came about within {:.0f} s: check that the two NICs "
                  "reach each other and that no firewall drops their packets",
                  made.senders.size() + made.receivers.size(), outgoing + incoming,
                  plan.connect_limit.seconds());
    }
    std::this_thread::yield();
  }
  return made;
}

uint32_t divide_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

template <typename Stream>
uint64_t finished_of(const std::vector<Stream>& streams) {
  uint64_t total = 0;
  for (const Stream& stream : streams) total += stream.finished();
  return total;
}

}  // namespace

uint32_t group_size(uint32_t rx_depth) { return divide_up(rx_depth, kMaxRequests); }

uint32_t receive_slots(uint32_t rx_depth) {
  const uint32_t group = group_size(rx_depth);
  return divide_up(rx_depth, group) * group;
}

SendStream::SendStream(std::unique_ptr<SendConnection> connection, MessageBuffer buffer,
                       const TestParameters& parameters)
    : Stream(std::move(buffer), parameters),
      connection_(std::move(connection)),
      requests_(parameters.tx_depth),
      post_list_(std::min(parameters.post_list, parameters.tx_depth)) {}

uint64_t SendStream::stop() {
  limit_ = std::min(limit_, whole_groups());
  return limit_;
}

Result<bool> SendStream::start_one() {
  const size_t index = started_ % requests_.size();
  const auto message = buffer_.slot(index);
  if (validate_) {
    RETURN_IF_ERROR(buffer_.fill(index, started_));
  }
  ASSIGN_OR_RETURN(const auto request,
                   connection_->isend(message.data(), message.size(),
                                      static_cast<int>(started_ % group_), buffer_.memory()));
  if (request == nullptr) return false;
  requests_[index] = request;
  ++started_;
  return true;
}

Result<uint64_t> SendStream::poll() {
  uint64_t room = std::min(limit_ - started_, requests_.size() - (started_ - finished_));
  if (room < std::min(post_list_, limit_ - started_)) room = 0;
  for (; room > 0; --room) {
    ASSIGN_OR_RETURN(const auto started, start_one());
    if (!started) break;
  }
  const uint64_t before = finished_;
  while (finished_ < started_) {
    ASSIGN_OR_RETURN(const auto result, connection_->test(requests_[finished_ % requests_.size()]));
    if (!result.done) break;
    ++finished_;
  }
  return finished_ - before;
}

ReceiveStream::ReceiveStream(std::unique_ptr<ReceiveConnection> connection, MessageBuffer buffer,
                             const TestParameters& parameters, bool echo)
    : Stream(std::move(buffer), parameters),
      connection_(std::move(connection)),
      slots_(receive_slots(parameters.rx_depth)),
      echo_(echo),
      posted_requests_(slots_ / group_) {}

Result<bool> ReceiveStream::post_group() {
  const auto messages = static_cast<uint32_t>(std::min<uint64_t>(group_, limit_ - posted_));
  std::array<ReceiveBuffer, kMaxReceiveBuffers> buffers;
  PACECAR_CHECK(messages <= buffers.size());
  for (uint32_t i = 0; i < messages; ++i) {
    const auto target = slot(posted_ + i);
    // Only the last group before the limit may be shorter, so the tags of each request begin at 0.
    buffers[i] = {target.data(), target.size(), static_cast<int>(i), buffer_.memory()};
  }
  ASSIGN_OR_RETURN(const auto request, connection_->irecv({buffers.data(), messages}));
  if (request == nullptr) return false;
  posted_requests_[requests_started_ % posted_requests_.size()] = {request, messages};
  ++requests_started_;
  posted_ += messages;
  return true;
}

Result<void> ReceiveStream::check(const TestResult& result, uint32_t messages) {
  for (uint32_t i = 0; i < messages; ++i) {
    const uint64_t number = finished_ + i;
    const auto message = slot(number);
    if (static_cast<uint32_t>(result.count) != messages || result.sizes[i] != message.size()) {
      return fail(ErrorCode::kPeer,
                  "message {} from {} has another size than the {} bytes of the test: run the same "
                  "version of pacecar at both ends",
                  number, connection_->peer(), message.size());
    }
    if (!validate_) continue;
    ASSIGN_OR_RETURN(const auto bad, buffer_.find_mismatch(number % slots_, number));
    if (bad) {
      return fail(ErrorCode::kPeer,
                  "data validation failed: byte {} of message {} from {} is not what was sent, so "
                  "do not trust this path with data",
                  *bad, number, connection_->peer());
    }
  }
  return {};
}

Result<uint64_t> ReceiveStream::poll() {
  while (posted_ < limit_ && requests_started_ - requests_finished_ < posted_requests_.size()) {
    ASSIGN_OR_RETURN(const auto posted, post_group());
    if (!posted) break;
  }
  const uint64_t before = finished_;
  while (requests_finished_ < requests_started_) {
    const Posted& oldest = posted_requests_[requests_finished_ % posted_requests_.size()];
    ASSIGN_OR_RETURN(const auto result, connection_->test(oldest.request));
    if (!result.done) break;
    RETURN_IF_ERROR(check(result, oldest.messages));
    finished_ += oldest.messages;
    ++requests_finished_;
    if (echo_) break;
  }
  return finished_ - before;
}

Result<uint64_t> Streams::poll() {
  uint64_t moved = 0;
  for (auto& sender : senders) {  // first, so that an echo leaves before the receivers are polled
    ASSIGN_OR_RETURN(const auto finished, sender.poll());
    moved += finished;
  }
  for (auto& receiver : receivers) {
    ASSIGN_OR_RETURN(const auto finished, receiver.poll());
    moved += finished;
  }
  return moved;
}

void Streams::set_limit(uint64_t limit) {
  for (auto& sender : senders) sender.set_limit(limit);
  for (auto& receiver : receivers) receiver.set_limit(limit);
}

bool Streams::at_limit() const {
  return std::ranges::all_of(senders, &SendStream::at_limit) &&
         std::ranges::all_of(receivers, &ReceiveStream::at_limit);
}

uint64_t Streams::stop() {
  uint64_t total = 0;
  for (auto& sender : senders) total += sender.stop();
  return total;
}

bool Streams::may_stop() const { return std::ranges::any_of(senders, &SendStream::may_stop); }

uint64_t Streams::sent() const { return finished_of(senders); }

uint64_t Streams::received() const { return finished_of(receivers); }

Result<Streams> make_streams(Context& context, ControlChannel& channel, const StreamPlan& plan,
                             const TestParameters& parameters) {
  auto made = connect_all(context, channel, plan, parameters.connections);
  if (!made) return tl::unexpected(channel.explain(made.error()));
  Streams streams;
  streams.nic =
      made->senders.empty() ? made->receivers.front()->nic() : made->senders.front()->nic();
  const auto buffer = [&](size_t nic, uint32_t slots) {
    return MessageBuffer::create(context, nic, plan.size, slots, plan.place);
  };
  for (auto& connection : made->senders) {
    ASSIGN_OR_RETURN(auto messages, buffer(connection->nic(), parameters.tx_depth));
    streams.senders.emplace_back(std::move(connection), std::move(messages), parameters);
  }
  for (auto& connection : made->receivers) {
    ASSIGN_OR_RETURN(auto messages, buffer(connection->nic(), receive_slots(parameters.rx_depth)));
    streams.receivers.emplace_back(std::move(connection), std::move(messages), parameters,
                                   plan.echo);
  }
  RETURN_IF_ERROR(channel.ask({{"type", "connected"}}, "connected", plan.connect_limit * 2));
  return streams;
}

}  // namespace pacecar::perf

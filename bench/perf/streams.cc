#include "bench/perf/streams.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "bench/perf/clock.h"
#include "bench/perf/json_fields.h"
#include "transport/base/check.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

// Of the NICs that match, the first; another serves where the peer has none of its network.
constexpr size_t kNic = 0;

template <typename T>
using Pointers = std::vector<std::unique_ptr<T>>;

// Sends the listener's handle, if there is one. Returns the peer's, if it is wanted.
Result<std::optional<Handle>> exchange_handles(ControlChannel& channel, const Listener* listener,
                                               bool wanted, Duration limit) {
  const std::string own = listener != nullptr ? to_hex(listener->handle().bytes) : "";
  ASSIGN_OR_RETURN(const auto message,
                   channel.ask({{"type", "handle"}, {"handle", own}}, "handle", limit));
  if (!wanted) return std::nullopt;
  Handle handle;
  RETURN_IF_ERROR(bytes_field(message, "handle", handle.bytes));
  return handle;
}

// Makes `count` connections in each direction that is wanted: to `remote`, and from `listener`.
Result<void> connect_all(Context& context, ControlChannel& channel, Duration limit, size_t count,
                         Listener* listener, const std::optional<Handle>& remote,
                         Pointers<SendConnection>& senders,
                         Pointers<ReceiveConnection>& receivers) {
  Pointers<Connecting> pending;
  for (size_t i = 0; remote && i < count; ++i) {
    ASSIGN_OR_RETURN(auto connecting, context.connect(kNic, *remote));
    pending.push_back(std::move(connecting));
  }
  const size_t expected = listener != nullptr ? count : 0;
  const Instant deadline = steady_now() + limit;
  while (!pending.empty() || receivers.size() < expected) {
    if (!pending.empty()) {
      ASSIGN_OR_RETURN(auto made, pending.back()->poll());
      if (made) {
        senders.push_back(std::move(made));
        pending.pop_back();
      }
    }
    if (receivers.size() < expected) {
      ASSIGN_OR_RETURN(auto accepted, listener->accept());
      if (accepted) receivers.push_back(std::move(accepted));
    }
    RETURN_IF_ERROR(channel.still_there());
    if (steady_now() > deadline) {
      return fail(
          ErrorCode::kPeer,
          fmt::format("only {} of {} connections came about within {:.0f} s: check that the "
                      "two NICs reach each other and that no firewall drops their packets",
                      senders.size() + receivers.size(), (remote ? count : 0) + expected,
                      limit.seconds()));
    }
    std::this_thread::yield();
  }
  return {};
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
    : buffer_(std::move(buffer)),
      connection_(std::move(connection)),
      requests_(parameters.tx_depth),
      group_(group_size(parameters.rx_depth)),
      validate_(parameters.validate),
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
    : buffer_(std::move(buffer)),
      connection_(std::move(connection)),
      group_(group_size(parameters.rx_depth)),
      slots_(receive_slots(parameters.rx_depth)),
      validate_(parameters.validate),
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
                  fmt::format("message {} from {} has another size than the {} bytes of the test: "
                              "run the same version of pacecar at both ends",
                              number, connection_->peer(), message.size()));
    }
    if (!validate_) continue;
    ASSIGN_OR_RETURN(const auto bad, buffer_.find_mismatch(number % slots_, number));
    if (bad) {
      return fail(ErrorCode::kPeer,
                  fmt::format("data validation failed: byte {} of message {} from {} is not what "
                              "was sent, so do not trust this path with data",
                              *bad, number, connection_->peer()));
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
  const Duration limit = plan.connect_limit;
  std::unique_ptr<Listener> listener;
  if (plan.receive) {
    ASSIGN_OR_RETURN(listener, context.listen(kNic));
  }
  ASSIGN_OR_RETURN(const auto remote, exchange_handles(channel, listener.get(), plan.send, limit));
  Pointers<SendConnection> senders;
  Pointers<ReceiveConnection> receivers;
  const auto connected = connect_all(context, channel, limit, parameters.connections,
                                     listener.get(), remote, senders, receivers);
  if (!connected) return tl::unexpected(channel.explain(connected.error()));

  Streams streams;
  streams.nic = senders.empty() ? receivers.front()->nic() : senders.front()->nic();
  for (auto& connection : senders) {
    ASSIGN_OR_RETURN(auto buffer, MessageBuffer::create(context, connection->nic(), plan.size,
                                                        parameters.tx_depth, plan.place));
    streams.senders.emplace_back(std::move(connection), std::move(buffer), parameters);
  }
  for (auto& connection : receivers) {
    ASSIGN_OR_RETURN(auto buffer,
                     MessageBuffer::create(context, connection->nic(), plan.size,
                                           receive_slots(parameters.rx_depth), plan.place));
    streams.receivers.emplace_back(std::move(connection), std::move(buffer), parameters, plan.echo);
  }
  RETURN_IF_ERROR(channel.ask({{"type", "connected"}}, "connected", limit * 2));
  return streams;
}

}  // namespace pacecar::perf

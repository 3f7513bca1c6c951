#include "bench/perf/streams.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "bench/perf/clock.h"
#include "bench/perf/json_fields.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

using Json = nlohmann::json;

constexpr Duration kConnectLimit = Duration::from_s(5);
// Of the NICs that match, the first; another serves where the peer has none of its network.
constexpr size_t kNic = 0;

template <typename T>
using Pointers = std::vector<std::unique_ptr<T>>;

// Sends the listener's handle, if there is one. Returns the peer's, if it is wanted.
Result<std::optional<Handle>> exchange_handles(ControlChannel& channel, const Listener* listener,
                                               bool wanted) {
  RETURN_IF_ERROR(
      channel.send({{"type", "handle"},
                    {"handle", listener != nullptr ? to_hex(listener->handle().bytes) : ""}}));
  ASSIGN_OR_RETURN(const auto message, channel.expect("handle", kConnectLimit));
  if (!wanted) return std::nullopt;
  Handle handle;
  RETURN_IF_ERROR(bytes_field(message, "handle", handle.bytes));
  return handle;
}

// Makes `count` connections in each direction that is wanted: to `remote`, and from `listener`.
Result<void> connect_all(Context& context, ControlChannel& channel, size_t count,
                         Listener* listener, const std::optional<Handle>& remote,
                         Pointers<SendConnection>& senders,
                         Pointers<ReceiveConnection>& receivers) {
  Pointers<Connecting> pending;
  for (size_t i = 0; remote && i < count; ++i) {
    ASSIGN_OR_RETURN(auto connecting, context.connect(kNic, *remote));
    pending.push_back(std::move(connecting));
  }
  const size_t expected = listener != nullptr ? count : 0;
  const Instant deadline = steady_now() + kConnectLimit;
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
                      kConnectLimit.seconds()));
    }
    std::this_thread::yield();
  }
  return {};
}

}  // namespace

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

uint64_t Streams::sent() const {
  uint64_t total = 0;
  for (const auto& sender : senders) total += sender.finished();
  return total;
}

uint64_t Streams::received() const {
  uint64_t total = 0;
  for (const auto& receiver : receivers) total += receiver.finished();
  return total;
}

Result<Streams> make_streams(Context& context, ControlChannel& channel, const StreamPlan& plan,
                             const TestParameters& parameters) {
  std::unique_ptr<Listener> listener;
  if (plan.receive) {
    ASSIGN_OR_RETURN(listener, context.listen(kNic));
  }
  ASSIGN_OR_RETURN(const auto remote, exchange_handles(channel, listener.get(), plan.send));
  Pointers<SendConnection> senders;
  Pointers<ReceiveConnection> receivers;
  const auto connected = connect_all(context, channel, parameters.connections, listener.get(),
                                     remote, senders, receivers);
  if (!connected) return tl::unexpected(channel.explain(connected.error()));

  Streams streams;
  streams.nic = senders.empty() ? receivers.front()->nic() : senders.front()->nic();
  for (auto& connection : senders) {
    ASSIGN_OR_RETURN(auto buffer, MessageBuffer::create(context, connection->nic(), plan.size,
                                                        parameters.tx_depth, plan.place));
    streams.senders.emplace_back(std::move(connection), std::move(buffer), parameters.tx_depth,
                                 parameters.rx_depth, parameters.validate);
    streams.senders.back().set_post_list(parameters.post_list);
  }
  for (auto& connection : receivers) {
    ASSIGN_OR_RETURN(auto buffer,
                     MessageBuffer::create(context, connection->nic(), plan.size,
                                           receive_slots(parameters.rx_depth), plan.place));
    streams.receivers.emplace_back(std::move(connection), std::move(buffer), parameters.rx_depth,
                                   parameters.validate, plan.echo);
  }
  RETURN_IF_ERROR(channel.send({{"type", "connected"}}));
  RETURN_IF_ERROR(channel.expect("connected", kConnectLimit * 2));
  return streams;
}

}  // namespace pacecar::perf

#include "transport/api/connections.h"

#include <fmt/format.h>

#include "transport/api/reports.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

template <typename Own>
Result<TestResult> test_request(const Attachment& at, RequestPool<Own>& pool, Request* request) {
  Result<TestResult> result;  // filled in place, to avoid copies
  MessageRequest::State state = request->state();
  if (state == MessageRequest::State::kPending) {
    at.nic.engine->progress();
    state = request->state();
  }
  if (state == MessageRequest::State::kPending) return result;
  if (state == MessageRequest::State::kFree) {
    result = tested_again();
    return result;
  }
  fill_result(*request, *result);
  const MessageFailure failure = request->failure;
  pool.give_back(static_cast<Own*>(request));
  if (state == MessageRequest::State::kDone) return result;
  result = tl::unexpected(
      describe(failure, at.peer, at.nic.timeout, at.call(&Lanes::fault), at.own_trouble()));
  return result;
}

FlowView view_of(const Explanation& flow, Duration rtt) {
  return {.limited_by = to_string(flow.limited_by),
          .rate_bps = flow.rate.real_bps(),
          .grant_bps = flow.grant.real_bps(),
          .grant_age_ns = static_cast<uint64_t>(flow.grant_age.ns()),
          .phase_ns = static_cast<uint64_t>(flow.phase.ns()),
          .epoch = flow.epoch,
          .share_bps = flow.share.real_bps(),
          .core_bps = flow.core.real_bps(),
          .budget_bps = flow.rate_max.real_bps(),
          .rtt_us = rtt.us()};
}

class EngineSendConnection final : public SendConnection {
 public:
  EngineSendConnection(Attachment attachment, const ConnectOptions& options)
      : at_(std::move(attachment)),
        puts_(options.puts),
        copied_(options.copied),
        pool_(kMaxSends) {}

  ~EngineSendConnection() override { close_send(*at_.nic.engine, at_.connection); }

  Result<Request*> isend(const void* data, size_t size, int tag, const Memory* memory) override {
    if (!usable(at_, data, size, memory)) return not_usable(at_, memory);
    MessageSend* const request = pool_.take();
    if (request == nullptr) return nullptr;  // full, again later
    request->operation = {.data = static_cast<const uint8_t*>(data),
                          .size = size,
                          .tag = tag,
                          .key = key_of(memory),
                          .host = memory != nullptr && memory->host(),
                          .awaited = !puts_ && !copied_};
    at_.nic.engine->sends().push(at_.connection, *request);
    puts_in_a_row_ = 0;
    // The first send leaves at once. Later ones leave together, with the next poll, which the
    // caller needs for the first one anyway. On connections for puts the application decides.
    !puts_&& pool_.taken() == 1 ? at_.nic.engine->send_now() : at_.nic.engine->wake_keeper();
    return request;
  }

  Result<Request*> iput(const void* data, size_t size, const Memory* memory, const Window& window,
                        uint64_t offset) override {
    if (!usable(at_, data, size, memory)) return not_usable(at_, memory);
    RETURN_IF_ERROR(check_put(size, window, offset));
    MessageSend* const request = pool_.take();
    if (request == nullptr) return nullptr;
    request->operation = {.data = static_cast<const uint8_t*>(data),
                          .size = size,
                          .key = key_of(memory),
                          .host = memory != nullptr && memory->host(),
                          .put = true,
                          .remote = {window.address + offset, window.key}};
    at_.nic.engine->sends().push(at_.connection, *request);
    ++puts_in_a_row_;
    at_.nic.engine->wake_keeper();
    return request;
  }

  Result<TestResult> test(Request* request) override {
    stalls_.check(at_.nic);
    return test_request(at_, pool_, request);
  }
  std::string peer() const override { return at_.peer; }
  size_t nic() const override { return at_.device; }

  FlowView flow() const override { return flow_of(at_); }
  void send_now() override { at_.nic.engine->send_now(); }

 private:
  uint32_t key_of(const Memory* memory) const {
    return memory != nullptr ? memory->region(at_.nic.member).key : 0;
  }

  Result<void> check_put(size_t size, const Window& window, uint64_t offset) const {
    if (!puts_) {
      return fail(ErrorCode::kInvalidArgument,
                  "the connection takes no puts: set ConnectOptions::puts when connecting");
    }
    if (size > window.length || offset > window.length - size) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("a put of {} bytes at {} goes beyond the peer's window of {} bytes",
                              size, offset, window.length));
    }
    if (puts_in_a_row_ == kMaxPutsInARow) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("there were {} puts in a row: send a message, also an empty one",
                              kMaxPutsInARow));
    }
    return {};
  }

  const Attachment at_;
  const bool puts_;
  const bool copied_;
  RequestPool<MessageSend> pool_;
  StallWatch stalls_;
  int puts_in_a_row_ = 0;
};

class EngineReceiveConnection final : public ReceiveConnection {
 public:
  explicit EngineReceiveConnection(Attachment attachment)
      : at_(std::move(attachment)), pool_(kMaxReceives) {}

  ~EngineReceiveConnection() override { close_receive(*at_.nic.engine, at_.connection); }

  Result<Request*> irecv(std::span<const ReceiveBuffer> buffers) override {
    RETURN_IF_ERROR(check_buffers(at_, buffers));
    MessageReceive* const request = pool_.take();
    if (request == nullptr) return nullptr;  // full, again later
    request->clear();
    for (const ReceiveBuffer& buffer : buffers) {
      auto* const data = static_cast<uint8_t*>(buffer.data);
      request->add(data, buffer.size, buffer.tag,
                   buffer.size > 0 ? remote_address_of(buffer.memory->region(at_.nic.member), data)
                                   : RemoteAddress{});
    }
    at_.nic.engine->receives().push(at_.connection, *request);
    // The next poll advertises it, perhaps together with data to that peer.
    at_.nic.engine->wake_keeper();
    return request;
  }

  Result<TestResult> test(Request* request) override {
    stalls_.check(at_.nic);
    return test_request(at_, pool_, request);
  }
  std::string peer() const override { return at_.peer; }
  size_t nic() const override { return at_.device; }
  void set_preposted() override { at_.call(&Messenger::set_preposted); }

 private:
  const Attachment at_;
  RequestPool<MessageReceive> pool_;
  StallWatch stalls_;
};

}  // namespace

void close_send(Engine& engine, ConnectionId connection) {
  if (engine.inherited()) return;
  engine.exclusively(
      [&](Messenger& messenger, Nic&, Instant now) { messenger.close_send(connection, now); });
  engine.submitted();
}

void close_receive(Engine& engine, ConnectionId connection,
                   std::optional<uint64_t> completed_slots) {
  if (engine.inherited()) return;
  engine.exclusively([&](Messenger& messenger) {
    completed_slots ? messenger.close_receive(connection, *completed_slots)
                    : messenger.close_receive(connection);
  });
  engine.submitted();
}

void withdraw(Engine& engine, ConnectionId connection) {
  engine.exclusively([&](Messenger& messenger, Nic&, Instant now) {
    messenger.withdraw_receive(connection, now);
  });
}

FlowView flow_of(const Attachment& at) {
  return at.nic.engine->exclusively([&at](const Messenger& messenger) {
    return view_of(messenger.explain(at.connection), messenger.rtt(at.connection));
  });
}

tl::unexpected<Error> not_usable(const Attachment& at, const Memory* memory) {
  if (memory != nullptr && memory->nic() != at.device) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a message buffer is registered with NIC number {}, and its connection "
                            "uses NIC number {}: register it with the connection's nic()",
                            memory->nic(), at.device));
  }
  return fail(ErrorCode::kInvalidArgument,
              "a message buffer is outside its registered memory: register all of it");
}

Result<void> check_buffers(const Attachment& at, std::span<const ReceiveBuffer> buffers) {
  if (buffers.empty() || buffers.size() > kMaxGroup) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a receive has {} buffers: post 1 to {}", buffers.size(), kMaxGroup));
  }
  for (const ReceiveBuffer& buffer : buffers) {
    if (!usable(at, buffer.data, buffer.size, buffer.memory)) return not_usable(at, buffer.memory);
  }
  return {};
}

tl::unexpected<Error> tested_again() {
  return fail(ErrorCode::kInternal, "a request was tested again after it was done");
}

static_assert(kMaxReceiveBuffers == kMaxGroup && kMaxRequests == kMaxReceives &&
              kMaxRequests * kMaxReceiveBuffers == kMaxSends);

static_assert(kMaxPutsInARow == kMaxPuts);

bool settled(const Request& request) { return request.state() != MessageRequest::State::kPending; }

Result<Window> window_of(const Memory& memory) {
  if (memory.staged() != nullptr || memory.regions().size() != 1) {
    return fail(ErrorCode::kUnavailable,
                "peers cannot put into this memory: it is GPU memory that the NIC does not reach, "
                "or it is registered with several NICs; take memory of the host, and one NIC");
  }
  const MemoryRegion& region = memory.region();
  return Window{.address = region.remote_address, .length = region.length, .key = region.key};
}

std::unique_ptr<SendConnection> make_send_connection(Attachment attachment,
                                                     const ConnectOptions& options) {
  return std::make_unique<EngineSendConnection>(std::move(attachment), options);
}

std::unique_ptr<ReceiveConnection> make_receive_connection(Attachment attachment) {
  return std::make_unique<EngineReceiveConnection>(std::move(attachment));
}

}  // namespace pacecar

#include "transport/api/gpu/staged_connections.h"

#include <fmt/format.h>

#include <array>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "gdr/ring_space.h"
#include "gdr/staging.h"
#include "transport/api/connections.h"
#include "transport/api/memory.h"
#include "transport/api/plugin_calls.h"
#include "transport/base/fixed_queue.h"
#include "transport/base/return_if_error.h"
#include "transport/message/message_request.h"

namespace pacecar {
namespace {

constexpr uint32_t kMaxSends = kMaxRequests * kMaxReceiveBuffers;

// Part of a staged message: a buffer in GPU memory, and its place in the ring.
struct Part {
  std::shared_ptr<StagedRange> range;  // null: the NIC reaches the buffer
  void* device = nullptr;
  uint8_t* pinned = nullptr;
};

// A message, or a put.
struct Sending {
  const void* data = nullptr;
  size_t size = 0;
  int tag = 0;
  const Memory* memory = nullptr;
  bool is_put = false;
  Window window;
  uint64_t offset = 0;
};

struct StagedRequest : MessageRequest {
  bool taken = false;
  Request* inner = nullptr;  // once it is posted to the inner connection
  uint8_t* piece = nullptr;  // of the ring
  CopyEvent event;
  bool copying = false;  // `event` is pending
  std::optional<Error> error;
  Sending sending;                             // while it waits for its turn
  std::array<Part, kMaxReceiveBuffers> parts;  // A receive's buffers.
  TestResult result;
};

// Common to both ends: the ring, and a fixed number of requests.
class Stage {
 public:
  Stage(const Staging& staging, size_t requests)
      : staging_(staging),
        requests_(std::make_unique<StagedRequest[]>(requests)),
        count_(requests) {
    for (size_t i = requests; i-- > 0;) free_.push_back(&requests_[i]);
  }
  // The inner connection must be closed.
  ~Stage() {
    for (const auto& engine : engines_) engine->wait();
    if (memory_ == nullptr) return;
    (void)staging_.context->deregister_memory(staging_.nic, memory_);  // the NIC exists: no error
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  Result<void> prepare() {
    const auto device = staging_.gpus->current_device();
    if (!staging_.at_once || !device) return {};
    ASSIGN_OR_RETURN(const auto engine, staging_.gpus->engine(*device));
    return make_ring(engine);
  }

  // nullptr: the request belongs to the inner connection.
  StagedRequest* find(Request* request) const {
    const std::less<> before;
    if (before(request, &requests_[0]) || !before(request, &requests_[0] + count_)) return nullptr;
    return static_cast<StagedRequest*>(request);
  }

  // A request with `bytes` of the ring; nullptr: full, again later.
  Result<StagedRequest*> take(const std::shared_ptr<const CopyEngine>& engine, size_t bytes) {
    if (bytes > kPinnedRingBytes) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("a message of {} bytes of GPU memory cannot be staged: pass at most "
                              "{} bytes at once",
                              bytes, kPinnedRingBytes));
    }
    RETURN_IF_ERROR(make_ring(engine));
    engines_.insert(engine);
    if (free_.empty()) return nullptr;
    const auto offset = space_.take(bytes);
    if (!offset) return nullptr;
    StagedRequest* const request = take_plain();
    request->piece = pinned_->bytes().data() + *offset;
    return request;
  }
  // A request without a piece; one must be free.
  StagedRequest* take_plain() {
    StagedRequest* const request = free_.back();
    free_.pop_back();
    request->taken = true;
    return request;
  }
  void give_back(StagedRequest* request) {
    request->taken = false;
    if (request->piece != nullptr) {
      space_.give_back(static_cast<size_t>(request->piece - pinned_->bytes().data()));
    }
    request->inner = nullptr;
    request->piece = nullptr;
    request->copying = false;
    request->error.reset();
    for (Part& part : request->parts) part = {};
    free_.push_back(request);
  }

  size_t used() const { return count_ - free_.size(); }
  const Memory* memory() const { return memory_; }

  // After a failure the request gives its piece of the ring back, so the copies must have ended.
  static Result<void> follow(StagedRequest& request, CopyWay way, const StagedRange& range,
                             Result<void> copied) {
    if (copied) copied = request.event.record(range.engine(), way);
    request.copying = copied.has_value();
    if (!copied) range.engine()->wait();
    return copied;
  }

 private:
  Result<void> make_ring(const std::shared_ptr<const CopyEngine>& engine) {
    if (memory_ != nullptr) return {};
    ASSIGN_OR_RETURN(auto pinned, PinnedMemory::allocate(engine, kPinnedRingBytes));
    ASSIGN_OR_RETURN(memory_, staging_.context->register_memory(
                                  staging_.nic, pinned->bytes().data(), kPinnedRingBytes));
    pinned_ = std::move(pinned);
    return {};
  }

  const Staging staging_;
  const std::unique_ptr<StagedRequest[]> requests_;
  const size_t count_;
  std::vector<StagedRequest*> free_;
  std::set<std::shared_ptr<const CopyEngine>> engines_;  // that copy to or from the ring
  std::unique_ptr<PinnedMemory> pinned_;
  const Memory* memory_ = nullptr;  // of `pinned_`; null: the ring does not exist yet
  RingSpace space_{kPinnedRingBytes};
};

// The space that a piece takes in the ring.
constexpr size_t rounded(size_t bytes) {
  return (bytes + RingSpace::kAlignment - 1) / RingSpace::kAlignment * RingSpace::kAlignment;
}

tl::unexpected<Error> not_covered() {
  return fail(ErrorCode::kInvalidArgument,
              "a message buffer is outside its registered GPU memory: register all of it");
}

const std::shared_ptr<StagedRange>& staged_of(const Memory* memory, size_t size) {
  static const std::shared_ptr<StagedRange> kNone;
  return memory == nullptr || size == 0 ? kNone : memory->staged();
}

class StagedSendConnection final : public SendConnection, public CopyingConnection {
 public:
  StagedSendConnection(std::unique_ptr<SendConnection> inner, const Staging& staging)
      : stage_(staging, kMaxSends), waiting_(kMaxSends), inner_(std::move(inner)) {}

  Result<void> prepare() { return stage_.prepare(); }

  Result<Request*> isend(const void* data, size_t size, int tag, const Memory* memory) override {
    return send({.data = data, .size = size, .tag = tag, .memory = memory});
  }

  Result<Request*> iput(const void* data, size_t size, const Memory* memory, const Window& window,
                        uint64_t offset) override {
    return send({.data = data,
                 .size = size,
                 .memory = memory,
                 .is_put = true,
                 .window = window,
                 .offset = offset});
  }

  Result<TestResult> test(Request* tested) override {
    advance();
    StagedRequest* const request = stage_.find(tested);
    if (request == nullptr) {
      const bool known = tested->state() != MessageRequest::State::kFree;
      auto result = inner_->test(tested);
      if (known && (!result || result->done)) --passed_;
      return result;
    }
    if (!request->taken) return tested_again();
    if (!request->error && request->inner == nullptr) return TestResult();
    auto result = request->error ? Result<TestResult>(tl::unexpected(*request->error))
                                 : inner_->test(request->inner);
    if (!result || result->done) stage_.give_back(request);
    return result;
  }

  std::string peer() const override { return inner_->peer(); }
  size_t nic() const override { return inner_->nic(); }
  FlowView flow() const override { return inner_->flow(); }
  void send_now() override { inner_->send_now(); }

  // Posts, in order, the messages that are in host memory.
  void advance() override {
    for (; !waiting_.empty(); waiting_.pop_front()) {
      StagedRequest& oldest = *waiting_.front();
      const auto copied = oldest.copying ? oldest.event.done() : Result<bool>(true);
      if (copied && !*copied) return;
      const auto started =
          copied ? hand_on(oldest.sending) : Result<Request*>(tl::unexpected(copied.error()));
      if (started && *started == nullptr) return;
      if (started) {
        oldest.inner = *started;
      } else {
        oldest.error = started.error();
      }
    }
  }

 private:
  Result<Request*> send(Sending sending) {
    const std::shared_ptr<StagedRange>& range = staged_of(sending.memory, sending.size);
    if (sending.size == 0) sending.memory = nullptr;
    if (passed_ + stage_.used() == kMaxSends) return nullptr;
    if (range == nullptr && waiting_.empty()) {
      auto started = hand_on(sending);
      if (started && *started != nullptr) ++passed_;
      return started;
    }
    StagedRequest* request = nullptr;
    if (range == nullptr) {
      request = stage_.take_plain();
    } else {
      auto begun = begin_copy(range, sending);
      if (!begun || *begun == nullptr) return begun;
      request = *begun;
    }
    request->sending = sending;
    waiting_.push(request);
    advance();
    return request;
  }

  Result<Request*> hand_on(const Sending& sending) {
    return sending.is_put ? inner_->iput(sending.data, sending.size, sending.memory, sending.window,
                                         sending.offset)
                          : inner_->isend(sending.data, sending.size, sending.tag, sending.memory);
  }

  // Starts the copy of a message to send. nullptr: full, again later.
  Result<StagedRequest*> begin_copy(const std::shared_ptr<StagedRange>& range, Sending& sending) {
    if (!range->covers(sending.data, sending.size)) return not_covered();
    auto request = stage_.take(range->engine(), sending.size);
    if (!request || *request == nullptr) return request;
    uint8_t* const pinned = (*request)->piece;
    auto copied =
        range->copy(CopyWay::kToHost, const_cast<void*>(sending.data), pinned, sending.size);
    copied = Stage::follow(**request, CopyWay::kToHost, *range, std::move(copied));
    if (!copied) {
      stage_.give_back(*request);
      return tl::unexpected(copied.error());
    }
    sending.data = pinned;
    sending.memory = stage_.memory();
    return request;
  }

  Stage stage_;  // The inner connection is destroyed first: it uses the ring.
  FixedQueue<StagedRequest*> waiting_;  // not posted to the inner connection yet
  size_t passed_ = 0;                   // requests that are the inner connection's own
  const std::unique_ptr<SendConnection> inner_;
};

class StagedReceiveConnection final : public ReceiveConnection {
 public:
  StagedReceiveConnection(std::unique_ptr<ReceiveConnection> inner, const Staging& staging)
      : stage_(staging, kMaxRequests), arriving_(kMaxRequests), inner_(std::move(inner)) {}

  Result<void> prepare() { return stage_.prepare(); }

  Result<Request*> irecv(std::span<const ReceiveBuffer> buffers) override {
    if (buffers.size() > kMaxReceiveBuffers) return inner_->irecv(buffers);
    size_t bytes = 0;
    std::shared_ptr<const CopyEngine> engine;
    for (const ReceiveBuffer& buffer : buffers) {
      const std::shared_ptr<StagedRange>& range = staged_of(buffer.memory, buffer.size);
      if (range == nullptr) continue;
      if (!range->covers(buffer.data, buffer.size)) return not_covered();
      if (engine != nullptr && engine != range->engine()) return several_gpus();
      engine = range->engine();
      bytes += rounded(buffer.size);
    }
    if (engine == nullptr) return inner_->irecv(place(nullptr, buffers));
    auto taken = stage_.take(engine, bytes);
    if (!taken || *taken == nullptr) return taken;
    auto started = inner_->irecv(place(*taken, buffers));
    if (!started || *started == nullptr) {
      stage_.give_back(*taken);
      return started;
    }
    (*taken)->inner = *started;
    arriving_.push(*taken);
    return *taken;
  }

  Result<TestResult> test(Request* tested) override {
    StagedRequest* const request = stage_.find(tested);
    if (request == nullptr) return inner_->test(tested);
    if (!request->taken) return tested_again();
    advance();
    if (!request->error && request->inner != nullptr) return TestResult();
    if (!request->error && request->copying) {
      const auto done = request->event.done();
      if (done && !*done) return TestResult();
      if (!done) request->error = done.error();
    }
    Result<TestResult> result = request->result;
    if (request->error) result = tl::unexpected(*request->error);
    stage_.give_back(request);
    return result;
  }

  std::string peer() const override { return inner_->peer(); }
  size_t nic() const override { return inner_->nic(); }
  void set_preposted() override { inner_->set_preposted(); }

 private:
  static tl::unexpected<Error> several_gpus() {
    return fail(ErrorCode::kInvalidArgument,
                "the buffers of one receive lie on different GPUs: post one receive for each");
  }

  // The buffers for the inner connection: GPU buffers are replaced by pieces of the ring. A buffer
  // of 0 bytes needs no memory, and its registration may be one that the NIC does not know.
  std::span<const ReceiveBuffer> place(StagedRequest* request,
                                       std::span<const ReceiveBuffer> buffers) {
    uint8_t* next = request != nullptr ? request->piece : nullptr;  // null: no GPU buffers
    for (size_t i = 0; i < buffers.size(); ++i) {
      const ReceiveBuffer& buffer = buffers[i];
      placed_[i] = buffer;
      if (buffer.size == 0) placed_[i].memory = nullptr;
      const std::shared_ptr<StagedRange>& range = staged_of(buffer.memory, buffer.size);
      if (range == nullptr) continue;
      request->parts[i] = {range, buffer.data, next};
      placed_[i].data = next;
      placed_[i].memory = stage_.memory();
      next += rounded(buffer.size);
    }
    return std::span(placed_).first(buffers.size());
  }

  // Starts the copies of messages that have arrived; receives complete in the order of posting.
  void advance() {
    for (; !arriving_.empty(); arriving_.pop_front()) {
      StagedRequest& oldest = *arriving_.front();
      const auto arrived = inner_->test(oldest.inner);
      if (arrived && !arrived->done) return;
      oldest.inner = nullptr;
      if (!arrived) {
        oldest.error = arrived.error();
        continue;
      }
      oldest.result = *arrived;
      if (auto started = begin_copies(oldest); !started) oldest.error = started.error();
    }
  }

  static Result<void> begin_copies(StagedRequest& request) {
    const StagedRange* last = nullptr;
    Result<void> copied;
    for (size_t i = 0; i < request.parts.size() && copied; ++i) {
      const Part& part = request.parts[i];
      const size_t size = request.result.sizes[i];
      if (part.range == nullptr || size == 0) continue;
      last = part.range.get();
      copied = part.range->copy(CopyWay::kToDevice, part.device, part.pinned, size);
    }
    return last == nullptr ? copied
                           : Stage::follow(request, CopyWay::kToDevice, *last, std::move(copied));
  }

  Stage stage_;
  FixedQueue<StagedRequest*> arriving_;  // the inner connection has not completed them
  std::array<ReceiveBuffer, kMaxReceiveBuffers> placed_;
  const std::unique_ptr<ReceiveConnection> inner_;
};

template <typename Staged, typename Connection>
Result<std::unique_ptr<Connection>> stage_as(std::unique_ptr<Connection> inner,
                                             const Staging& staging) {
  auto connection = std::make_unique<Staged>(std::move(inner), staging);
  RETURN_IF_ERROR(connection->prepare());
  return connection;
}

}  // namespace

Result<std::unique_ptr<SendConnection>> stage(std::unique_ptr<SendConnection> inner,
                                              const Staging& staging) {
  return stage_as<StagedSendConnection>(std::move(inner), staging);
}

Result<std::unique_ptr<ReceiveConnection>> stage(std::unique_ptr<ReceiveConnection> inner,
                                                 const Staging& staging) {
  return stage_as<StagedReceiveConnection>(std::move(inner), staging);
}

}  // namespace pacecar

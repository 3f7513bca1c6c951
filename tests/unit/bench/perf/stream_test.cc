// The streams over a pipe in memory. Like a receiver, the pipe matches sends with posted buffers by
// tag. Requests complete in order.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "bench/perf/streams.h"
#include "tests/support/null_context.h"

namespace pacecar::perf::stream_test {
namespace {

using ::testing::HasSubstr;

struct PipeRequest {
  bool done = false;
  TestResult result;
  const uint8_t* data = nullptr;  // of a send
  size_t size = 0;
  int tag = 0;
  std::vector<ReceiveBuffer> buffers;  // of a receive

  // The streams see requests as opaque handles.
  Request* handle() { return reinterpret_cast<Request*>(this); }
};

struct Pipe {
  std::deque<std::unique_ptr<PipeRequest>> sends;
  std::deque<std::unique_ptr<PipeRequest>> receives;
  size_t most_receives = 0;
  bool corrupt = false;

  // Moves one message; false if no send is pending, or no buffer matches.
  bool move_one() {
    const auto send = std::find_if(sends.begin(), sends.end(), [](auto& s) { return !s->done; });
    if (send == sends.end()) return false;
    for (auto& receive : receives) {
      for (size_t i = 0; i < receive->buffers.size(); ++i) {
        auto& buffer = receive->buffers[i];
        if (buffer.data == nullptr || buffer.tag != (*send)->tag) continue;
        std::memcpy(buffer.data, (*send)->data, (*send)->size);
        if (corrupt) static_cast<uint8_t*>(buffer.data)[(*send)->size / 2] ^= 1;
        buffer.data = nullptr;
        receive->result.sizes[i] = (*send)->size;
        ++receive->result.count;
        receive->result.done =
            static_cast<size_t>(receive->result.count) == receive->buffers.size();
        (*send)->done = true;
        (*send)->result.done = true;
        return true;
      }
    }
    return false;
  }
};

TestResult take(std::deque<std::unique_ptr<PipeRequest>>& queue, const Request* request) {
  EXPECT_EQ(queue.front()->handle(), request);
  const TestResult result = queue.front()->result;
  if (result.done) queue.pop_front();
  return result;
}

class PipeSender : public SendConnection {
 public:
  explicit PipeSender(Pipe& pipe) : pipe_(pipe) {}
  Result<Request*> isend(const void* data, size_t size, int tag, const Memory*) override {
    if (pipe_.sends.size() == size_t{kMaxRequests} * kMaxReceiveBuffers) return nullptr;
    auto request = std::make_unique<PipeRequest>();
    request->data = static_cast<const uint8_t*>(data);
    request->size = size;
    request->tag = tag;
    pipe_.sends.push_back(std::move(request));
    return pipe_.sends.back()->handle();
  }
  Result<TestResult> test(Request* request) override { return take(pipe_.sends, request); }
  std::string peer() const override { return "receiver:1"; }
  size_t nic() const override { return 0; }
  FlowView flow() const override { return {}; }

 private:
  Pipe& pipe_;
};

class PipeReceiver : public ReceiveConnection {
 public:
  explicit PipeReceiver(Pipe& pipe) : pipe_(pipe) {}
  Result<Request*> irecv(std::span<const ReceiveBuffer> buffers) override {
    if (pipe_.receives.size() == kMaxRequests) return nullptr;
    auto request = std::make_unique<PipeRequest>();
    request->buffers.assign(buffers.begin(), buffers.end());
    pipe_.receives.push_back(std::move(request));
    pipe_.most_receives = std::max(pipe_.most_receives, pipe_.receives.size());
    return pipe_.receives.back()->handle();
  }
  Result<TestResult> test(Request* request) override { return take(pipe_.receives, request); }
  std::string peer() const override { return "sender:1"; }
  size_t nic() const override { return 0; }

 private:
  Pipe& pipe_;
};

class StreamTest : public ::testing::Test {
 protected:
  void make(uint64_t size, uint32_t tx_depth, uint32_t rx_depth, bool validate, bool echo = false) {
    const TestParameters parameters{
        .tx_depth = tx_depth, .rx_depth = rx_depth, .validate = validate};
    sender_.emplace(std::make_unique<PipeSender>(pipe_),
                    *MessageBuffer::create(context_, 0, size, tx_depth), parameters);
    receiver_.emplace(std::make_unique<PipeReceiver>(pipe_),
                      *MessageBuffer::create(context_, 0, size, receive_slots(rx_depth)),
                      parameters, echo);
  }

  // Polls both until nothing moves; false on an error.
  bool run() {
    for (bool moved = true; moved;) {
      const auto received = receiver_->poll();
      const auto sent = sender_->poll();
      if (!received || !sent) {
        error_ = received ? sent.error() : received.error();
        return false;
      }
      moved = *received + *sent > 0;
      while (pipe_.move_one()) moved = true;
    }
    return true;
  }

  void set_limits(uint64_t limit) {
    sender_->set_limit(limit);
    receiver_->set_limit(limit);
  }

  test::NullContext context_;
  Pipe pipe_;
  std::optional<SendStream> sender_;
  std::optional<ReceiveStream> receiver_;
  Error error_{ErrorCode::kInternal, ""};
};

TEST_F(StreamTest, NoMessageIsSentBeforeALimitIsSet) {
  make(64, 4, 8, true);
  EXPECT_TRUE(run());
  EXPECT_EQ(sender_->finished(), 0U);
}

TEST_F(StreamTest, EchoReportsEachMessageBeforeItPollsForTheNext) {
  for (const bool echo : {false, true}) {
    make(24, 4, 8, true, echo);
    set_limits(4);
    ASSERT_TRUE(receiver_->poll());
    ASSERT_TRUE(sender_->poll());
    while (pipe_.move_one()) {
    }
    EXPECT_EQ(receiver_->poll().value(), echo ? 1U : 4U);
    ASSERT_TRUE(run());
    EXPECT_EQ(receiver_->finished(), 4U);
    pipe_ = Pipe();
  }
}

TEST_F(StreamTest, AnyDepthCarriesAnyNumberOfMessages) {
  for (const uint32_t depth : {1U, 2U, 31U, 32U, 33U, 64U, 100U, 255U, 256U}) {
    make(24, depth, std::min(2 * depth, 256U), true);
    // The first phase ends with a whole request, the second within one.
    const uint64_t first = 3 * group_size(std::min(2 * depth, 256U));
    set_limits(first);
    ASSERT_TRUE(run()) << error_.message;
    ASSERT_TRUE(sender_->at_limit() && receiver_->at_limit()) << depth;
    set_limits(first + 1001);
    ASSERT_TRUE(run()) << error_.message;
    ASSERT_EQ(receiver_->finished(), first + 1001) << depth;
    ASSERT_TRUE(sender_->at_limit());
    ASSERT_LE(pipe_.most_receives, size_t{kMaxRequests});
  }
}

TEST_F(StreamTest, StopLeavesNoReceivePartlyFilled) {
  make(16, 100, 200, true);  // groups of 7
  ASSERT_EQ(group_size(200), 7U);
  set_limits(kNoLimit);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(receiver_->poll());
    ASSERT_TRUE(sender_->poll());
    for (int moved = 0; moved < 10; ++moved) pipe_.move_one();
  }
  const uint64_t last = sender_->stop();
  EXPECT_LT(last, kNoLimit);
  EXPECT_EQ(last % 7, 0U);
  EXPECT_EQ(sender_->stop(), last);
  ASSERT_TRUE(run()) << error_.message;
  EXPECT_EQ(sender_->finished(), last);
  EXPECT_EQ(receiver_->finished(), last);
}

TEST_F(StreamTest, CorruptionIsFoundWithItsOffset) {
  make(64, 4, 8, true);
  pipe_.corrupt = true;
  set_limits(1);
  ASSERT_FALSE(run());
  EXPECT_EQ(error_.code, ErrorCode::kPeer);
  EXPECT_THAT(error_.message, HasSubstr("byte 32 of message 0 from sender:1"));
}

TEST_F(StreamTest, MessageOfAnotherSizeIsRefused) {
  make(64, 4, 8, false);
  PipeSender(pipe_).isend("short", 5, 0, nullptr).value();
  receiver_->set_limit(1);
  ASSERT_TRUE(receiver_->poll());
  pipe_.move_one();
  const auto received = receiver_->poll();
  ASSERT_FALSE(received);
  EXPECT_THAT(received.error().message, HasSubstr("64 bytes of the test"));
}

}  // namespace
}  // namespace pacecar::perf::stream_test

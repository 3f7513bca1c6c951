// Messages in GPU memory that the NIC cannot reach, over the software NIC, at the C++ interface.
#include "transport/api/gpu/staged_connections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/fake_gpu.h"
#include "tests/support/waiting.h"

namespace pacecar::staged_connections_test {
namespace {

using test::FakeGpu;
using test::GpuBuffer;
using testing::HasSubstr;

std::vector<uint8_t> pattern(size_t size, uint8_t seed) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(seed + i * 7 + i / 251);
  return bytes;
}

template <typename Step>
void poll_until(const char* what, Step step) {
  if (!test::eventually(step)) throw std::runtime_error(what);
}

class StagedConnections : public testing::Test {
 protected:
  StagedConnections() { open(); }
  ~StagedConnections() override { hold(false); }

  void open() {
    Options options{.settings = {{"PACECAR_NICS", "soft:udp:lo"}, {"PACECAR_GPU", "staged"}}};
    context_ = Context::open(options).value();
    connect();
  }
  void connect() {
    const auto listener = context_->listen(0).value();
    const auto connecting = context_->connect(0, listener->handle()).value();
    poll_until("connecting", [&] {
      if (send_ == nullptr) send_ = connecting->poll().value();
      if (receive_ == nullptr) receive_ = listener->accept().value();
      return send_ != nullptr && receive_ != nullptr;
    });
  }
  const Memory* register_gpu(const GpuBuffer& buffer) {
    return context_
        ->register_memory(0, MemoryRange{.address = buffer.data(),
                                         .length = buffer.bytes().size(),
                                         .kind = MemoryKind::kCuda})
        .value();
  }
  void deregister(const Memory* memory) { EXPECT_TRUE(context_->deregister_memory(0, memory)); }
  void hold(bool held) {
    fake_.with([held](FakeCuda& cuda) { cuda.copies_wait = held; });
  }

  Request* send(const uint8_t* data, size_t size, const Memory* memory, int tag = 0) {
    Request* request = nullptr;
    poll_until("isend", [&] {
      return (request = send_->isend(data, size, tag, memory).value()) != nullptr;
    });
    return request;
  }
  Request* receive(std::span<const ReceiveBuffer> buffers) {
    Request* request = nullptr;
    poll_until("irecv", [&] { return (request = receive_->irecv(buffers).value()) != nullptr; });
    return request;
  }
  Request* receive(uint8_t* data, size_t size, const Memory* memory, int tag = 0) {
    const ReceiveBuffer buffer{data, size, tag, memory};
    return receive({&buffer, 1});
  }
  // Tests both requests in turn until both are done; returns the receive's result.
  TestResult finish(Request* sending, Request* receiving) {
    std::optional<TestResult> sent, received;
    poll_until("a message", [&] {
      if (!sent) sent = done(send_->test(sending));
      if (!received) received = done(receive_->test(receiving));
      return sent && received;
    });
    return *received;
  }
  static std::optional<TestResult> done(const Result<TestResult>& result) {
    if (!result) throw std::runtime_error(result.error().message);
    return result->done ? std::optional(*result) : std::nullopt;
  }
  // The error with which a request ends.
  template <typename Connection>
  static Error failure(Connection& connection, Request* request) {
    Result<TestResult> result;
    poll_until("a failure", [&] { return !(result = connection.test(request)) || result->done; });
    return result ? Error{} : result.error();
  }

  const FakeGpu fake_{FAKE_CUDA};
  std::unique_ptr<Context> context_;
  std::unique_ptr<SendConnection> send_;
  std::unique_ptr<ReceiveConnection> receive_;
};

TEST_F(StagedConnections, NicReportsStagedGpuMemory) {
  const NicInfo& info = context_->nics()[0];
  EXPECT_TRUE(info.cuda);
  EXPECT_FALSE(info.dma_buf);
  EXPECT_EQ(info.gpu_memory, "GPU memory staged through pinned host memory: PACECAR_GPU=staged");
  EXPECT_LE(info.gpu_message_bytes * kMaxReceiveBuffers, kPinnedRingBytes);
}

TEST_F(StagedConnections, EverySizeArrivesBetweenGpuAndHostMemory) {
  constexpr size_t kMost = (3 << 20) + 5;
  const GpuBuffer from(fake_, kMost);
  const GpuBuffer to(fake_, kMost);
  std::vector<uint8_t> host(kMost);
  const Memory* const from_memory = register_gpu(from);
  const Memory* const to_memory = register_gpu(to);
  const Memory* const host_memory = context_->register_memory(0, host.data(), kMost).value();
  uint8_t seed = 0;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4095}, size_t{70'001}, kMost}) {
    const auto there = pattern(size, ++seed);
    from.write(there);
    finish(send(from.data(), size, from_memory), receive(to.data(), size, to_memory));
    EXPECT_EQ(fake_.read(to.data(), size), there) << size << ", GPU to GPU";

    std::ranges::fill(host, 0);
    finish(send(from.data(), size, from_memory), receive(host.data(), size, host_memory));
    EXPECT_TRUE(std::equal(there.begin(), there.end(), host.begin())) << size << ", GPU to host";

    const auto back = pattern(size, ++seed);
    std::ranges::copy(back, host.begin());
    const auto result =
        finish(send(host.data(), size, host_memory), receive(to.data(), kMost, to_memory));
    EXPECT_EQ(result.count, 1);
    EXPECT_EQ(result.sizes[0], size);
    EXPECT_EQ(fake_.read(to.data(), size), back) << size << ", host to GPU";
  }
  for (const Memory* memory : {from_memory, to_memory, host_memory}) deregister(memory);
}

TEST_F(StagedConnections, SendsCompleteInOrderAfterTheirCopies) {
  const GpuBuffer from(fake_, 4096);
  const Memory* const memory = register_gpu(from);
  std::vector<uint8_t> host = pattern(4096, 9);
  std::vector<uint8_t> to(8192);
  const Memory* const host_memory = context_->register_memory(0, host.data(), 4096).value();
  const Memory* const to_memory = context_->register_memory(0, to.data(), 8192).value();
  from.write(pattern(4096, 5));

  hold(true);
  Request* const first = send(from.data(), 4096, memory);
  Request* const second =
      send(host.data(), 4096, host_memory);  // needs no copy, but must follow the first
  Request* const receiving = receive(to.data(), 4096, to_memory);
  Request* const receiving_next = receive(to.data() + 4096, 4096, to_memory);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_FALSE(send_->test(second).value().done);
    ASSERT_FALSE(send_->test(first).value().done);
    ASSERT_FALSE(receive_->test(receiving).value().done);
  }
  hold(false);
  finish(first, receiving);
  finish(second, receiving_next);
  EXPECT_TRUE(std::ranges::equal(std::span(to).first(4096), pattern(4096, 5)));
  EXPECT_TRUE(std::ranges::equal(std::span(to).last(4096), host));
  for (const Memory* each : {memory, host_memory, to_memory}) deregister(each);
}

TEST_F(StagedConnections, ReceiveCompletesAfterItsCopy) {
  std::vector<uint8_t> from = pattern(100'000, 3);
  const GpuBuffer to(fake_, from.size());
  const Memory* const from_memory = context_->register_memory(0, from.data(), from.size()).value();
  const Memory* const to_memory = register_gpu(to);
  hold(true);
  Request* const receiving = receive(to.data(), from.size(), to_memory);
  Request* const sending = send(from.data(), from.size(), from_memory);
  poll_until("the send", [&] { return send_->test(sending).value().done; });
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(receive_->test(receiving).value().done);
  hold(false);
  poll_until("the receive", [&] { return receive_->test(receiving).value().done; });
  EXPECT_EQ(fake_.read(to.data(), from.size()), from);
  deregister(from_memory);
  deregister(to_memory);
}

TEST_F(StagedConnections, CompletedRequestIsFreedOnce) {
  const GpuBuffer from(fake_, 4096);
  const GpuBuffer to(fake_, 4096);
  const Memory* const from_memory = register_gpu(from);
  const Memory* const to_memory = register_gpu(to);
  const auto again = [](auto& connection, Request* request) {
    const auto result = connection.test(request);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kInternal) << result.error().message;
  };
  Request* const sent = send(from.data(), 4096, from_memory);
  Request* const received = receive(to.data(), 4096, to_memory);
  finish(sent, received);
  again(*send_, sent);
  again(*receive_, received);
  EXPECT_NE(receive(to.data(), 4096, to_memory), receive(to.data(), 4096, to_memory));

  // A send that needs no copy.
  Request* const direct = send(nullptr, 0, nullptr);
  poll_until("a send", [&] { return send_->test(direct).value().done; });
  again(*send_, direct);
  size_t posted = 0;
  while (send_->isend(nullptr, 0, 7, nullptr).value() != nullptr) ++posted;
  EXPECT_EQ(posted, kMaxRequests * kMaxReceiveBuffers);
  EXPECT_EQ(send_->isend(from.data(), 4096, 0, from_memory).value(), nullptr)
      << "all requests are in use";
  for (const Memory* each : {from_memory, to_memory}) deregister(each);
}

TEST_F(StagedConnections, EightMessagesFillTheRingAndTheNextWaits) {
  constexpr size_t kMessage = kPinnedRingBytes / 8;
  constexpr size_t kRounds = 3;
  const GpuBuffer from(fake_, kPinnedRingBytes);
  const GpuBuffer to(fake_, kPinnedRingBytes);
  const Memory* const from_memory = register_gpu(from);
  const Memory* const to_memory = register_gpu(to);
  for (size_t round = 0; round < kRounds; ++round) {
    const auto bytes = pattern(kPinnedRingBytes, static_cast<uint8_t>(round + 1));
    from.write(bytes);
    hold(true);
    std::vector<std::pair<Request*, Request*>> messages;
    for (size_t i = 0; i < 8; ++i) {
      const size_t offset = i * kMessage;
      const ReceiveBuffer buffer{to.data() + offset, kMessage, 0, to_memory};
      Request* const receiving = receive_->irecv({&buffer, 1}).value();
      Request* const sending = send_->isend(from.data() + offset, kMessage, 0, from_memory).value();
      ASSERT_NE(receiving, nullptr) << i;
      ASSERT_NE(sending, nullptr) << i;
      messages.emplace_back(sending, receiving);
    }
    EXPECT_EQ(send_->isend(from.data(), 1, 0, from_memory).value(), nullptr);
    const ReceiveBuffer one_more{to.data(), 1, 0, to_memory};
    EXPECT_EQ(receive_->irecv({&one_more, 1}).value(), nullptr);
    hold(false);
    for (const auto& [sending, receiving] : messages) finish(sending, receiving);
    EXPECT_EQ(to.read(), bytes);
  }
  deregister(from_memory);
  deregister(to_memory);
}

TEST_F(StagedConnections, TagsSelectAmongHostAndGpuBuffers) {
  constexpr size_t kSize = 5000;
  const GpuBuffer from(fake_, 4 * kSize);
  const GpuBuffer to(fake_, 2 * kSize);
  std::vector<uint8_t> host(kSize);
  const Memory* const from_memory = register_gpu(from);
  const Memory* const to_memory = register_gpu(to);
  const Memory* const host_memory = context_->register_memory(0, host.data(), kSize).value();
  const auto bytes = pattern(4 * kSize, 1);
  from.write(bytes);
  const auto part = [&](size_t i, size_t size) {
    return std::vector(bytes.begin() + static_cast<long>(i * kSize),
                       bytes.begin() + static_cast<long>(i * kSize + size));
  };
  const std::array<ReceiveBuffer, 4> buffers{{{to.data(), kSize, 10, to_memory},
                                              {host.data(), kSize, 11, host_memory},
                                              {to.data() + kSize, kSize, 12, to_memory},
                                              {to.data(), 0, 13, to_memory}}};
  Request* const receiving = receive(buffers);
  std::vector<Request*> sending;
  for (const int i : {2, 3, 0, 1}) {
    const size_t size = i == 3 ? 0 : kSize - static_cast<size_t>(i);
    sending.push_back(
        send(from.data() + static_cast<size_t>(i) * kSize, size, from_memory, 10 + i));
  }
  for (size_t i = 0; i < 3; ++i) {
    poll_until("a send", [&] { return send_->test(sending[i]).value().done; });
  }
  const TestResult result = finish(sending[3], receiving);
  EXPECT_EQ(result.count, 4);
  EXPECT_THAT(std::vector(result.sizes.begin(), result.sizes.begin() + 4),
              testing::ElementsAre(kSize, kSize - 1, kSize - 2, 0U));
  EXPECT_EQ(fake_.read(to.data(), kSize), part(0, kSize));
  EXPECT_EQ(std::vector(host.begin(), host.end() - 1), part(1, kSize - 1));
  EXPECT_EQ(fake_.read(to.data() + kSize, kSize - 2), part(2, kSize - 2));
  for (const Memory* each : {from_memory, to_memory, host_memory}) deregister(each);
}

TEST_F(StagedConnections, MessageLargerThanTheRingIsRefused) {
  const GpuBuffer memory(fake_, kPinnedRingBytes + 1);
  const Memory* const registered = register_gpu(memory);
  const auto sent = send_->isend(memory.data(), kPinnedRingBytes + 1, 0, registered);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(sent.error().message, HasSubstr("8388609 bytes"));
  const ReceiveBuffer buffer{memory.data(), kPinnedRingBytes + 1, 0, registered};
  EXPECT_FALSE(receive_->irecv({&buffer, 1}));
  deregister(registered);
}

TEST_F(StagedConnections, BuffersOutsideTheirMemoryAreRefused) {
  const GpuBuffer memory(fake_, 4096);
  const Memory* const registered = register_gpu(memory);
  EXPECT_FALSE(send_->isend(memory.data() + 1, 4096, 0, registered));
  const ReceiveBuffer buffer{memory.data() + 4000, 97, 0, registered};
  EXPECT_FALSE(receive_->irecv({&buffer, 1}));
  deregister(registered);
  std::vector<uint8_t> host(100);
  const auto no_gpu = context_->register_memory(
      0, MemoryRange{.address = host.data(), .length = 100, .kind = MemoryKind::kCuda});
  ASSERT_FALSE(no_gpu);
  EXPECT_EQ(no_gpu.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(StagedConnections, FailedCopyFailsItsSend) {
  const GpuBuffer memory(fake_, 4096);
  const Memory* const registered = register_gpu(memory);
  fake_.with([](FakeCuda& cuda) { cuda.copies_fail = true; });
  const Error error = failure(*send_, send(memory.data(), 4096, registered));
  EXPECT_EQ(error.code, ErrorCode::kSystem);
  EXPECT_THAT(error.message, HasSubstr("illegal memory access"));
  deregister(registered);
}

// The request's piece of the ring is used again.
TEST_F(StagedConnections, ASendThatFailsHasNoCopyUnderWay) {
  const GpuBuffer memory(fake_, 4096);
  const Memory* const registered = register_gpu(memory);
  fake_.with([](FakeCuda& cuda) { cuda.records_fail = true; });
  for (int copies = 1; copies <= 20; ++copies) {
    EXPECT_FALSE(send_->isend(memory.data(), 4096, 0, registered));
    EXPECT_EQ(fake_.with([](FakeCuda& cuda) { return cuda.copies; }), copies);
  }
  deregister(registered);
}

TEST_F(StagedConnections, TheRingOutlivesCopiesOfEveryGpu) {
  send_.reset();
  receive_.reset();
  context_.reset();
  fake_.with([](FakeCuda& cuda) { cuda.devices = 2; });
  open();
  const std::array<GpuBuffer, 2> buffers{GpuBuffer(fake_, 4096, 0), GpuBuffer(fake_, 4096, 1)};
  std::vector<const Memory*> registered;
  for (const GpuBuffer& buffer : buffers) registered.push_back(register_gpu(buffer));
  fake_.with([](FakeCuda& cuda) { cuda.late = 1000; });
  ASSERT_NE(send_->isend(buffers[0].data(), 4096, 0, registered[0]).value(), nullptr);
  for (int i = 0; i < 8; ++i) {
    ASSERT_NE(send_->isend(buffers[1].data(), 4096, 0, registered[1]).value(), nullptr);
  }
  send_.reset();
  EXPECT_EQ(fake_.with([](FakeCuda& cuda) { return cuda.early_frees; }), 0);
  for (const Memory* memory : registered) deregister(memory);
}

TEST_F(StagedConnections, DeregisteredMemoryFailsItsReceive) {
  std::vector<uint8_t> from(4096);
  const Memory* const from_memory = context_->register_memory(0, from.data(), 4096).value();
  {
    const GpuBuffer to(fake_, 4096);
    const Memory* const to_memory = register_gpu(to);
    Request* const receiving = receive(to.data(), 4096, to_memory);
    deregister(to_memory);
    send(from.data(), 4096, from_memory);
    const Error error = failure(*receive_, receiving);
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message, HasSubstr("deregistered before"));
  }
  deregister(from_memory);
}

TEST_F(StagedConnections, CloseWithMessagesInFlightFreesEverything) {
  const GpuBuffer from(fake_, 1 << 20);
  const GpuBuffer to(fake_, 1 << 20);
  const Memory* const from_memory = register_gpu(from);
  const Memory* const to_memory = register_gpu(to);
  for (int i = 0; i < 4; ++i) {
    receive(to.data(), 1 << 20, to_memory);
    send(from.data(), 1 << 20, from_memory);
  }
  send_.reset();
  receive_.reset();
  deregister(from_memory);
  deregister(to_memory);
  context_.reset();
  const auto alive =
      fake_.with([](FakeCuda& cuda) { return std::pair(cuda.streams, cuda.host_allocations); });
  EXPECT_EQ(alive, std::pair(0, 0));
}

}  // namespace
}  // namespace pacecar::staged_connections_test

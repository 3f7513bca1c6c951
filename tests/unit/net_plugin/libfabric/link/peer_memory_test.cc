// PeerMemory reads the memory of another process of this host; here the peer is a forked child.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <optional>
#include <vector>

#include "net_plugin/libfabric/link/same_host.h"

namespace pacecar::fabric::peer_memory_test {
namespace {

constexpr Token kToken{0x1234, 0x5678};

// The child's memory. It is at the same addresses in this process, from which the child is forked.
struct Owner {
  Token token = kToken;
  std::vector<uint8_t> bytes = std::vector<uint8_t>(100'000);
};

class PeerMemoryTest : public testing::Test {
 protected:
  // The child changes its copy, reports that it is ready, and runs until end_owner() kills it.
  template <typename Change>
  void fork_owner(Change change) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    child_ = fork();
    if (child_ == 0) {
      change(owner_);
      (void)!write(ready[1], "r", 1);
      while (true) pause();
    }
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  void end_owner() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }
  void TearDown() override { end_owner(); }

  uint64_t token_address() const { return reinterpret_cast<uint64_t>(owner_.token.data()); }
  RemoteSegment segment(size_t at, size_t length) const {
    return {reinterpret_cast<uint64_t>(owner_.bytes.data()) + at, length, 0};
  }
  bool reads_a_byte(const PeerMemory& memory, const std::optional<Guard>& guard = {}) const {
    uint8_t byte = 0;
    const Piece piece{&byte, 1};
    const RemoteSegment one = segment(1, 1);
    return memory.read({&one, 1}, {&piece, 1}, {0, 1}, guard);
  }

  Owner owner_;
  pid_t child_ = 0;
};

void count_up(Owner& owner) {
  for (size_t i = 0; i < owner.bytes.size(); ++i) owner.bytes[i] = static_cast<uint8_t>(i * 7);
}

TEST_F(PeerMemoryTest, ReadGathersAndScatters) {
  fork_owner(count_up);
  const auto memory = PeerMemory::open(child_, token_address(), kToken);
  ASSERT_TRUE(memory);
  std::vector<uint8_t> first(5'000);
  std::vector<uint8_t> second(70'000);
  const Piece pieces[] = {{first.data(), first.size()}, {second.data(), second.size()}};
  const RemoteSegment segments[] = {segment(1, 30'000), segment(90'000, 0),
                                    segment(40'000, 20'000)};
  ASSERT_TRUE(memory->read(segments, pieces, {0, 60'000}));
  for (size_t i = 0; i < 50'000; ++i) {
    const size_t from = i < 30'000 ? 1 + i : 40'000 + i - 30'000;
    const uint8_t is = i < first.size() ? first[i] : second[i - first.size()];
    ASSERT_EQ(is, static_cast<uint8_t>(from * 7)) << i;
  }
  EXPECT_EQ(second[45'000], 0) << "nothing is written behind the 50,000 bytes of the segments";
}

// Long messages are read in parts.
TEST_F(PeerMemoryTest, ReadsInPartsGiveTheBytesOfOneRead) {
  fork_owner(count_up);
  const auto memory = PeerMemory::open(child_, token_address(), kToken);
  ASSERT_TRUE(memory);
  const RemoteSegment segments[] = {segment(1, 3'000), segment(90'000, 0), segment(40'000, 4'000)};
  std::vector<uint8_t> whole(7'000);
  const Piece one{whole.data(), whole.size()};
  ASSERT_TRUE(memory->read(segments, {&one, 1}, {0, whole.size()}));
  for (const uint64_t step : {1'000U, 2'999U, 3'001U, 6'999U}) {
    std::vector<uint8_t> parts(whole.size());
    const Piece pieces[] = {{parts.data(), 2'500}, {parts.data() + 2'500, 4'500}};
    for (uint64_t at = 0; at < whole.size(); at += step) {
      ASSERT_TRUE(memory->read(segments, pieces, {at, step}));
    }
    EXPECT_EQ(parts, whole) << step;
  }
}

TEST_F(PeerMemoryTest, ReadEndsWithTheLocalBuffer) {
  fork_owner(count_up);
  const auto memory = PeerMemory::open(child_, token_address(), kToken);
  ASSERT_TRUE(memory);
  std::vector<uint8_t> place(100, 0xee);
  const Piece piece{place.data(), 60};
  const RemoteSegment all = segment(0, 100);
  ASSERT_TRUE(memory->read({&all, 1}, {&piece, 1}, {0, 100}));
  EXPECT_EQ(place[59], static_cast<uint8_t>(59 * 7));
  EXPECT_TRUE(std::all_of(place.begin() + 60, place.end(), [](uint8_t b) { return b == 0xee; }));
}

TEST_F(PeerMemoryTest, WrongTokenIsRefused) {
  fork_owner([](Owner& owner) { owner.token[1] = 1; });
  EXPECT_FALSE(PeerMemory::open(child_, token_address(), kToken));
}

TEST_F(PeerMemoryTest, InvalidProcessesAndAddressesAreRefused) {
  fork_owner(count_up);
  for (const pid_t pid : {0, -1, std::numeric_limits<pid_t>::max()}) {
    EXPECT_FALSE(PeerMemory::open(pid, token_address(), kToken)) << pid;
  }
  for (const uint64_t address : {uint64_t{0}, uint64_t{8}, ~uint64_t{0}}) {
    EXPECT_FALSE(PeerMemory::open(child_, address, kToken)) << address;
  }
}

TEST_F(PeerMemoryTest, ReadOfInaccessibleMemoryFails) {
  void* const page =
      mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  fork_owner([&](Owner&) { mprotect(static_cast<uint8_t*>(page) + 4096, 4096, PROT_NONE); });
  const auto memory = PeerMemory::open(child_, token_address(), kToken);
  ASSERT_TRUE(memory);
  std::vector<uint8_t> place(8192);
  const Piece piece{place.data(), place.size()};
  const RemoteSegment readable{reinterpret_cast<uint64_t>(page), 4096, 0};
  const RemoteSegment beyond{reinterpret_cast<uint64_t>(page), 4097, 0};
  EXPECT_TRUE(memory->read({&readable, 1}, {&piece, 1}, {0, 4096}));
  EXPECT_FALSE(memory->read({&beyond, 1}, {&piece, 1}, {0, 4097}));
  munmap(page, 8192);
}

// Process numbers are used again, and an endpoint that gives its peer up changes the token.
TEST_F(PeerMemoryTest, ReadFailsOnceThePeerHasEnded) {
  fork_owner(count_up);
  const auto memory = PeerMemory::open(child_, token_address(), kToken);
  ASSERT_TRUE(memory);
  EXPECT_TRUE(reads_a_byte(*memory));
  end_owner();
  EXPECT_FALSE(reads_a_byte(*memory));
}

TEST_F(PeerMemoryTest, ReadFailsOnceTheTokenHasChanged) {
  owner_.token = kToken;
  const auto memory = PeerMemory::open(getpid(), token_address(), kToken);
  ASSERT_TRUE(memory) << "this process itself";
  EXPECT_TRUE(reads_a_byte(*memory));
  owner_.token[0] = 0;
  EXPECT_FALSE(reads_a_byte(*memory));
}

// For example the guard of a memory region that has been closed.
TEST_F(PeerMemoryTest, ReadWithAWrongGuardFails) {
  fork_owner(count_up);
  const auto memory = PeerMemory::open(child_, token_address(), kToken);
  ASSERT_TRUE(memory);
  const uint64_t word = token_address() + sizeof(uint64_t);
  EXPECT_TRUE(reads_a_byte(*memory, Guard{word, kToken[1]}));
  EXPECT_FALSE(reads_a_byte(*memory, Guard{word, kToken[0]}));
  EXPECT_FALSE(reads_a_byte(*memory, Guard{0, 0}));
}

}  // namespace
}  // namespace pacecar::fabric::peer_memory_test

// The libfabric provider while the process gets no further memory. Not under a sanitizer, which
// ends the process then.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <optional>

#include "tests/support/descriptor_limit.h"
#include "tests/support/fi_world.h"
#include "tests/support/tcp.h"

namespace pacecar::test::fi_provider_scarcity_test {
namespace {

// While it lives, the process gets little more memory than it has: less than a peer needs.
class ScarceMemory {
 public:
  ScarceMemory() {
    getrlimit(RLIMIT_AS, &before_);
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit scarce{pages * static_cast<size_t>(getpagesize()) + (1 << 20), before_.rlim_max};
    setrlimit(RLIMIT_AS, &scarce);
  }
  ScarceMemory(const ScarceMemory&) = delete;
  ScarceMemory& operator=(const ScarceMemory&) = delete;
  ~ScarceMemory() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_;
};

TEST(FiProviderScarcity, AQueueThatCannotHaveItsDescriptorIsRefused) {
  expect_processes_pass(1, [](Rank&) {
    FiEnd end;
    fi_cq_attr attributes{.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_FD};
    fid_cq* queue = nullptr;
    const DescriptorLimit none;
    EXPECT_LT(fi_cq_open(end.domain, &attributes, &queue, nullptr), 0);
    attributes.wait_obj = FI_WAIT_NONE;
    EXPECT_EQ(fi_cq_open(end.domain, &attributes, &queue, nullptr), 0);
    EXPECT_EQ(fi_close(&queue->fid), 0);
  });
}

TEST(FiProviderScarcity, AnEndpointWorksOnAfterASendThatGotNoMemory) {
  expect_processes_pass(1, [](Rank&) {
    FiEnd end;
    const TcpNobody nobody;
    const fi_addr_t address = end.add(&nobody.address());
    int context = 0;
    const auto send = [&] { return fi_tsend(end.endpoint, "x", 1, nullptr, address, 1, &context); };
    {
      const ScarceMemory scarce;
      EXPECT_EQ(send(), -FI_ENOMEM);
    }
    end.progress();
    end.until_taken(send);
    EXPECT_EQ(end.outcome_of(&context).error, FI_ECONNREFUSED);
  });
}

TEST(FiProviderScarcity, ASendCompletesAlthoughItsPeerFailedWithoutMemory) {
  expect_processes_pass(1, [](Rank&) {
    FiEnd end;
    std::optional<TcpServer> silent(std::in_place);
    const sockaddr_in name = local(silent->port());
    const fi_addr_t address = end.add(&name);
    std::array<int, 2> contexts{};
    const auto send = [&](int& context) {
      end.until_taken(
          [&] { return fi_tsend(end.endpoint, "x", 1, nullptr, address, 1, &context); });
    };
    send(contexts[0]);
    {
      const ScarceMemory scarce;
      silent.reset();  // it resets the connection
      fi_cq_tagged_entry entry{};
      ssize_t result = -FI_EAGAIN;
      while (result == -FI_EAGAIN) result = fi_cq_read(end.completions, &entry, 1);
      EXPECT_EQ(result, -FI_ENOMEM);
    }
    send(contexts[1]);
    for (int& context : contexts) EXPECT_EQ(end.outcome_of(&context).error, FI_ECONNRESET);
  });
}

}  // namespace
}  // namespace pacecar::test::fi_provider_scarcity_test
#endif

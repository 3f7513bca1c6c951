// After a fork on a kernel before 5.12, the child lacks all pages of registered memory, so that
// these pages may hold nothing else. In this test all memory of malloc is in the heap.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/sim/traffic.h"
#include "tests/support/hostile_nics.h"
#include "tests/support/hostile_verbs/gpu_memory.h"

namespace pacecar::test::pages_test {
namespace {

// The name in /proc/self/maps of the mapping at that address: "[heap]", "[stack]", a file, or empty
// for anonymous memory.
std::string name_of_mapping(uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::string rights, offset, device, inode, name;
    std::istringstream(line) >> std::hex >> begin >> dash >> end >> rights >> offset >> device >>
        inode >> name;
    if (address >= begin && address < end) return name;
  }
  return "nothing";
}

std::vector<std::string> strangers_in_registered_pages() {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  std::vector<std::string> strangers;
  for (const auto& memory : hostile::registered_memory()) {
    const auto begin = reinterpret_cast<uintptr_t>(memory.data());
    for (uintptr_t at = begin / page * page; at < begin + memory.size(); at += page) {
      const std::string name = name_of_mapping(at);
      if (!name.empty()) strangers.push_back(name + ": " + std::to_string(memory.size()));
    }
  }
  return strangers;
}

TEST(RegisteredPages, RegisteredPagesHoldNothingElse) {
  mallopt(M_MMAP_MAX, 0);
  const hostile::GpuBuffer gpu(4096);
  HostileNics nics({});
  std::vector<std::unique_ptr<Messenger>> messengers;
  for (size_t host = 0; host < 2; ++host) {
    messengers.push_back(Messenger::create(nics[host],
                                           {.identity = identity_of_host(host),
                                            .line_rate = nics[host].caps().line_rate,
                                            .max_connections = 64},
                                           HostileNics::now())
                             .value());
  }
  connect_messengers(*messengers[0], *messengers[1], 1, HostileNics::now());
  const MemoryRegion region =
      nics[0].register_memory(gpu.address(), 4096, Access::kRemoteAll).value();
  ASSERT_TRUE(nics[0].start_flush(region, gpu.address()));
  nics[0].deregister_memory(region);
  EXPECT_GE(hostile::registered_memory().size(), 8U) << "too few regions: some are not recorded";
  EXPECT_EQ(strangers_in_registered_pages(), std::vector<std::string>());
}

}  // namespace
}  // namespace pacecar::test::pages_test

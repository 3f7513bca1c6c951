// Registrations over scripted functions in place of libibverbs: the definitions here take
// precedence over the shared library.
#include "transport/verbs/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace pacecar::memory_test {
namespace {

struct Library {
  int refuses = 0;  // with this errno
  int registered = 0;
  int deregistered = 0;
  uint32_t next_key = 7;
  uint64_t offset = 0;
  uint64_t address = 0;
  int file = 0;
  int access = 0;
};
Library library;

ibv_mr* registered(int access) {
  if (library.refuses != 0) {
    errno = library.refuses;
    return nullptr;
  }
  ++library.registered;
  library.access = access;
  auto memory = std::make_unique<ibv_mr>();
  memory->lkey = memory->rkey = library.next_key++;
  return memory.release();
}

}  // namespace
}  // namespace pacecar::memory_test

using pacecar::memory_test::library;
using pacecar::memory_test::registered;

extern "C" {

ibv_mr* ibv_reg_mr_iova2(ibv_pd*, void*, size_t, uint64_t, unsigned access) {
  return registered(static_cast<int>(access));
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, uint64_t offset, size_t, uint64_t address, int file,
                          int access) {
  if (file == -1) {
    errno = library.refuses != 0 ? library.refuses : EBADF;
    return nullptr;
  }
  library.offset = offset;
  library.address = address;
  library.file = file;
  return registered(access);
}

int ibv_dereg_mr(ibv_mr* memory) {
  ++library.deregistered;
  delete memory;
  return 0;
}
}

namespace pacecar::memory_test {
namespace {

using testing::HasSubstr;

class RegistrationsTest : public testing::Test {
 protected:
  RegistrationsTest() { library = {}; }

  static void* at(uint64_t address) { return reinterpret_cast<void*>(address); }

  Registrations registrations_{nullptr, 2, "mlx5_0"};
};

TEST_F(RegistrationsTest, TheSameRangeIsRegisteredOnce) {
  const auto one = registrations_.add(at(4096), 100, Access::kRemoteWrite);
  const auto same = registrations_.add(at(4096), 100, Access::kRemoteWrite);
  ASSERT_TRUE(one && same);
  EXPECT_EQ(one->key, same->key);
  EXPECT_EQ(library.registered, 1);
  EXPECT_FALSE(registrations_.last(one->key));
  EXPECT_EQ(registrations_.remove(one->key), nullptr);
  EXPECT_EQ(library.deregistered, 0);
  auto last = registrations_.remove(one->key);
  EXPECT_EQ(library.deregistered, 0) << "only destroying the registration deregisters";
  last.reset();
  EXPECT_EQ(library.deregistered, 1);
}

TEST_F(RegistrationsTest, RegistrationsOfOtherRightsAreNotShared) {
  const auto written = registrations_.add(at(4096), 100, Access::kRemoteWrite);
  const auto read = registrations_.add(at(4096), 100, Access::kLocalRead);
  ASSERT_TRUE(written && read);
  EXPECT_NE(written->key, read->key);
}

TEST_F(RegistrationsTest, DmaBufsOfUnknownAllocationsAreNotShared) {
  const DmaBufMemory memory{.fd = 5, .offset = 4096, .address = 0x7000, .length = 100};
  const auto one = registrations_.add_dmabuf(memory, Access::kRemoteAll);
  const auto other =
      registrations_.add_dmabuf({.fd = 6, .address = 0x7000, .length = 100}, Access::kRemoteAll);
  ASSERT_TRUE(one && other);
  EXPECT_NE(one->key, other->key);
  EXPECT_EQ(library.file, 6);
  EXPECT_EQ(library.address, 0x7000U);
  EXPECT_EQ(other->address, at(0x7000));
  EXPECT_EQ(library.access,
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  const auto third = registrations_.add(at(4096), 1, Access::kLocalRead);
  ASSERT_FALSE(third);
  EXPECT_THAT(third.error().message, HasSubstr("PACECAR_MAX_REGIONS"));
}

TEST_F(RegistrationsTest, DmaBufOfTheSameAllocationIsRegisteredOnce) {
  const auto add = [&](int fd, uint64_t allocation) {
    return registrations_
        .add_dmabuf({.fd = fd, .address = 0x7000, .length = 100, .allocation = allocation},
                    Access::kRemoteAll)
        .value()
        .key;
  };
  const uint32_t one = add(5, 77);
  EXPECT_EQ(add(6, 77), one);
  EXPECT_EQ(library.registered, 1);
  EXPECT_EQ(registrations_.remove(one), nullptr);
  EXPECT_NE(add(7, 78), one) << "the same address, but another allocation";
  EXPECT_NE(registrations_.remove(one), nullptr);
}

TEST_F(RegistrationsTest, DriverIsAskedWhetherItTakesDmaBufs) {
  EXPECT_TRUE(takes_dmabuf(nullptr));
  for (const int refusal : {EOPNOTSUPP, EPROTONOSUPPORT, ENOSYS}) {
    library.refuses = refusal;
    EXPECT_FALSE(takes_dmabuf(nullptr)) << refusal;
  }
}

TEST_F(RegistrationsTest, RefusalsNameDeviceCauseAndCure) {
  const auto refusal = [&](int error, bool dmabuf) {
    library.refuses = error;
    const DmaBufMemory memory{.fd = 5, .address = 4096, .length = 100};
    const auto region = dmabuf ? registrations_.add_dmabuf(memory, Access::kRemoteAll)
                               : registrations_.add(at(4096), 100, Access::kRemoteAll);
    return region ? Error{} : region.error();
  };
  const Error locked = refusal(ENOMEM, false);
  EXPECT_EQ(locked.code, ErrorCode::kPermission);
  EXPECT_THAT(locked.message, HasSubstr("mlx5_0: ibv_reg_mr failed"));
  EXPECT_THAT(locked.message, HasSubstr("ulimit -l unlimited"));
  EXPECT_THAT(refusal(EFAULT, false).message, HasSubstr("load nvidia_peermem"));
  EXPECT_THAT(refusal(EOPNOTSUPP, true).message, HasSubstr("mlx5_0: ibv_reg_dmabuf_mr failed"));
  EXPECT_EQ(library.registered, 0);
  library.refuses = 0;
  EXPECT_TRUE(registrations_.add(at(4096), 100, Access::kRemoteAll))
      << "refused registrations use no place";
}

}  // namespace
}  // namespace pacecar::memory_test

// Memory windows of the verbs device, and work requests over unreliable connections, as programs
// use them.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/support/verbs_pair.h"

namespace pacecar::test::windows_test {
namespace {

constexpr int kMemory = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
constexpr unsigned kWrite = IBV_ACCESS_REMOTE_WRITE;

class VerbsDeviceWindows : public VerbsPair {
 protected:
  void SetUp() override {
    VerbsPair::SetUp();
    connect();
  }
  ibv_mw_bind_info part(size_t offset, size_t length, unsigned access = kWrite) {
    return {.mr = region_, .addr = address(offset), .length = length, .mw_access_flags = access};
  }
  // Posts a bind to queue pair 1.
  int bind(ibv_mw* window, uint32_t key, const ibv_mw_bind_info& info) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw = {.mw = window, .rkey = key, .bind_info = info};
    return post(1, wr);
  }
  int invalidate(uint32_t key) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.invalidate_rkey = key;
    return post(1, wr);
  }
};

TEST_F(VerbsDeviceWindows, Type1WindowGetsANewKeyAtEachBind) {
  ibv_mw* const window = ibv_alloc_mw(pd_, IBV_MW_TYPE_1);
  ASSERT_NE(window, nullptr);
  const uint32_t first = window->rkey;
  ibv_mw_bind bind{.wr_id = 7, .send_flags = 0, .bind_info = part(1024, 64)};
  ASSERT_EQ(ibv_bind_mw(qps_[1], window, &bind), 0);
  const ibv_wc bound = completion(1);
  EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(bound.wr_id, 7U);
  const uint32_t second = window->rkey;
  EXPECT_NE(second, first);
  memory_[63] = 77;
  EXPECT_EQ(write(second, address(1024)), IBV_WC_SUCCESS);
  EXPECT_EQ(memory_[1024 + 63], 77);
  EXPECT_EQ(ibv_dereg_mr(region_), EBUSY) << "a window is bound to the region";

  bind.bind_info = part(2048, 64);
  ASSERT_EQ(ibv_bind_mw(qps_[1], window, &bind), 0);
  EXPECT_EQ(write(window->rkey, address(2048)), IBV_WC_SUCCESS);
  EXPECT_EQ(write(second, address(1024)), IBV_WC_REM_ACCESS_ERR);
  reconnect();
  EXPECT_EQ(write(window->rkey, address(2048)), IBV_WC_SUCCESS)
      << "the window serves every queue pair";
  bind.bind_info = {};
  ASSERT_EQ(ibv_bind_mw(qps_[1], window, &bind), 0);
  EXPECT_EQ(write(window->rkey, address(2048)), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

TEST_F(VerbsDeviceWindows, Type2WindowHasTheProgramsKeyUntilInvalidated) {
  ibv_mw* const window = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  ASSERT_NE(window, nullptr);
  const uint32_t key = ibv_inc_rkey(window->rkey);
  ASSERT_EQ(bind(window, key, part(1024, 64)), 0);
  EXPECT_EQ(completion(1).opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(write(key, address(1024)), IBV_WC_SUCCESS);
  EXPECT_EQ(bind(window, ibv_inc_rkey(key), part(1024, 64)), EINVAL) << "the window is bound";
  EXPECT_EQ(invalidate(ibv_inc_rkey(key)), EINVAL);
  EXPECT_EQ(invalidate(region_->rkey), EINVAL);
  ibv_send_wr anothers{};
  anothers.opcode = IBV_WR_LOCAL_INV;
  anothers.invalidate_rkey = key;
  EXPECT_EQ(post(0, anothers), EINVAL) << "queue pair 1 has bound it";
  ASSERT_EQ(invalidate(key), 0);
  EXPECT_EQ(completion(1).opcode, IBV_WC_LOCAL_INV);
  EXPECT_EQ(write(key, address(1024)), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

TEST_F(VerbsDeviceWindows, Type2WindowEndsWithItsQueuePair) {
  ibv_mw* const window = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  ASSERT_EQ(bind(window, window->rkey, part(1024, 64)), 0);
  reconnect();
  EXPECT_EQ(write(window->rkey, address(1024)), IBV_WC_REM_ACCESS_ERR);
  reconnect();
  ASSERT_EQ(bind(window, window->rkey, part(0, kBytes, kWrite | IBV_ACCESS_ZERO_BASED)), 0);
  EXPECT_EQ(write(window->rkey, kBytes - 64), IBV_WC_SUCCESS);
  const uint32_t key = window->rkey;
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
  EXPECT_EQ(write(key, 0), IBV_WC_REM_ACCESS_ERR);
}

// A server may give each client a protection domain to separate their memory.
TEST_F(VerbsDeviceWindows, MemoryOfAnotherDomainIsRefused) {
  ibv_pd* others = ibv_alloc_pd(device_.context());
  std::array<uint8_t, kBytes> memory{};
  constexpr int kAccess = kMemory | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  ibv_mr* const theirs = ibv_reg_mr(others, memory.data(), kBytes, kAccess);
  ibv_mr* const own = ibv_reg_mr(pd_, memory.data(), kBytes, kAccess);
  const auto remote = reinterpret_cast<uint64_t>(memory.data());
  memory_[0] = 77;
  EXPECT_EQ(write(theirs->rkey, remote), IBV_WC_REM_ACCESS_ERR);
  reconnect();
  EXPECT_EQ(transfer(IBV_WR_RDMA_READ, theirs->rkey, remote), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(memory[0], 0);
  reconnect();
  EXPECT_EQ(transfer(IBV_WR_RDMA_READ, own->rkey, remote), IBV_WC_SUCCESS);
  memory_[0] = 77;
  EXPECT_EQ(write(own->rkey, remote), IBV_WC_SUCCESS);
  EXPECT_EQ(memory[0], 77);

  std::swap(pd_, others);
  reconnect();
  ibv_mw* const window = ibv_alloc_mw(pd_, IBV_MW_TYPE_1);
  ibv_mw_bind bind{
      .wr_id = 7,
      .send_flags = 0,
      .bind_info = {.mr = theirs, .addr = remote, .length = kBytes, .mw_access_flags = kWrite}};
  ASSERT_EQ(ibv_bind_mw(qps_[1], window, &bind), 0);
  std::swap(pd_, others);
  reconnect();
  EXPECT_EQ(write(window->rkey, remote), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
  disconnect();
  EXPECT_EQ(ibv_dereg_mr(theirs), 0);
  EXPECT_EQ(ibv_dereg_mr(own), 0);
  EXPECT_EQ(ibv_dealloc_pd(others), 0);
}

// The memory of a write is deregistered while the write is in flight, which breaks the queue pair:
// requests that are posted before the program polls are flushed. The peer's queue pair is in error
// before, acknowledges nothing, and so the write cannot complete before its memory is deregistered.
TEST_F(VerbsDeviceWindows, RequestsPostedToABrokenQueuePairAreFlushed) {
  std::vector<uint8_t> large(64 << 20);
  ibv_mr* const region = ibv_reg_mr(pd_, large.data(), large.size(), IBV_ACCESS_LOCAL_WRITE);
  ibv_mr* const there =
      ibv_reg_mr(pd_, large.data(), large.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  ibv_mw* const window = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  ibv_sge piece{.addr = reinterpret_cast<uint64_t>(large.data()),
                .length = static_cast<uint32_t>(large.size()),
                .lkey = region->lkey};
  ibv_send_wr wr{.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
  wr.wr.rdma = {.remote_addr = piece.addr, .rkey = there->rkey};
  ibv_qp_attr broken{.qp_state = IBV_QPS_ERR};
  ASSERT_EQ(ibv_modify_qp(qps_[0], &broken, IBV_QP_STATE), 0);
  ASSERT_EQ(post(1, wr), 0);
  ASSERT_EQ(ibv_dereg_mr(region), 0);
  wr.num_sge = 0;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(bind(window, window->rkey, part(0, 64)), 0);
    EXPECT_EQ(invalidate(window->rkey), 0);
    EXPECT_EQ(post(1, wr), 0);
  }
  EXPECT_EQ(completion(1).status, IBV_WC_LOC_PROT_ERR);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(completion(1).status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
  disconnect();
  EXPECT_EQ(ibv_dereg_mr(there), 0);
}

TEST_F(VerbsDeviceWindows, SendWithInvalidateEndsABinding) {
  ibv_mw* const window = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  ASSERT_EQ(bind(window, window->rkey, part(1024, 64)), 0);
  EXPECT_EQ(completion(1).opcode, IBV_WC_BIND_MW);
  ibv_recv_wr receive{.wr_id = 5};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(qps_[1], &receive, &bad), 0);
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND_WITH_INV;
  send.invalidate_rkey = window->rkey;
  ASSERT_EQ(post(0, send), 0);
  EXPECT_EQ(completion(0).status, IBV_WC_SUCCESS);
  const ibv_wc received = completion(1);
  EXPECT_EQ(received.wr_id, 5U);
  EXPECT_EQ(received.wc_flags & IBV_WC_WITH_INV, unsigned{IBV_WC_WITH_INV});
  EXPECT_EQ(received.invalidated_rkey, window->rkey);
  EXPECT_EQ(ibv_dereg_mr(std::exchange(region_, nullptr)), 0)
      << "no window is bound to the region any more";
  region_ = ibv_reg_mr(pd_, memory_.data(), kBytes, kMemory);
  ASSERT_EQ(bind(window, window->rkey, part(1024, 64)), 0) << "the window can be bound again";
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

TEST_F(VerbsDeviceWindows, WindowsAreBoundOnlyAsTheRegionAllows) {
  ibv_mw* const window = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  const uint32_t key = window->rkey;
  EXPECT_EQ(bind(window, key ^ 0x100, part(0, 64)), EINVAL)
      << "a program chooses only 8 bits of a key";
  EXPECT_EQ(bind(window, key, part(kBytes - 63, 64)), EINVAL);
  EXPECT_EQ(bind(window, key, part(0, 0)), EINVAL);
  EXPECT_EQ(bind(window, key, part(0, 64, 1U << 15)), EINVAL);
  auto before = part(0, 64);
  before.addr -= 1;
  EXPECT_EQ(bind(window, key, before), EINVAL);
  auto nothing = part(0, 64);
  nothing.mr = nullptr;
  EXPECT_EQ(bind(window, key, nothing), EINVAL);
  for (const int access : {int{IBV_ACCESS_LOCAL_WRITE}, int{IBV_ACCESS_MW_BIND}}) {
    ibv_mr* const region = ibv_reg_mr(pd_, memory_.data(), 64, access);
    auto info = part(0, 64);
    info.mr = region;
    EXPECT_EQ(bind(window, key, info), EINVAL);
    EXPECT_EQ(ibv_dereg_mr(region), 0);
  }
  ibv_pd* const other = ibv_alloc_pd(device_.context());
  ibv_mr* const region = ibv_reg_mr(other, memory_.data(), 64, kMemory);
  auto info = part(0, 64);
  info.mr = region;
  EXPECT_EQ(bind(window, key, info), EPERM);
  ibv_mw* const foreign = ibv_alloc_mw(other, IBV_MW_TYPE_2);
  EXPECT_EQ(bind(foreign, foreign->rkey, part(0, 64)), EPERM);
  EXPECT_EQ(bind(foreign, foreign->rkey, info), EPERM) << "the queue pair is of another domain";
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  EXPECT_EQ(ibv_dealloc_mw(foreign), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

TEST_F(VerbsDeviceWindows, UnreliableConnectionsSendAndWriteButDoNotRead) {
  attributes_.type = IBV_QPT_UC;
  reconnect();
  ibv_sge from{.addr = address(0), .length = 3000, .lkey = region_->lkey};
  std::vector<uint8_t> target(kBytes, 0xEE);
  ibv_mr* const there =
      ibv_reg_mr(pd_, target.data(), kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  ibv_sge to{
      .addr = reinterpret_cast<uint64_t>(target.data()), .length = 3000, .lkey = there->lkey};
  for (const auto opcode : {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    std::fill(target.begin(), target.end(), uint8_t{0xEE});
    ibv_recv_wr receive{.wr_id = 5, .sg_list = &to, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qps_[1], &receive, &bad), 0);
    ibv_send_wr wr{.sg_list = &from, .num_sge = 1, .opcode = opcode, .imm_data = 77};
    wr.wr.rdma = {.remote_addr = to.addr, .rkey = there->rkey};
    ASSERT_EQ(post(0, wr), 0);
    EXPECT_EQ(completion(0).status, IBV_WC_SUCCESS);
    const ibv_wc received = completion(1);
    EXPECT_EQ(received.imm_data, 77U);
    EXPECT_EQ(received.byte_len, 3000U);
    EXPECT_EQ(std::memcmp(target.data(), memory_.data(), 3000), 0);
  }
  ibv_send_wr lost{.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND};
  ASSERT_EQ(post(0, lost), 0);
  EXPECT_EQ(completion(0).status, IBV_WC_SUCCESS) << "although there is no receive request";
  for (const auto opcode : {IBV_WR_RDMA_READ, IBV_WR_SEND_WITH_INV, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    ibv_send_wr wr{.sg_list = &from, .num_sge = 1, .opcode = opcode};
    EXPECT_EQ(post(0, wr), EINVAL);
  }
  disconnect();
  EXPECT_EQ(ibv_dereg_mr(there), 0);
}

}  // namespace
}  // namespace pacecar::test::windows_test

// Random libibverbs programs over the device, with both ends of every connection in this process,
// against a model of each completion. VERBS_SEEDS=FIRST:COUNT selects the seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/own_verbs_device.h"
#include "tests/support/verbs_model.h"

namespace pacecar::test::device_property {
namespace {

constexpr uint32_t kSlotBytes = 1 << 15;
constexpr size_t kSlots = 96;
constexpr uint32_t kDepth = 16;
constexpr uint32_t kGrhBytes = 40;
constexpr uint32_t kQueueKey = 0x1234;
constexpr unsigned kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr auto kPatience = std::chrono::seconds(60);

// Registered memory in slots. A slot is free when its last reference is gone.
class Memory {
 public:
  explicit Memory(ibv_pd* pd) : bytes_(kSlots * kSlotBytes) {
    region_ = ibv_reg_mr(pd, bytes_.data(), bytes_.size(), static_cast<int>(kAll));
  }
  ~Memory() { ibv_dereg_mr(region_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  uint32_t key() const { return region_->lkey; }
  using Slot = std::shared_ptr<uint8_t>;
  Slot take() {
    for (size_t i = 0; i < kSlots; ++i) {
      if (!used_.insert(i).second) continue;
      return {&bytes_[i * kSlotBytes], [this, i](uint8_t*) { used_.erase(i); }};
    }
    return nullptr;
  }

 private:
  std::vector<uint8_t> bytes_;
  std::set<size_t> used_;
  ibv_mr* region_ = nullptr;
};

void fill(uint8_t* to, uint32_t bytes, uint32_t seed) {
  for (uint32_t i = 0; i < bytes; ++i) to[i] = static_cast<uint8_t>(seed * 31 + i * 7 + (i >> 8));
}

// Empty, or how the memory differs from fill(..., seed).
std::string compare(const uint8_t* at, uint32_t bytes, uint32_t seed) {
  std::vector<uint8_t> wanted(bytes);
  fill(wanted.data(), bytes, seed);
  const auto differs = std::mismatch(wanted.begin(), wanted.end(), at).first - wanted.begin();
  if (differs == static_cast<std::ptrdiff_t>(bytes)) return "";
  return "memory differs from byte " + std::to_string(differs) + " of " + std::to_string(bytes);
}

struct Side {
  ibv_cq* sends = nullptr;
  ibv_cq* receives = nullptr;
  ibv_qp* qp = nullptr;
  ibv_srq* srq = nullptr;
  ModelQueue sent;
  ModelQueue received;
  struct Free {
    Expected* expected;
    Memory::Slot slot;
    uint32_t bytes;
  };
  std::deque<Free> free;  // posted receives without a message
  Memory::Slot word;      // the target of the other side's atomics
  uint64_t value = 0;     // its value when all posted atomics are done
  uint32_t first_psn = 0;
};

class World {
 public:
  World(ibv_context* context, uint32_t seed)
      : context_(context), random_(seed), pd_(ibv_alloc_pd(context)), memory_(new Memory(pd_)) {}
  ~World() {
    for (Side& side : sides_) drop(side);
    memory_.reset();
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void make(ibv_qp_type type, bool shared) {
    type_ = type;
    shared_ = shared;
    for (Side& side : sides_) make(side);
    bring_up();
  }
  void step();
  // Polls until all posted sends have completed, or the broken one has failed.
  void finish();

 private:
  bool datagrams() const { return type_ == IBV_QPT_UD; }
  bool reliable() const { return type_ == IBV_QPT_RC; }
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  void make(Side& side);
  void drop(Side& side);
  void bring_up();
  void bring_up(int which);
  void post_receive(int which);
  void post_message(int which, bool too_long);
  void post_one_sided(int which, ibv_wr_opcode opcode, bool refused);
  void post_atomic(int which);
  void post(int which, ibv_send_wr& wr, Expected expected, const Memory::Slot& local,
            uint32_t bytes);
  void poll();
  void poll(ibv_cq* cq, ModelQueue& model);
  void fail_and_reconnect();

  ibv_context* context_;
  std::mt19937 random_;
  ibv_pd* pd_;
  std::unique_ptr<Memory> memory_;
  Side sides_[2];
  ibv_qp_type type_ = IBV_QPT_RC;
  bool shared_ = false;
  int broken_ = -1;        // the side whose newest work request must fail; -1: none
  bool too_long_ = false;  // it exceeds its receive, which must fail too
  uint64_t next_id_ = 1;
  ibv_ah* handle_ = nullptr;
};

void World::make(Side& side) {
  side.sends = ibv_create_cq(context_, 256, nullptr, nullptr, 0);
  side.receives = ibv_create_cq(context_, 256, nullptr, nullptr, 0);
  if (shared_) {
    ibv_srq_init_attr attr{.srq_context = nullptr,
                           .attr = {.max_wr = kDepth, .max_sge = 3, .srq_limit = 0}};
    side.srq = ibv_create_srq(pd_, &attr);
  }
  ibv_qp_init_attr attr{};
  attr.send_cq = side.sends;
  attr.recv_cq = side.receives;
  attr.srq = side.srq;
  attr.cap = {.max_send_wr = kDepth,
              .max_recv_wr = kDepth,
              .max_send_sge = 3,
              .max_recv_sge = 3,
              .max_inline_data = 256};
  attr.qp_type = type_;
  side.qp = ibv_create_qp(pd_, &attr);
  ASSERT_NE(side.qp, nullptr);
  side.word = memory_->take();
  side.value = random_();
  std::memcpy(side.word.get(), &side.value, sizeof side.value);
}

void World::drop(Side& side) {
  if (handle_ != nullptr) ibv_destroy_ah(handle_);
  handle_ = nullptr;
  EXPECT_EQ(ibv_destroy_qp(side.qp), 0);
  if (side.srq != nullptr) {
    EXPECT_EQ(ibv_destroy_srq(side.srq), 0);
  }
  EXPECT_EQ(ibv_destroy_cq(side.sends), 0);
  EXPECT_EQ(ibv_destroy_cq(side.receives), 0);
  side = Side();
}

// New sequence numbers tell late packets of the previous connection apart.
void World::bring_up() {
  for (Side& side : sides_) side.first_psn = below(1 << 24);
  for (int i = 0; i < 2; ++i) bring_up(i);
}

void World::bring_up(int which) {
  ibv_gid gid;
  ASSERT_EQ(ibv_query_gid(context_, 1, 0, &gid), 0);
  ibv_qp* const qp = sides_[which].qp;
  ibv_qp_attr attr{.qp_state = IBV_QPS_INIT, .qkey = kQueueKey, .qp_access_flags = kAll};
  attr.port_num = 1;
  const int kind = datagrams() ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | kind), 0);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = sides_[1 - which].qp->qp_num;
  attr.rq_psn = sides_[1 - which].first_psn;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = gid;
  int mask = IBV_QP_STATE;
  if (!datagrams()) {
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (reliable()) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  } else if (handle_ == nullptr) {
    handle_ = ibv_create_ah(pd_, &attr.ah_attr);
  }
  ASSERT_EQ(ibv_modify_qp(qp, &attr, mask), 0);
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = sides_[which].first_psn;
  attr.timeout = 18;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (reliable()) {
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  ASSERT_EQ(ibv_modify_qp(qp, &attr, mask), 0);
}

void World::post_receive(int which) {
  Side& side = sides_[which];
  const auto slot = memory_->take();
  if (slot == nullptr || side.received.size() == kDepth) return;
  const uint32_t bytes = kGrhBytes + below(kSlotBytes - kGrhBytes);
  // A scatter list of one to three pieces.
  const uint32_t pieces = 1 + below(3);
  ibv_sge list[3];
  uint32_t at = 0;
  for (uint32_t i = 0; i < pieces; ++i) {
    const uint32_t size = i + 1 == pieces ? bytes - at : below(bytes - at + 1);
    list[i] = {reinterpret_cast<uint64_t>(slot.get() + at), size, memory_->key()};
    at += size;
  }
  ibv_recv_wr wr{.wr_id = next_id_++, .sg_list = list, .num_sge = static_cast<int>(pieces)};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(shared_ ? ibv_post_srq_recv(side.srq, &wr, &bad) : ibv_post_recv(side.qp, &wr, &bad),
            0);
  Expected& expected = side.received.post({.wr_id = wr.wr_id, .opcode = IBV_WC_RECV});
  expected.check = [slot] { return std::string("completed without a message"); };
  side.free.push_back({&expected, slot, bytes});
}

void World::post(int which, ibv_send_wr& wr, Expected expected, const Memory::Slot& local,
                 uint32_t bytes) {
  Side& side = sides_[which];
  const bool reads = wr.opcode == IBV_WR_RDMA_READ || wr.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP;
  const uint32_t cut = below(bytes + 1);
  const bool whole = below(2) == 0 || bytes == 8;
  ibv_sge list[2] = {{reinterpret_cast<uint64_t>(local.get()), whole ? bytes : cut, memory_->key()},
                     {reinterpret_cast<uint64_t>(local.get() + cut), bytes - cut, memory_->key()}};
  wr.wr_id = expected.wr_id = next_id_++;
  wr.sg_list = list;
  wr.num_sge = whole ? 1 : 2;
  expected.bytes = bytes;
  // The last request that fits is signaled; otherwise the queue would stay full.
  expected.signaled = below(4) != 0 || side.sent.size() + 1 == kDepth;
  if (expected.signaled) wr.send_flags |= IBV_SEND_SIGNALED;
  if (bytes <= 256 && !reads && below(2) == 0) wr.send_flags |= IBV_SEND_INLINE;
  if (!datagrams() && below(8) == 0) wr.send_flags |= IBV_SEND_FENCE;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(side.qp, &wr, &bad), 0);
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) fill(local.get(), bytes, 0xDEAD);  // reused
  side.sent.post(std::move(expected));
}

// A send, or a write with immediate, into the other side's oldest receive.
void World::post_message(int which, bool too_long) {
  Side& side = sides_[which];
  Side& other = sides_[1 - which];
  const auto local = memory_->take();
  const auto target = memory_->take();
  if (target == nullptr || other.free.empty() || side.sent.size() == kDepth) return;
  const Side::Free taken = other.free.front();
  const uint32_t seed = below(1 << 20);
  const bool writes = !datagrams() && !too_long && below(3) == 0;
  const bool immediate = writes || below(2) == 0;
  const uint32_t room = datagrams() ? std::min(1024U, taken.bytes - kGrhBytes) : taken.bytes;
  uint32_t bytes = below(2) == 0 ? below(std::min(room, 200U) + 1) : below(room + 1);
  if (too_long) bytes = taken.bytes + 1;
  fill(local.get(), bytes, seed);
  ibv_send_wr wr{.opcode = immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .imm_data = seed};
  if (writes) {
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.wr.rdma = {reinterpret_cast<uint64_t>(target.get()), memory_->key()};
  }
  if (datagrams()) {
    wr.wr.ud = {.ah = handle_, .remote_qpn = other.qp->qp_num, .remote_qkey = kQueueKey};
  }
  Expected expected{.opcode = writes ? IBV_WC_RDMA_WRITE : IBV_WC_SEND,
                    .status = too_long ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS,
                    .check = [local] { return std::string(); }};
  other.free.pop_front();
  Expected& receive = *taken.expected;
  receive.opcode = writes ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  receive.status = too_long ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
  receive.bytes = bytes + (datagrams() ? kGrhBytes : 0);
  receive.with_immediate = immediate;
  receive.immediate = seed;
  const auto place = writes ? target : taken.slot;
  const uint32_t offset = datagrams() ? kGrhBytes : 0;
  receive.check = [place, offset, bytes, seed] {
    return compare(place.get() + offset, bytes, seed);
  };
  if (too_long) broken_ = which;
  too_long_ |= too_long;
  post(which, wr, std::move(expected), local, bytes);
}

void World::post_one_sided(int which, ibv_wr_opcode opcode, bool refused) {
  const auto local = memory_->take();
  const auto remote = memory_->take();
  if (remote == nullptr || sides_[which].sent.size() == kDepth) return;
  const uint32_t bytes = below(3) == 0 ? below(64) + 1 : below(kSlotBytes) + 1;
  const uint32_t seed = below(1 << 20);
  const bool reads = opcode == IBV_WR_RDMA_READ;
  fill(reads ? remote.get() : local.get(), bytes, seed);
  ibv_send_wr wr{.opcode = opcode};
  wr.wr.rdma = {reinterpret_cast<uint64_t>(remote.get()), memory_->key() ^ (refused ? 1U : 0U)};
  if (refused) broken_ = which;
  Expected expected{.opcode = reads ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE,
                    .status = refused ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS};
  // Inline data may be overwritten after the post, so the target is compared.
  const auto place = reads ? local : remote;
  expected.check = [local, remote, place, bytes, seed] {
    return compare(place.get(), bytes, seed);
  };
  post(which, wr, std::move(expected), local, bytes);
}

void World::post_atomic(int which) {
  Side& other = sides_[1 - which];
  const auto local = memory_->take();
  if (local == nullptr || sides_[which].sent.size() == kDepth) return;
  const bool swaps = below(2) == 0;
  const uint64_t before = other.value;
  ibv_send_wr wr{.opcode = swaps ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD};
  wr.wr.atomic.remote_addr = reinterpret_cast<uint64_t>(other.word.get());
  wr.wr.atomic.rkey = memory_->key();
  wr.wr.atomic.compare_add = swaps && below(2) == 0 ? before : random_();
  wr.wr.atomic.swap = random_();
  if (!swaps) {
    other.value += wr.wr.atomic.compare_add;
  } else if (wr.wr.atomic.compare_add == before) {
    other.value = wr.wr.atomic.swap;
  }
  Expected expected{.opcode = swaps ? IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD};
  expected.check = [local, before] {
    uint64_t original = 0;
    std::memcpy(&original, local.get(), sizeof original);
    return original == before ? std::string() : std::string("wrong original value");
  };
  post(which, wr, std::move(expected), local, sizeof(uint64_t));
}

void World::poll(ibv_cq* cq, ModelQueue& model) {
  ibv_wc completions[8];
  const int count = ibv_poll_cq(cq, 8, completions);
  for (int i = 0; i < count; ++i) ASSERT_EQ(model.on_completion(completions[i]), "");
}

void World::poll() {
  for (Side& side : sides_) {
    poll(side.sends, side.sent);
    poll(side.receives, side.received);
  }
}

// Moves both sides to the error state, and brings up the same queue pairs or new ones.
void World::fail_and_reconnect() {
  for (Side& side : sides_) {
    side.sent.may_flush();
    side.received.may_flush();
  }
  const bool looks = below(3) != 0;
  for (Side& side : sides_) {
    ibv_qp_attr attr{.qp_state = IBV_QPS_ERR};
    if (looks) {
      ASSERT_EQ(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE), 0);
    }
  }
  for (int i = 0; looks && i < 40; ++i) poll();
  for (Side& side : sides_) {
    EXPECT_TRUE(!looks || side.sent.drained());
    EXPECT_TRUE(!looks || shared_ || side.received.drained());
  }
  broken_ = -1;
  too_long_ = false;
  // UD and UC need new queue pairs, as late packets would reach the old numbers; shared receives
  // too, as they outlive a reset.
  if (shared_ || !reliable() || below(2) == 0) {
    for (Side& side : sides_) drop(side);
    return make(type_, shared_);
  }
  for (Side& side : sides_) {
    ibv_qp_attr attr{.qp_state = IBV_QPS_RESET};
    ASSERT_EQ(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE), 0);
    side.sent.clear();
    side.received.clear();
    side.free.clear();
    std::memcpy(&side.value, side.word.get(), sizeof side.value);
  }
  bring_up();
}

void World::step() {
  const int which = static_cast<int>(below(2));
  const uint32_t choice = below(100);
  if (choice < 25) return post_receive(which);
  if (choice < 45) return post_message(which, false);
  if (choice < 70) return poll();
  if (choice == 70) return fail_and_reconnect();
  if (!reliable()) return poll();  // a UC write may complete before it arrives
  if (choice < 80) return post_one_sided(which, IBV_WR_RDMA_WRITE, false);
  if (choice < 90) return post_one_sided(which, IBV_WR_RDMA_READ, false);
  if (choice < 98) return post_atomic(which);
  if (choice == 98) {
    post_one_sided(which, below(2) == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, true);
  } else {
    post_message(which, true);
  }
  if (broken_ >= 0) finish();
}

void World::finish() {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  // The broken request fails with its own status; all others may then be flushed.
  const bool broken = broken_ >= 0;
  if (broken) {
    sides_[broken_].received.may_flush();
    if (!too_long_) sides_[1 - broken_].received.may_flush();
    sides_[1 - broken_].sent.may_flush();
  }
  const auto done = [&] {
    if (broken && too_long_ && !sides_[1 - broken_].received.failed()) return false;
    return broken ? sides_[broken_].sent.failed()
                  : sides_[0].sent.drained() && sides_[1].sent.drained();
  };
  while (!done() && !::testing::Test::HasFatalFailure()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    poll();
  }
  if (broken) fail_and_reconnect();
}

TEST(VerbsDevice, CompletionsMatchTheModel) {
  OwnVerbsDevice device;
  ASSERT_NE(device.context(), nullptr);
  uint32_t first = 1;
  uint32_t count = 8;
  if (const char* const seeds = std::getenv("VERBS_SEEDS"); seeds != nullptr) {
    ASSERT_EQ(std::sscanf(seeds, "%u:%u", &first, &count), 2);
  }
  for (uint32_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(seed);
    World world(device.context(), seed);
    constexpr ibv_qp_type kTypes[] = {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UD, IBV_QPT_UC};
    world.make(kTypes[seed % 4], seed % 8 == 0 || seed % 8 == 7);
    for (int i = 0; i < 1500 && !HasFatalFailure(); ++i) world.step();
    if (!HasFatalFailure()) world.finish();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace pacecar::test::device_property

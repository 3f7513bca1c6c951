// A program may be built with a later version of libibverbs, whose structures are longer: fields
// that the device does not know are 0, as with libibverbs itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/support/own_verbs_device.h"

namespace pacecar::test::attributes_test {
namespace {

constexpr uint8_t kUntouched = 0xa5;

// A structure that is longer than the device knows.
template <typename Known>
struct Longer {
  Longer() { bytes.fill(kUntouched); }
  Known* known() { return reinterpret_cast<Known*>(bytes.data()); }
  void expect_rest_is_zero() const {
    EXPECT_EQ(std::count(bytes.begin() + sizeof(Known), bytes.end(), 0),
              static_cast<ptrdiff_t>(bytes.size() - sizeof(Known)));
  }

  alignas(Known) std::array<uint8_t, sizeof(Known) + 16> bytes{};
};

TEST(VerbsDeviceAttributes, FieldsOfALaterVersionAreZero) {
  OwnVerbsDevice device;
  ibv_context* const context = device.context();
  ASSERT_NE(context, nullptr);
  const verbs_context* const verbs = verbs_get_ctx(context);
  Longer<ibv_port_attr> port;
  ASSERT_EQ(verbs->query_port(context, 1, port.known(), port.bytes.size()), 0);
  EXPECT_EQ(port.known()->state, IBV_PORT_ACTIVE);
  port.expect_rest_is_zero();
  Longer<ibv_device_attr_ex> whole;
  ASSERT_EQ(verbs->query_device_ex(context, nullptr, whole.known(), whole.bytes.size()), 0);
  EXPECT_EQ(whole.known()->phys_port_cnt_ex, 1);
  whole.expect_rest_is_zero();
  Longer<ibv_gid_entry> gid;
  ASSERT_EQ(_ibv_query_gid_ex(context, 1, 0, gid.known(), 0, gid.bytes.size()), 0);
  EXPECT_EQ(gid.known()->gid_type, static_cast<uint32_t>(IBV_GID_TYPE_ROCE_V2));
  gid.expect_rest_is_zero();
}

// A program built with an earlier version has shorter structures.
TEST(VerbsDeviceAttributes, NothingIsWrittenBehindAShorterStructure) {
  OwnVerbsDevice device;
  ibv_context* const context = device.context();
  ASSERT_NE(context, nullptr);
  Longer<ibv_port_attr> port;
  constexpr size_t kShort = sizeof(ibv_port_attr) - 8;
  ASSERT_EQ(verbs_get_ctx(context)->query_port(context, 1, port.known(), kShort), 0);
  EXPECT_TRUE(std::all_of(port.bytes.begin() + kShort, port.bytes.end(),
                          [](uint8_t byte) { return byte == kUntouched; }));
}

// The caller gets an errno only; the log says which limit it is.
TEST(VerbsDeviceAttributes, RefusalsAreExplained) {
  OwnVerbsDevice device;
  ibv_context* const context = device.context();
  ASSERT_NE(context, nullptr);
  ibv_pd* const domain = ibv_alloc_pd(context);
  ibv_cq* const queue = ibv_create_cq(context, 4, nullptr, nullptr, 0);
  ibv_qp_init_attr init{.send_cq = queue,
                        .recv_cq = queue,
                        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_inline_data = 1025},
                        .qp_type = IBV_QPT_RC};
  testing::internal::CaptureStderr();
  EXPECT_EQ(ibv_create_qp(domain, &init), nullptr);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "pacecar: ibv_create_qp: max_inline_data is 1025: ask for 1024 at most\n");
  init.cap.max_inline_data = 0;
  ibv_qp* const pair = ibv_create_qp(domain, &init);
  ASSERT_NE(pair, nullptr);
  ibv_qp_attr attr{.qp_state = IBV_QPS_INIT, .pkey_index = 0, .port_num = 1};
  ASSERT_EQ(ibv_modify_qp(pair, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  testing::internal::CaptureStderr();
  EXPECT_EQ(ibv_modify_qp(pair, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            EINVAL);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("no GRH"), std::string::npos);
  ibv_destroy_qp(pair);
  ibv_destroy_cq(queue);
  ibv_dealloc_pd(domain);
}

TEST(VerbsDeviceAttributes, NicsOfOtherKindsAreLeftOut) {
  setenv("PACECAR_NICS", "soft:udp:lo,ofi:tcp,soft:raw:lo,soft:dpdk:net_null0", 1);
  int count = -1;
  ibv_device** const list = ibv_get_device_list(&count);
  ASSERT_NE(list, nullptr);
  ASSERT_GE(count, 1);
  EXPECT_STREQ(ibv_get_device_name(list[0]), "pacecar_lo");
  EXPECT_TRUE(count == 1 || std::string(ibv_get_device_name(list[1])).substr(0, 7) != "pacecar");
  ibv_free_device_list(list);
}

}  // namespace
}  // namespace pacecar::test::attributes_test

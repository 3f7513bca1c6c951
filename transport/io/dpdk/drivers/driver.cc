#include "transport/io/dpdk/drivers/driver.h"

#include <algorithm>
#include <array>

namespace pacecar {
namespace {

constexpr std::array kDrivers = {
    DpdkDriver{.name = "net_ring", .is_memory = true, .has_slots = true},
    DpdkDriver{.name = "net_af_packet",
               .copies_on_send = true,
               .has_slots = true,
               .defaults = "framesz=10240,blocksz=40960,framecnt=512"},
    // virtio's own header precedes a frame.
    DpdkDriver{.name = "net_virtio_user", .needs_link_interrupts = true, .room_before = 12},
    DpdkDriver{.name = "net_vhost", .copies_on_send = true, .has_slots = true},
    DpdkDriver{
        .name = "net_tap", .copies_on_send = true, .kernel_is_peer = true, .shared = "remote"},
};
constexpr DpdkDriver kNic{};

}  // namespace

const DpdkDriver& dpdk_driver(std::string_view name) {
  const auto it = std::ranges::find(kDrivers, name, &DpdkDriver::name);
  return it == kDrivers.end() ? kNic : *it;
}

}  // namespace pacecar

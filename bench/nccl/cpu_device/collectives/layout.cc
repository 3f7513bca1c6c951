#include "bench/nccl/cpu_device/collectives/layout.h"

#include <algorithm>
#include <array>
#include <string>

namespace pacecar::nccl::cpu {
namespace {

constexpr Layout k222{
    .first_version = 22203,
    .last_version = 22203,
    .name = "2.22.3",
    .comm = {.work_consumed = 32,
             .abort_flag = 48,
             .work_started = kAbsent,
             .work_completed = kAbsent,
             .channel_array = 64},
    .channel = {.bytes = 368, .ring_index = 16, .tree = 32, .work_counter = kAbsent},
    .collective = {.bytes = 64,
                   .registered_bytes = 256,
                   .receive = 8,
                   .send = 16,
                   .counts = 24,
                   .chunks = 48,
                   .operand = 56,
                   .operand_is_pointer = 1U << 24,
                   .registered = 3U << 25,
                   .net_registered = 0,
                   .one_rank_per_node = 0,
                   .profiled = 0},
    .p2p_profiled_bit = kAbsent,
    .reversed_parts = true,
    .signed_divisor = false,
    .functions = {.types = 10, .pat = false, .all_gather_v = false}};

constexpr Layout k228{.first_version = 22809,
                      .last_version = 22809,
                      .name = "2.28.9",
                      .comm = {.work_consumed = kAbsent,
                               .abort_flag = 48,
                               .work_started = 72,
                               .work_completed = 80,
                               .channel_array = 96},
                      .channel = {.bytes = 368, .ring_index = 16, .tree = 32, .work_counter = 352},
                      .collective = {.bytes = 96,
                                     .registered_bytes = 288,
                                     .receive = 8,
                                     .send = 16,
                                     .counts = 56,
                                     .chunks = 80,
                                     .operand = 88,
                                     .operand_is_pointer = 1U << 24,
                                     .registered = 1U << 25,
                                     .net_registered = 1U << 26,
                                     .one_rank_per_node = 1U << 30,
                                     .profiled = 1U << 31},
                      .p2p_profiled_bit = 6,
                      .reversed_parts = false,
                      .signed_divisor = true,
                      .functions = {.types = 12, .pat = true, .all_gather_v = false}};

constexpr Layout with_rank_to_index() {  // in the ring, before its index
  Layout layout = k228;
  layout.first_version = layout.last_version = 22907;
  layout.name = "2.29.7";
  layout.channel = {.bytes = 368, .ring_index = 24, .tree = 40, .work_counter = 360};
  layout.functions.all_gather_v = true;
  return layout;
}

constexpr std::array kLayouts{k222, k228, with_rank_to_index()};

}  // namespace

const Layout* layout_of(int version) {
  const auto found = std::ranges::find_if(kLayouts, [&](const Layout& one) {
    return version >= one.first_version && version <= one.last_version;
  });
  return found == kLayouts.end() ? nullptr : &*found;
}

const char* known_versions() {
  static const std::string names = [] {
    std::string text;
    for (const Layout& one : kLayouts) text += (text.empty() ? "" : ", ") + std::string(one.name);
    return text;
  }();
  return names.c_str();
}

}  // namespace pacecar::nccl::cpu

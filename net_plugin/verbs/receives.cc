#include "net_plugin/verbs/receives.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "net_plugin/verbs/objects.h"

namespace pacecar::ibverbs {

uint8_t* locate(ProcessNic& nic, const ibv_pd* pd, const ibv_sge& piece, bool write) {
  const auto found = nic.regions().find(piece.lkey);
  if (found == nic.regions().end()) return nullptr;
  const Region& region = *found->second;
  if (region.pd != pd || (write && (region.access & IBV_ACCESS_LOCAL_WRITE) == 0)) return nullptr;
  const uint64_t offset = piece.addr - region.iova;
  if (piece.length > region.length || offset > region.length - piece.length) return nullptr;
  return static_cast<uint8_t*>(region.addr) + offset;
}

Bytes total_of(const ibv_sge* pieces, int count) {
  Bytes total = 0;
  for (int i = 0; i < count; ++i) total += pieces[i].length;
  return total;
}

int Receives::prepare(ProcessNic& nic, const ibv_pd* pd, const ibv_recv_wr& wr,
                      ReceiveRequest* request) {
  if (wr.num_sge < 0 || wr.num_sge > kMaxSge) return EINVAL;
  if (free_.empty()) return ENOMEM;
  const uint32_t number = free_.back();
  Slot& slot = slots_[number];
  *request = ReceiveRequest{.id = number, .length = total_of(wr.sg_list, wr.num_sge)};
  slot.pieces.clear();
  for (int i = 0; i < wr.num_sge; ++i) {
    if (wr.sg_list[i].length == 0) continue;
    uint8_t* const place = locate(nic, pd, wr.sg_list[i], true);
    if (place == nullptr) return EINVAL;
    slot.pieces.emplace_back(place, wr.sg_list[i].length);
    request->local = place;
    request->local_key = wr.sg_list[i].lkey;
  }
  if (slot.pieces.size() > 1) {
    slot.staging = nic.staging().take(request->length);
    if (slot.staging.data == nullptr) return ENOMEM;
    request->local = slot.staging.data;
    request->local_key = slot.staging.key;
  }
  free_.pop_back();
  slot.wr_id = wr.wr_id;
  slot.order = order_++;
  slot.posted = true;
  return 0;
}

uint64_t Receives::finish(ProcessNic& nic, uint64_t slot, Bytes bytes) {
  const Slot& done = slots_[slot];
  if (done.staging.data != nullptr) {
    const uint8_t* from = done.staging.data;
    for (const auto& [place, length] : done.pieces) {
      const size_t size = std::min<Bytes>(length, bytes);
      std::memcpy(place, from, size);
      from += size;
      bytes -= size;
    }
  }
  release(nic, static_cast<uint32_t>(slot));
  return done.wr_id;
}

void Receives::release(ProcessNic& nic, uint32_t slot) {
  nic.staging().give_back(slots_[slot].staging);
  slots_[slot].staging = {};
  slots_[slot].posted = false;
  free_.push_back(slot);
}

std::vector<uint64_t> Receives::drop_all(ProcessNic& nic) {
  std::vector<uint32_t> left;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].posted) left.push_back(i);
  }
  std::ranges::sort(left, {}, [this](uint32_t slot) { return slots_[slot].order; });
  std::vector<uint64_t> ids;
  for (const uint32_t slot : left) {
    ids.push_back(slots_[slot].wr_id);
    release(nic, slot);
  }
  return ids;
}

}  // namespace pacecar::ibverbs

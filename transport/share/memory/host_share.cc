#include "transport/share/memory/host_share.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "transport/base/printable.h"
#include "transport/base/return_if_error.h"

namespace pacecar {

std::string link_name(std::string_view device, uint64_t guid) {
  return fmt::format("{}-{:016x}", device, guid);
}

Result<std::unique_ptr<HostShare>> HostShare::open(std::string_view link, Rate capacity,
                                                   Instant now, const std::string& directory) {
  ASSIGN_OR_RETURN(auto process, LiveProcess::make());
  ASSIGN_OR_RETURN(auto memory, open_share_memory(directory, link));
  std::unique_ptr<HostShare> share(new HostShare(std::move(memory), std::move(process), capacity));
  if (!share->member_.join(now)) {
    return fail(ErrorCode::kUnavailable,
                "all its slots are in use: run fewer processes on one NIC");
  }
  return share;
}

HostShare::HostShare(ShareMemory memory, std::unique_ptr<LiveProcess> process, Rate capacity)
    : memory_(std::move(memory)),
      process_(std::move(process)),
      member_(*memory_, *process_, program_invocation_short_name, capacity) {}

Result<std::vector<LinkSharer>> link_sharers(std::string_view link, Instant now,
                                             const std::string& directory) {
  ASSIGN_OR_RETURN(const auto self, LiveProcess::make());
  ASSIGN_OR_RETURN(const auto memory, find_share_memory(directory, link));
  std::vector<LinkSharer> sharers;
  for (const ShareTable::Slot& slot : memory->slots) {
    const uint64_t owner = slot.owner.load();
    if (owner == 0 || self->ended(owner)) continue;
    LinkSharer& sharer = sharers.emplace_back();
    sharer.process = OwnerWord::decode(owner).process;
    sharer.hidden = self->hidden(owner);
    std::array<char, sizeof slot.name> name{};
    for (size_t i = 0; i < slot.name.size(); ++i) {
      const uint64_t letters = slot.name[i].load();
      std::memcpy(name.data() + i * sizeof letters, &letters, sizeof letters);
    }
    sharer.program = printable(std::string_view(name.data(), strnlen(name.data(), name.size())));
    for (size_t i = 0; i < slot.directions.size(); ++i) {
      const auto& direction = slot.directions[i];
      sharer.directions[i] = {.claim = ClaimWord::decode(direction.claim.load()),
                              .taking = Rate::from_bps(direction.taking.load()),
                              .learnt = Rate::from_bps(direction.learnt.load()),
                              .lives = share_beat_lives(direction.beat.load(), now)};
      sharer.directions[i].lives &= sharer.directions[i].claim.demand.bps() > 0;
    }
  }
  return sharers;
}

}  // namespace pacecar

#include "transport/share/share_member.h"

namespace pacecar {

template class BasicShareSeat<std::atomic<uint64_t>>;
template class BasicShareLink<std::atomic<uint64_t>>;
template class BasicShareMember<std::atomic<uint64_t>>;

}  // namespace pacecar

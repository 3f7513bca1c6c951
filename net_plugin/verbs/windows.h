// Memory windows: parts of registered regions with their own keys. ibv_bind_mw binds a window of
// type 1, and gives it a new key, which is valid on all queue pairs. A work request binds a window
// of type 2 to a key whose lower 8 bits the program chooses; the key is valid on the queue pair of
// the work request, until a work request of this end or of the peer invalidates it.
// Binding and invalidation take effect when they are posted.
// Thread rule: call with the NIC's mutex held.
#pragma once

#include "net_plugin/verbs/queue_pair.h"

namespace pacecar::ibverbs {

// IBV_WR_BIND_MW, for both types; length 0 unbinds a window of type 1. 0, or an errno.
int bind_window(QueuePair& by, const ibv_send_wr& wr);
int invalidate(QueuePair& by, uint32_t key);         // IBV_WR_LOCAL_INV. 0, or an errno.
void on_invalidated(ProcessNic& nic, uint32_t key);  // The peer has invalidated the window.
// Unbinds the queue pair's windows of type 2, as its connection ends.
void unbind_windows_of(QueuePair& qp);

}  // namespace pacecar::ibverbs

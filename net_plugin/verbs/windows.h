// Memory windows: parts of registered regions with keys of their own. A window of type 1 is bound
// to memory by ibv_bind_mw, which gives it another key; its key serves every queue pair. One of
// type 2 is bound by a work request to a key of the program's choice (the upper 24 bits stay),
// serves the queue pair that has bound it, and is invalidated by a work request of ours or of the
// peer.
//
// Binding and invalidation take effect when they are posted.
//
// Thread rule: with the NIC's mutex held.
#pragma once

#include "net_plugin/verbs/queue_pair.h"

namespace pacecar::ibverbs {

// IBV_WR_BIND_MW, of either type. An errno; 0: bound, or of length 0 unbound (type 1).
int bind_window(QueuePair& by, const ibv_send_wr& wr);
// IBV_WR_LOCAL_INV. An errno; 0: invalid now.
int invalidate(QueuePair& by, uint32_t key);
// The peer has invalidated the window.
void on_invalidated(ProcessNic& nic, uint32_t key);
// The queue pair's windows of type 2 end with its connection.
void unbind_windows_of(QueuePair& qp);

}  // namespace pacecar::ibverbs

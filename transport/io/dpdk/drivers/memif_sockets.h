// The control sockets of net_memif of DPDK 22.11, which ends the process in two cases that this
// file prevents:
//
// - A client leaves before the server greets it. The server closes the connection, but the EAL's
//   interrupt thread still waits for it and panics. So our clients wait until they are greeted.
//   Anyone who may connect to a server can crash it so; therefore the socket's file is accessible
//   to its user alone, and abstract names, to which everybody on the host may connect, cause a
//   warning.
// - A server's device is closed. Its listener stays open, the interrupt thread still waits for it,
//   and it refers to freed memory. So retire_memif_listener() replaces it.
//
// The driver hides its sockets: they are found by the name in its argument "socket". Thread rule:
// any thread.
#pragma once

#include <string>
#include <string_view>

#include "transport/base/log.h"
#include "transport/io/dpdk/device.h"

namespace pacecar {

// The name of the device's socket; empty for another driver's.
std::string memif_socket(const DpdkDevice& device);
bool is_memif_client(const DpdkDevice& device);

// Before a server is attached: removes the file of a socket without a listener. A killed server
// leaves it, and its successor could not listen there.
void remove_dead_memif_socket(const DpdkDevice& device);
// Afterwards: makes the file accessible to its user alone, or warns.
void protect_memif_socket(const DpdkDevice& device, const LogSink& log);

// Whether a client of this process has a connection to the server, greeted or not.
bool memif_client_is_connected(std::string_view socket);

// Call it on the interrupt thread, after the last device with this socket has been closed. Rejects
// waiting clients. Leaks one descriptor.
void retire_memif_listener(std::string_view socket);

}  // namespace pacecar

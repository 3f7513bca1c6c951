// HostLink: one direction of a NIC's link that several processes of a host share. Every process
// publishes what its flows could use; all compute the same weighted max-min parts from the same
// data:
//   sum over processes of min(W_p * mu, d_p) = C;  part of p = min(W_p * mu, d_p)
// A smaller part takes effect at once, a larger one when the other parts have been cut for it:
// parts in use never exceed C in total for longer than one poll of the slowest process.
// Purity as for Controller: an implementation reads and writes memory, nothing else. One thread.
#pragma once

#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

// A process that cannot see other users of its NIC begins at 1/8 of the known link rate, so that up
// to 8 such processes that begin together stay within the link.
inline constexpr uint64_t kUnseenProcesses = 8;
// The first rate where the link's rate is not known; NCCL assumes the same of such devices.
// A message shorter than this rate times a round trip never fills the link, so it cannot show that
// the link has more; on slower links the first window bounds the queue.
inline constexpr Rate kUnknownLinkFirstRate = Rate::from_gbps(10);

// One process's claim to its NIC's link, in one direction.
struct LinkClaim {
  Rate demand;          // what all of its active flows could use; 0: none is active
  uint32_t weight = 0;  // sum of the active flows' weights
  bool ready = false;   // idle flows may begin at any time

  bool operator==(const LinkClaim&) const = default;
};

class HostLink {
 public:
  virtual ~HostLink() = default;

  // Publishes the claim and takes our part. Call it when the claim changes or due() is true.
  virtual void claim(Instant now, const LinkClaim& claim) = 0;
  // claim() must be called: another claim has changed, or time has passed. Usually one load.
  virtual bool due(Instant now) const = 0;
  // When due() becomes true even if no process changes its claim; Instant::never(): no demand.
  virtual Instant next_deadline() const = 0;

  // This process's place among the users of the link: each has a different one, usually small.
  virtual uint32_t place() const = 0;
  // What this process may use now; the whole link while no other uses it.
  virtual Rate part() const = 0;
  // The part if this process demanded the whole link, with the others' demands of the last claim.
  virtual Rate reach() const = 0;
  // The part with `weight` if this process and every ready one demanded the whole link.
  virtual Rate prospect(uint32_t weight) const = 0;
  // Own weight over the weight of all processes with active flows, at the last claim; 1 if alone.
  virtual double share_of_weights() const = 0;
  // The fair part, by weight, of the sum of the rates that the host's processes have learnt and
  // fully use. `learnt` is this process's rate, which this call publishes; 0: it has learnt none.
  virtual Rate fair_part(Rate learnt) = 0;
  virtual Rate used_by_others() const = 0;  // The rate at which other processes use the link.
};

}  // namespace pacecar

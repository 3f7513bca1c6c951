// HostLink: one direction of a NIC's link, of which several processes of a host use a part each.
// Every process publishes what its flows could use; all compute the same weighted max-min shares
// from the same data:
//
//   sum over processes of min(W_p * mu, d_p) = C;  part of p = min(W_p * mu, d_p)
//
// A smaller part counts at once, a larger one when the parts of others have been cut for it: parts
// in use never add up to more than C for longer than one poll of the slowest process.
//
// Purity as for Controller: an implementation reads and writes memory, nothing else. One thread.
#pragma once

#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

// What a process uses of a told rate at first where it cannot see others who may use the same NIC:
// up to this many that begin together stay within the link.
inline constexpr uint64_t kUnseenProcesses = 8;
// What is used first where the rate of the link is not known: what NCCL assumes of such devices.
// Messages of less than this moves in a round trip never use enough of it to show that more is
// there; on slower links the first window bounds what waits.
inline constexpr Rate kUntoldFirstRate = Rate::from_gbps(10);

// What one process could do with its NIC's link, in one direction.
struct LinkClaim {
  Rate demand;          // what all of its active flows could use; 0: none is active
  uint32_t weight = 0;  // sum of the active flows' weights
  bool ready = false;   // idle flows may begin at any time

  bool operator==(const LinkClaim&) const = default;
};

class HostLink {
 public:
  virtual ~HostLink() = default;

  // Publishes what this process could use, and takes its part. Call it when the claim has changed,
  // and whenever due() says so.
  virtual void claim(Instant now, const LinkClaim& claim) = 0;
  // Others have changed something, or the passing of time has. One load from memory as a rule.
  virtual bool due(Instant now) const = 0;
  // When due() becomes true by the passing of time alone; Instant::never() without a demand.
  virtual Instant next_deadline() const = 0;

  // Of this process: others that use the link have others, small ones as a rule.
  virtual uint32_t place() const = 0;
  // What this process may use now; the whole link while it has it for itself.
  virtual Rate part() const = 0;
  // Part if this process demanded the whole link beside the others' demands at the last claim.
  virtual Rate reach() const = 0;
  // Part with `weight` if this process and every ready one demanded the whole link.
  virtual Rate prospect(uint32_t weight) const = 0;
  // Own weight over that of all whose flows are active, as of the last claim; 1 for one alone.
  virtual double share_of_weights() const = 0;
  // The fair part, by weight, of all that the link gives to those of the host's processes that have
  // learnt what it gives them and use that. `learnt` is this process's own, published hereby; 0: it
  // is none of them.
  virtual Rate fair_part(Rate learnt) = 0;
  // Of the link, in use by other processes.
  virtual Rate used_by_others() const = 0;
};

}  // namespace pacecar

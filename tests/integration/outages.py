"""Links that are down for a while, of hosts that are network namespaces."""

import random

import namespaces
from limits import ALL

MOST_S = 30 if ALL else 3  # the silence limit is 0.6 of PACECAR_TIMEOUT, 36 s
ADDRESS_LATE_S = 0.5  # IPv6 addresses vanish with the link, and are given back this much later


def cut(member, interfaces, seconds, addresses=()):
    """Takes a host's interfaces down, and up again after `seconds`. `addresses`: of IPv6, which
    the first one gets again. All in the namespace: entering it can take longer than an outage."""
    each = [f"ip link set {name}" for name in interfaces]
    script = [*(f"{one} down" for one in each), f"sleep {seconds}", *(f"{one} up" for one in each)]
    if addresses:
        script += [f"sleep {ADDRESS_LATE_S}",
                   *(f"ip address replace {one} dev {interfaces[0]} nodad" for one in addresses)]
    namespaces.command(*namespaces.prefix(member), "sh", "-ec", "; ".join(script))


def disturb(members, choices, over, seed, addresses=None):
    """Outages of 0.1 s to MOST_S until the event `over`, at one host after the other, each of one
    of the `choices` of interfaces. `addresses`: of each host, for cut(). Returns their lengths."""
    draw = random.Random(seed)
    lengths = []
    while not over.wait(draw.random()):
        seconds = round(0.1 * (10 * MOST_S) ** draw.random(), 2)  # short ones as often as long ones
        member = len(lengths) % len(members)
        cut(members[member], draw.choice(choices), seconds, addresses[member] if addresses else ())
        lengths.append(seconds)
    return lengths

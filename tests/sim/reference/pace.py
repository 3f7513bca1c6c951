"""Fluid reference of the congestion control `pace`, written from spec.md alone.

Times in seconds, rates in bit/s on the wire, sizes in bytes of payload; steps of 1/50 of the base
round trip. Data, acknowledgements and words take half a round trip. Only receivers' links queue.
Left out: X, loss, jitter (J = 0), the grid, processes of a host, b of senders, delay in the core.
"""
import heapq

PACKET, PAYLOAD, SMALL = 4206, 4096, 106    # bytes on the wire; of payload; of a word or an ack
WIRE = PACKET / PAYLOAD * 8                 # bits on the wire per byte of payload
STEPS, NEVER = 50, float("inf")             # steps in a round trip
(OPENING, ASKING, OBEYING, LEADING), (LASTING, ENDING, DONE) = range(4), range(3)

def level(available, weights, limits):
    """L with the sum of min(w L, limit) = available; None if the limits add up to no more."""
    left, weight = available, sum(weights)
    for limit, w in sorted(zip(limits, weights), key=lambda each: each[0] / each[1]):
        if limit * weight >= left * w:
            return left / weight if sum(limits) > available else None
        left, weight = left - limit, weight - w

class Flow:
    """One message of `size` bytes that starts at `start`, with the state of both ends."""
    def __init__(self, source, destination, size, start=0.0, weight=1):
        self.source, self.destination, self.size = source, destination, size
        self.start, self.weight = start, weight
        self.grant, self.granted_at, self.guessed, self.busy = 0.0, 0.0, True, False    # newest
        self.phase, self.brief, self.credit, self.core = OPENING, False, 0.0, 0.0
        self.demanded = self.rate = self.sent = self.acked = 0.0
        # the receiver: demanded ever, newest demand (0 when all is here), bytes; grants sent
        self.wanted, self.usable, self.received = False, 0.0, 0.0
        self.g, self.g_before, self.g_at, self.ending, self.woke_at = 0.0, 0.0, -1.0, LASTING, -1.0
        self.received_at, self.finish, self.arrived = None, None, []    # arrived: per sample

class Sender:
    """A host that sends over a cable of `cable` bit/s of which it may use `line`."""
    def __init__(self, world, flows, cable, line):
        self.world, self.flows, self.cable, self.line = world, flows, cable, line
        self.backlogged, self.changed, self.acks = [], True, 0.0

    def begin(self, f):
        f.brief = f.size <= self.world.payload(self.line)
        f.phase = ASKING if f.busy else OPENING if f.guessed or f.brief else OBEYING
        f.credit = max(self.world.payload(f.grant) / 4, PAYLOAD)
        f.granted_at, self.changed = self.world.now, True   # an idle flow's grant does not age
        self.backlogged.append(f)

    def on_grant(self, f, g, guessed, busy):
        f.grant, f.guessed, f.busy, f.granted_at = g, guessed, busy, self.world.now
        self.changed = True
        if f in self.backlogged and (busy or not guessed or f.phase != OPENING):
            leads = 0 < 0.6 * f.demanded <= g and (f.phase == LEADING or len(self.flows) > 1)
            f.phase = ASKING if busy else LEADING if leads else OBEYING

    def granted(self, f, n):
        """The rate that the newest grant stands for, with n flows that have a backlog."""
        g, age, share = f.grant, self.world.now - f.granted_at, len(self.flows) / n
        if age > 2 * self.world.validity:    # ungoverned
            return self.line
        if f.phase == OPENING:
            left = max(0.0, 1 - self.world.payload(g) / 2 / f.size)
            g = g * (share if f.brief else min(share, 4)) if f.guessed else g / (left or 1e-9)
        if f.brief and f.weight == 1 and (f.phase == LEADING or n > 1 and g * n >= 0.6 * self.line):
            g = max(g, self.line * min(3 / n, 1))
        return g / 2 if age > self.world.validity else g

    def step(self):
        w = self.world
        for f in self.backlogged:            # c of a clear core: + C/64 doubled once, twice
            trips = (w.now - f.start) / w.round_trip
            core = self.line * (15 / 16 if trips < 2 else 31 / 32 if trips < 3.25 else 1)
            f.core, self.changed = core, self.changed or core != f.core
        if self.changed:
            self.divide()
        room = self.cable - self.acks * SMALL / PAYLOAD * 8 / w.dt      # less acknowledgements
        scale = min(1.0, room / max(1.0, sum(f.rate for f in self.backlogged)))
        for f in self.backlogged:
            limit = min(f.size, f.acked + w.payload(f.rate) * 11 / 8 + 4 * PAYLOAD)
            asks = f.phase == ASKING and w.now < f.start + 2 * w.round_trip
            limit = min(limit, f.credit if asks else NEVER)
            size = min(f.rate * scale * w.dt / WIRE, limit - f.sent)
            if size > 0:
                f.sent += size
                w.data[w.ahead].setdefault(f.destination, []).append((f, size))
                if f.sent >= f.size - 1:
                    f.rate, self.changed = 0.0, True

    def divide(self):
        """Rates of the flows with something to send, and the demands that follow from them."""
        self.changed = False
        flows = [f for f in self.backlogged if f.sent < f.size - 1]
        limits = [min(self.granted(f, len(flows)), f.core) for f in flows]
        L, spare = level(self.line, [f.weight for f in flows], limits), self.line - sum(limits)
        shares = [self.line if L is None else f.weight * L for f in flows]
        queued = [f.brief and f.weight == 1 for f in flows]
        left = sum(min(s, limit) for s, limit, queue in zip(shares, limits, queued) if queue)
        for f, share, limit, queue in zip(flows, shares, limits, queued):
            f.rate = min(left if queue else share, limit)
            left -= f.rate if queue else 0.0
            usable = min(limit + spare, self.line) if L is None else min(f.core, share)
            low = min(usable, f.demanded) / f.grant
            by = NEVER if low > 2 else 1 / 4 if low > 33 / 32 else 1 / 32
            if (abs(usable / f.demanded - 1) > by if f.demanded
                    else f.size - f.acked > self.world.payload(f.rate) / 4):
                f.demanded = usable
                self.world.word(self.world.receivers[f.destination].on_demand, f, usable)

class Receiver:
    """A host that receives over a cable of `line` bit/s and takes it for one of `C`."""
    def __init__(self, world, flows, line, C, sender):
        self.world, self.flows, self.C, self.used = world, flows, C, C
        self.sender, self.queue, self.full = sender, [], line * world.dt / WIRE  # bytes a step
        self.usual = 4 * PACKET * 8 / C
        self.episodes, self.most, self.episode_at = [], 0, -NEVER
        self.is_busy, self.busy_since, self.pass_at, self.repeat_at = False, NEVER, NEVER, NEVER
        self.drain, self.window_end, self.least, self.delay = 0.0, 0.0, NEVER, 0.0  # section 5
        # section 6: b, what a cut takes off for a while; looks
        self.b, self.dip, self.dip_until, self.next_look, self.bytes = C, 1.0, 0.0, 0.0, 0.0
        self.looks, self.delays, self.fine_at, self.doubled = [0.0] * 7, [], 0.0, 1 / 128
        self.cut_at, self.cut_delay, self.cut_b, self.raised_at = -1.0, 0.0, NEVER, 0.0

    def active(self):
        return [f for f in self.flows if f.usable > 0]
    def expected(self):
        newest = sorted(self.episodes[-5:])  # none: the flows with receives posted
        posted = sum(f.received_at is None for f in self.flows)
        return newest[len(newest) // 2] if newest else max(1, posted)
    def available(self, flows):
        line, drain = min(self.C, self.b) * self.dip, self.drain if self.b >= self.C else 0.0
        return (1.0 if flows == 1 else 0.985) * line - drain
    def hold(self):
        return self.available(self.expected()) / self.expected()

    def on_demand(self, f, usable):
        now, first = self.world.now, not f.wanted
        f.wanted, f.usable = True, 0.0 if f.received_at else usable
        if first and now > self.episode_at + self.world.round_trip:
            self.episodes += [self.most] if self.most else []   # counts when the next one begins
            self.episode_at, self.most = now, 0
            self.tell_idle(1 / 5)
        f.woke_at = now if first else f.woke_at
        self.most = max(self.most, len(self.active()))
        if len(self.active()) == 1 and (self.expected() == 1 or not first):
            self.send(f, self.available(1))
        self.pass_at = min(self.pass_at, now + 1e-6)

    def tell_idle(self, by):
        for f in self.flows:
            if not f.wanted and abs(self.hold() / f.g - 1) >= by:
                self.send(f, self.hold())

    def send(self, f, g, after=0.0):
        guessed, busy = not (self.episodes or self.active()), self.is_busy and not f.wanted
        f.ending = LASTING if g < f.g * (1 - 1e-9) else f.ending
        f.g_before, f.g, f.g_at = f.g, g, self.world.now
        self.world.word(self.world.senders[f.source].on_grant, f, g, guessed, busy, after=after)

    def grants(self):
        """One pass: max-min rates; cuts, then raises, then repeats."""
        w, flows, hold, expected = self.world, self.active(), self.hold(), self.expected()
        over = self.episode_at + w.round_trip / 4 + 2 * expected * SMALL * 8 / self.C
        self.used, wait = self.available(len(flows)), w.now < over and len(flows) < expected
        charged = [f for f in flows if f.ending != DONE]
        most = [hold if wait and f.woke_at >= self.episode_at else self.C for f in charged]
        limits = [min(f.usable, f.g if f.ending == ENDING else m) for f, m in zip(charged, most)]
        L, spare = level(self.used, [f.weight for f in charged], limits), self.used - sum(limits)
        changes, raises = [], 0
        for f, limit, m in zip(charged, limits, most):
            g = min(m, limit + f.weight * spare / sum(f.weight for f in charged) if L is None
                    else min(f.weight * L, f.usable * 17 / 16))
            repeat = abs(g - f.g) <= f.g / 64
            if f.ending != ENDING and (not repeat or w.now - f.g_at >= w.validity / 4.01):
                changes.append((repeat, g > f.g, f, g))
        for repeat, is_raise, f, g in sorted(changes, key=lambda each: each[:2]):
            raises += is_raise               # words of raises take a tenth of the link
            self.send(f, g, raises * is_raise * 10 * SMALL * 8 / self.C)
        self.pass_at = w.now + 1e-6 if wait else NEVER       # again when the hold is over
        self.repeat_at = min((f.g_at for f in flows), default=NEVER) + w.validity / 4

    def watch(self):
        """Ending phases; busy: the link was in use for a round trip (1.45 fits the simulator)."""
        w, R = self.world, self.world.round_trip
        for f in self.active():
            new = min(w.now - f.g_at, R)     # t: bytes that arrive within R at the last two grants
            t, left = (f.g_before * (R - new) + f.g * new) / WIRE, f.size - f.received
            ending = (DONE if left <= t else
                      max(f.ending, ENDING) if left <= t + min(t, w.payload(self.C) / 32) else 0)
            if ending > f.ending:
                f.ending = ending
                self.pass_at = min(self.pass_at, w.now + (0.0 if ending == DONE else 1e-6))
        self.busy_since = min(self.busy_since, w.now) if self.active() else NEVER
        if self.is_busy != (w.now > self.busy_since + 1.45 * R):
            self.is_busy = not self.is_busy
            self.tell_idle(0)

    def step(self, chunks):
        """Data of one step joins the queue; the link carries as many bytes as it can, in order."""
        w, room, full, self.delay = self.world, self.full, self.full, 0.0
        self.queue += [(w.now, chunks)] if chunks else []
        while self.queue and room > 1e-9:
            came, chunks = self.queue.pop(0)
            share = min(1.0, room / sum(size for _, size in chunks))
            self.delay, self.least = w.now - came, min(self.least, w.now - came)
            for f, size in chunks:
                w.acks[w.ahead].append((f, size * share))
                f.received, room = f.received + size * share, room - size * share
                if f.received >= f.size - 1.01:
                    f.received_at, f.usable = w.now, 0.0
                    self.pass_at = min(self.pass_at, w.now + 1e-6)
            if share < 1.0:
                self.queue.insert(0, (came, [(f, size * (1 - share)) for f, size in chunks]))
        self.bytes, self.sender.acks = self.bytes + full - room, full - room
        if w.now >= self.window_end and self.active():
            window = max(w.round_trip, max(4, len(self.active()) / 4) * self.usual)
            q, line = max(0.0, self.least - self.usual), min(self.C, self.b)
            self.drain = min(line * q / (4 * window), line / 2) if q < NEVER else 0.0
            self.window_end, self.least = w.now + window, NEVER
            if abs(self.available(len(self.active())) / self.used - 1) > 1 / 64:
                self.pass_at = min(self.pass_at, w.now + 1e-6)
        if w.now >= self.next_look:
            self.look(self.active(), max(w.round_trip, 4 * self.usual))
        if w.tick % 5 == 0:
            self.watch()
        if w.now >= min(self.pass_at, self.repeat_at):
            self.grants()

    def look(self, flows, W):
        """Section 6, each W/4."""
        now, C, R = self.world.now, self.C, self.world.round_trip
        self.looks, self.delays = self.looks[-6:] + [self.bytes], self.delays[-3:] + [self.delay]
        self.next_look, self.bytes = now + W / 4, 0.0
        rates = [sum(self.looks[i:i + 4]) * WIRE / W for i in range(4)]
        a, d, before = rates[-1], min(self.delays), self.b * self.dip
        span, self.dip = max(W, R) + d, 1.0 if now >= self.dip_until else self.dip
        packet = sum(f.weight for f in flows) / max(1, len(flows)) * PACKET * 8 / 4
        T = self.usual + R / 8 + packet / self.b
        T *= 8 if sum(f.usable for f in flows) < 7 / 8 * min(C, self.b) else 1
        self.fine_at = now if d <= T or a >= 7 / 8 * C else self.fine_at
        if not flows or self.b >= C and now - self.fine_at < 3 * W:      # trusts C until then
            return
        if d > T and now > self.cut_at + span + R / 2 and d >= 3 / 4 * self.cut_delay:
            x = min((d - T) / (2 * span), 0.5)
            self.b, self.doubled = min(self.b, max(rates)) * (1 - x / 4), 1 / 128
            self.dip, self.dip_until = 1 - 3 / 4 * x, now + 2 * span
            self.cut_at, self.cut_delay, self.cut_b = now, d, self.b
        elif d <= T and now > self.raised_at + span and a >= 0.85 * before:
            self.raised_at, self.cut_delay = now, 0.0
            self.doubled *= 2 if d < T / 2 and self.b > 1.1 * self.cut_b else 1
            free, far = d < T / 2, self.b < 3 / 4 * self.cut_b
            step = (1 - d / T) * packet / W + (self.b * min(self.doubled, 1 / 8) if free else 0)
            self.b = min(5 / 4 * self.b if free and far else self.b + step, C)
        if self.b * self.dip != before:
            self.pass_at = min(self.pass_at, now + 1e-6)

class World:
    """Hosts, words and bytes under way, and the clock. `rates`: of slower cables by host."""
    def __init__(self, flows, nominal=400e9, rates=None, rate_max=NEVER, known=True, delay=4e-6):
        self.round_trip = delay + PACKET * 8 / nominal
        self.dt, self.tick, self.now = self.round_trip / STEPS, 0, 0.0
        self.validity, self.flows = max(4 * self.round_trip, 50e-6), flows
        self.data, self.acks = [{} for _ in range(STEPS)], [[] for _ in range(STEPS)]
        self.words, self.count, self.senders, self.receivers = [], 0, {}, {}
        for host in {h for f in flows for h in (f.source, f.destination)}:
            cable = (rates or {}).get(host, nominal)
            own, sent = cable if known else nominal, [f for f in flows if f.source == host]
            self.senders[host] = Sender(self, sent, cable, min(own, rate_max))
            self.receivers[host] = Receiver(self, [f for f in flows if f.destination == host],
                                            cable, own, self.senders[host])
        for f in flows:                      # the first grant comes with the receiver's buffer
            f.grant = f.g = self.receivers[f.destination].hold()

    def payload(self, rate):                 # bytes of a round trip
        return rate * self.round_trip / 8
    def word(self, *action, after=0.0):
        self.count += 1                      # keeps words of the same time in order
        heapq.heappush(self.words, (self.now + after + self.round_trip / 2, self.count, action))

    def run(self, sample=1e-6, limit=0.1):
        """Until all flows are done; notes the bytes that have arrived each `sample` seconds."""
        coming, left = sorted(self.flows, key=lambda f: f.start)[::-1], len(self.flows)
        while left and self.now < limit:
            while coming and coming[-1].start <= self.now:
                self.senders[coming[-1].source].begin(coming.pop())
            while self.words and self.words[0][0] <= self.now:
                _, _, (action, *arguments) = heapq.heappop(self.words)
                action(*arguments)
            slot, self.ahead = self.tick % STEPS, (self.tick + STEPS // 2) % STEPS
            for f, size in self.acks[slot]:
                f.acked += size
                if f.received_at and f.acked >= f.size - 1.01 and f.finish is None:
                    f.finish, left = self.now, left - 1
                    self.senders[f.source].backlogged.remove(f)
            chunks, self.acks[slot], self.data[slot] = self.data[slot], [], {}
            for host, sender in self.senders.items():
                sender.step()
                self.receivers[host].step(chunks.get(host, ()))
            while len(self.flows[0].arrived) < int(self.now / sample):
                for f in self.flows:
                    f.arrived.append(f.received)
            self.tick, self.now = self.tick + 1, (self.tick + 1) * self.dt

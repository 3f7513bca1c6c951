// Completion queues: polling, and notifications.
#include <algorithm>

#include "net_plugin/verbs/objects.h"
#include "transport/engine/clock.h"
#include "transport/engine/polling.h"

namespace pacecar::ibverbs {

void CompletionQueue::add(const ibv_wc& wc, bool solicited) {
  if (!queue.push(wc)) {
    if (overrun) return;
    overrun = true;
    raise_event(context, {.element = {.cq = base()}, .event_type = IBV_EVENT_CQ_ERR}, async_events);
    return;
  }
  if (!armed || (solicited_only && !solicited && wc.status == IBV_WC_SUCCESS)) return;
  ++held_back;
  if (moderate_count > 1 && held_back < moderate_count) {
    if (moderated_until == Instant::never()) moderated_until = clock_now() + moderate_period;
    return;
  }
  notify();
}

void CompletionQueue::notify() {
  armed = false;
  held_back = 0;
  moderated_until = Instant::never();
  if (channel == nullptr) return;
  static_cast<CompletionChannel*>(channel)->pipe.put(this);
  ++completion_events;
}

// The moderation period has ended.
void CompletionQueue::on_due(Instant /*now*/) {
  if (armed) notify();
}

namespace {

// After this many empty polls a thread lets others run: there may be more than processors.
constexpr uint32_t kEmptyPolls = 64;

int poll_queue(ibv_cq* cq, int most, ibv_wc* wc) {
  if (inherited(cq)) return -error_in_child("ibv_poll_cq");
  CompletionQueue& completions = queue_of(cq);
  ProcessNic& nic = completions.nic();
  int count = 0;
  uint32_t empty_polls = 0;
  {
    const Call call(nic);
    if (completions.queue.empty()) nic.receive();
    for (; count < most && !completions.queue.empty(); ++count) {
      wc[count] = completions.take();
    }
    completions.empty_polls = empty_polls = count > 0 ? 0 : completions.empty_polls + 1;
  }
  if (count > 0) Polling::note_moved(clock_now());
  if (empty_polls > kEmptyPolls) Polling::give_way(clock_now());
  return count;
}

int request_notification(ibv_cq* cq, int solicited_only) {
  CompletionQueue& completions = queue_of(cq);
  {
    const std::lock_guard lock(completions.nic().mutex());
    // If it is armed for all completions, a request for solicited ones does not narrow it.
    const bool for_all = completions.armed && !completions.solicited_only;
    completions.solicited_only = solicited_only != 0 && !for_all;
    completions.armed = true;
  }
  // A program with a non-blocking channel sleeps in its own poll(), which does not drive the NIC.
  if (completions.channel != nullptr && does_not_block(completions.channel->fd)) {
    completions.nic().hand_over();
  }
  return 0;
}

int modify_queue(ibv_cq* cq, ibv_modify_cq_attr* attr) {
  if (attr->attr_mask != IBV_CQ_ATTR_MODERATE) return EINVAL;
  CompletionQueue& completions = queue_of(cq);
  const Call call(completions.nic());
  if (completions.moderate_count == 0) completions.nic().add_timed(&completions);
  completions.moderate_count = std::max<uint16_t>(1, attr->moderate.cq_count);
  completions.moderate_period = Duration::from_us(attr->moderate.cq_period);
  return 0;
}

bool next_current(CompletionQueue& completions) {
  if (completions.queue.empty()) return false;
  completions.current = completions.take();
  completions.current_time_ns = static_cast<uint64_t>(clock_now().ns());
  completions.wr_id = completions.current.wr_id;
  completions.status = completions.current.status;
  return true;
}

void end_poll(ibv_cq_ex* cq) {
  queue_of(cq).polling.unlock();
  queue_of(cq).nic().note_call();
}

// With a completion, holds `polling` until end_poll, not the NIC's lock: the program may then post.
int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  if (attr->comp_mask != 0) return EINVAL;
  if (inherited(cq)) return error_in_child("ibv_start_poll");
  CompletionQueue& completions = queue_of(cq);
  completions.polling.lock();
  {
    const std::lock_guard lock(completions.nic().mutex());
    if (completions.queue.empty()) completions.nic().receive();
    if (next_current(completions)) return 0;
  }
  end_poll(cq);
  return ENOENT;
}

int next_poll(ibv_cq_ex* cq) {
  CompletionQueue& completions = queue_of(cq);
  const std::lock_guard lock(completions.nic().mutex());
  return next_current(completions) ? 0 : ENOENT;
}

void set_readers(CompletionQueue& q) {
  q.start_poll = start_poll;
  q.next_poll = next_poll;
  q.end_poll = end_poll;
  q.read_opcode = [](ibv_cq_ex* cq) { return queue_of(cq).current.opcode; };
  q.read_vendor_err = [](ibv_cq_ex* cq) { return queue_of(cq).current.vendor_err; };
  q.read_byte_len = [](ibv_cq_ex* cq) { return queue_of(cq).current.byte_len; };
  q.read_imm_data = [](ibv_cq_ex* cq) { return queue_of(cq).current.imm_data; };
  q.read_qp_num = [](ibv_cq_ex* cq) { return queue_of(cq).current.qp_num; };
  q.read_src_qp = [](ibv_cq_ex* cq) { return queue_of(cq).current.src_qp; };
  q.read_wc_flags = [](ibv_cq_ex* cq) { return queue_of(cq).current.wc_flags; };
  q.read_slid = [](ibv_cq_ex* cq) { return uint32_t{queue_of(cq).current.slid}; };
  q.read_sl = [](ibv_cq_ex* cq) { return queue_of(cq).current.sl; };
  q.read_dlid_path_bits = [](ibv_cq_ex* cq) { return queue_of(cq).current.dlid_path_bits; };
  // Both are times of polling, not of the completion.
  q.read_completion_ts = [](ibv_cq_ex* cq) { return queue_of(cq).current_time_ns; };
  q.read_completion_wallclock_ns = [](ibv_cq_ex*) {
    timespec time{};
    clock_gettime(CLOCK_REALTIME, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
  };
}

CompletionQueue* create_queue(ibv_context* context, int entries, void* cq_context,
                              ibv_comp_channel* channel, int vector) {
  return made([&]() -> CompletionQueue* {
    if (entries < 1 || entries > kMaxCqe || vector < 0 || vector >= context->num_comp_vectors) {
      return no_object(EINVAL);
    }
    auto queue = std::make_unique<CompletionQueue>(entries);
    queue->context = context;
    queue->channel = channel;
    queue->cq_context = cq_context;
    queue->cqe = entries;
    begin_events(*queue);
    set_readers(*queue);
    if (channel != nullptr) ++users_of(*channel);
    return queue.release();
  });
}

ibv_cq_ex* create_queue_extended(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  constexpr auto kReportedFields = uint64_t{IBV_WC_STANDARD_FLAGS} |
                                   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  if ((attr->wc_flags & ~kReportedFields) != 0) return no_object(EOPNOTSUPP);
  return create_queue(context, static_cast<int>(attr->cqe), attr->cq_context, attr->channel,
                      static_cast<int>(attr->comp_vector));
}

}  // namespace

void set_completion_calls(verbs_context& verbs) {
  verbs.context.ops.poll_cq = poll_queue;
  verbs.context.ops.req_notify_cq = Checked<request_notification>::run;
  verbs.modify_cq = Checked<modify_queue>::run;
  verbs.create_cq_ex = Checked<create_queue_extended>::run;
}

extern "C" {

PACECAR_VERBS ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context,
                                    ibv_comp_channel* channel, int vector) {
  FORWARD_UNLESS_OURS(ibv_create_cq, context, entries, cq_context, channel, vector);
  CompletionQueue* const queue = create_queue(context, entries, cq_context, channel, vector);
  return queue == nullptr ? nullptr : queue->base();
}

PACECAR_VERBS int ibv_resize_cq(ibv_cq* cq, int entries) {
  FORWARD_UNLESS_OURS(ibv_resize_cq, cq, entries);
  CompletionQueue& completions = queue_of(cq);
  const Call call(completions.nic());
  if (entries < 1 || entries > kMaxCqe) return EINVAL;
  completions.nic().turn();  // completions up to now must fit
  if (static_cast<size_t>(entries) < completions.queue.size()) return EINVAL;
  FixedQueue<ibv_wc> resized(static_cast<size_t>(entries));
  while (!completions.queue.empty()) resized.push(completions.take());
  completions.queue = std::move(resized);
  cq->cqe = entries;
  return 0;
}

// Waits until all reported events are acknowledged, as the manual page requires.
PACECAR_VERBS int ibv_destroy_cq(ibv_cq* cq) {
  FORWARD_UNLESS_OURS(ibv_destroy_cq, cq);
  CompletionQueue& completions = queue_of(cq);
  {
    const Call call(completions.nic());
    if (completions.users > 0) return EBUSY;
    completions.nic().remove_timed(&completions);
  }
  if (completions.channel != nullptr) {
    auto& unread = static_cast<CompletionChannel*>(completions.channel)->pipe;
    completions.completion_events -=
        unread.remove_if([&](const CompletionQueue* queue) { return queue == &completions; });
    --users_of(*completions.channel);
  }
  drop_events(cq->context, cq, completions.async_events);  // before this call waits
  await_acknowledgements(*cq, cq->comp_events_completed, completions.completion_events);
  end_events(*cq, cq->async_events_completed, completions.async_events);
  delete &completions;
  return 0;
}

}  // extern "C"
}  // namespace pacecar::ibverbs

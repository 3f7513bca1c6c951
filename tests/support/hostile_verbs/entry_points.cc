// The functions of libibverbs that touch a device, by its published header. The others come from
// the library.
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/support/hostile_verbs/device.h"
#include "tests/support/hostile_verbs/offloads.h"
#include "tests/support/hostile_verbs/world.h"

#undef ibv_reg_mr
#undef ibv_query_port

namespace pacecar::hostile {
namespace {

Device& device_of(const ibv_pd* domain) { return Device::of(domain->context); }

int poll_cq(ibv_cq* queue, int most, ibv_wc* completions) {
  Device& device = Device::of(queue->context);
  if (!device.behavior().threaded) turn();
  size_t count = 0;
  {
    const std::lock_guard lock(device.lock());
    const auto& death = device.death();
    if (death && death->polls == Death::Polls::kError) return -1;
    const bool brings = !death || death->polls == Death::Polls::kFlushed;
    if (brings) count = device.poll(queue, static_cast<size_t>(most), completions);
    if (count > 0) device.call();
  }
  return static_cast<int>(count);
}

int req_notify_cq(ibv_cq* queue, int solicited_only) {
  Device& device = Device::of(queue->context);
  if (!device.behavior().threaded) turn();  // completions that appear now notify nobody
  const std::lock_guard lock(device.lock());
  if (const int error = device.call()) return error;
  reinterpret_cast<CompletionQueue*>(queue)->arm(solicited_only != 0);
  return 0;
}

// A driver writes requests into memory and rings a doorbell. That may succeed with a dead device.
template <typename Request>
int after_death(const Device& device, int error, Request* request, Request** refused) {
  *refused = request;
  return device.death()->takes_posts ? 0 : error;
}

int post_send(ibv_qp* queue_pair, ibv_send_wr* request, ibv_send_wr** refused) {
  Device& device = Device::of(queue_pair->context);
  const std::lock_guard lock(device.lock());
  if (const int error = device.call()) return after_death(device, error, request, refused);
  return own(queue_pair).post_send(request, refused);
}

int post_recv(ibv_qp* queue_pair, ibv_recv_wr* request, ibv_recv_wr** refused) {
  Device& device = Device::of(queue_pair->context);
  const std::lock_guard lock(device.lock());
  if (const int error = device.call()) return after_death(device, error, request, refused);
  return own(queue_pair).post_receive(request, refused);
}

int post_srq_recv(ibv_srq* queue, ibv_recv_wr* request, ibv_recv_wr** refused) {
  Device& device = Device::of(queue->context);
  const std::lock_guard lock(device.lock());
  if (const int error = device.call()) return after_death(device, error, request, refused);
  auto& shared = *reinterpret_cast<SharedReceives*>(queue);
  for (; request != nullptr; request = request->next) {
    *refused = request;
    if (shared.full()) return ENOMEM;
    shared.requests.push_back(
        {request->wr_id, {request->sg_list, request->sg_list + request->num_sge}});
  }
  return 0;
}

int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attributes, size_t length) {
  Device& device = Device::of(context);
  const std::lock_guard lock(device.lock());
  if (port != 1) return EINVAL;
  if (const int error = device.call()) return error;
  ibv_port_attr all;
  device.describe(all);
  std::memcpy(attributes, &all, std::min(length, sizeof all));
  return 0;
}

void fill_gid(const Device& device, ibv_gid_entry& entry) {
  entry = {};
  entry.port_num = 1;
  if (device.behavior().infiniband) {
    entry.gid_type = IBV_GID_TYPE_IB;
    entry.gid.raw[0] = 0xFE;
    entry.gid.raw[1] = 0x80;
  } else {
    constexpr uint8_t kIpv4[] = {0xFF, 0xFF, 192, 0, 2};
    entry.gid_type = IBV_GID_TYPE_ROCE_V2;
    entry.ndev_ifindex = if_nametoindex("lo");
    std::ranges::copy(kIpv4, entry.gid.raw + 10);
  }
  entry.gid.raw[15] = static_cast<uint8_t>(device.number() + 1);
}

// As in a system call: the device continues meanwhile.
void pause_for(Duration time) {
  if (time == Duration()) return;
  std::this_thread::sleep_for(std::chrono::nanoseconds(time.ns()));
}

// The kernel pins or unpins pages.
void pin(const Device& device) { pause_for(device.behavior().registration); }

ibv_mr* registered(Region* region) { return region == nullptr ? nullptr : &region->verbs; }

// Memory that is not mapped cannot be registered.
bool mapped(const void* address, size_t length) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(address) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(address) + length;
  return length > 0 && end > begin &&
         msync(reinterpret_cast<void*>(begin), end - begin, MS_ASYNC) == 0;
}

}  // namespace

void set_up_operations(verbs_context& context, Device& device, ibv_device* verbs) {
  context.sz = sizeof context;
  context.query_port = query_port;
  offer_offloads(context);
  context.context.device = verbs;
  context.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context.context.num_comp_vectors = 1;
  context.context.cmd_fd = -1;
  context.context.ops.poll_cq = poll_cq;
  context.context.ops.req_notify_cq = req_notify_cq;
  context.context.ops.post_send = post_send;
  context.context.ops.post_recv = post_recv;
  context.context.ops.post_srq_recv = post_srq_recv;
  context.priv = reinterpret_cast<verbs_ex_private*>(&device);
}

Device& Device::of(ibv_context* context) {
  return *reinterpret_cast<Device*>(verbs_get_ctx(context)->priv);
}

}  // namespace pacecar::hostile

using namespace pacecar::hostile;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  const auto devices = World::instance().devices();
  auto** const list = new ibv_device*[devices.size() + 1]();
  std::ranges::transform(devices, list, [](ibv_device& device) { return &device; });
  if (count != nullptr) *count = static_cast<int>(devices.size());
  return list;
}

void ibv_free_device_list(ibv_device** list) { delete[] list; }
const char* ibv_get_device_name(ibv_device* device) { return device->name; }
int ibv_get_device_index(ibv_device*) { return -1; }  // the kernel does not know the device

__be64 ibv_get_device_guid(ibv_device* device) {
  return htobe64(0x0200'0000'0000'0001 + static_cast<uint64_t>(device->name[7] - '0'));
}

ibv_context* ibv_open_device(ibv_device* device) {
  const auto devices = World::instance().devices();
  if (device < devices.data() || device >= devices.data() + devices.size()) {
    return refuse<ibv_context>(ENODEV);
  }
  const auto number = static_cast<uint16_t>(device - devices.data());
  auto opened = std::make_unique<Device>(device, number);
  {
    const std::lock_guard lock(opened->lock());
    if (const int error = opened->call()) return refuse<ibv_context>(error);
  }
  return opened.release()->context();
}

int ibv_close_device(ibv_context* context) {
  delete &Device::of(context);  // also of a dead device
  return 0;
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  Device& device = Device::of(context);
  const std::lock_guard lock(device.lock());
  if (const int error = device.call()) return error;
  device.describe(*attributes);
  return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t most, uint32_t,
                             size_t) {
  Device& device = Device::of(context);
  const std::lock_guard lock(device.lock());
  if (const int error = device.call()) return -error;
  if (most == 0) return 0;
  fill_gid(device, *entries);
  return 1;
}

int ibv_query_gid(ibv_context* context, uint8_t, int index, ibv_gid* gid) {
  ibv_gid_entry entry;
  fill_gid(Device::of(context), entry);
  *gid = entry.gid;
  return index == 0 ? 0 : -1;
}

int ibv_query_pkey(ibv_context* context, uint8_t, int index, __be16* key) {
  constexpr uint16_t kFullMember = 0x8000;
  const uint16_t count = Device::of(context).behavior().pkey_table;
  if (index < 0 || index >= count) return -1;
  *key = htons(static_cast<uint16_t>(0x7FFF - index) | (index + 1 == count ? kFullMember : 0));
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  Device& device = Device::of(context);
  const std::lock_guard lock(device.lock());
  if (const int error = device.call()) return refuse<ibv_pd>(error);
  if (!device.domains.empty()) return refuse<ibv_pd>(ENOMEM);
  auto* const domain = new ibv_pd{.context = context, .handle = 0};
  device.domains.insert(domain);
  return domain;
}

int ibv_dealloc_pd(ibv_pd* domain) {
  Device& device = device_of(domain);
  const std::lock_guard lock(device.lock());
  const int error = device.call();
  if (device.uses(domain)) return EBUSY;
  device.domains.erase(domain);
  delete domain;
  return error;
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, size_t length, int access) {
  return ibv_reg_mr_iova2(domain, address, length, reinterpret_cast<uintptr_t>(address),
                          static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* address, size_t length, uint64_t begin,
                         unsigned access) {
  Device& device = device_of(domain);
  pin(device);
  const std::lock_guard lock(device.lock());
  const Behavior& behavior = device.behavior();
  constexpr unsigned kRemote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  const bool writable = (access & kRemote) == 0 || (access & IBV_ACCESS_LOCAL_WRITE) != 0;
  if (const int error = device.call()) return refuse<ibv_mr>(error);
  if (!writable || length > behavior.max_region_bytes) return refuse<ibv_mr>(EINVAL);
  if (device.regions().size() >= behavior.max_regions) return refuse<ibv_mr>(ENOMEM);
  const bool reachable =
      as_gpu_sees(address) != nullptr ? behavior.peer_memory : mapped(address, length);
  if (!reachable) return refuse<ibv_mr>(EFAULT);
  return registered(device.regions().add(domain, address, length, begin, static_cast<int>(access)));
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, uint64_t offset, size_t length, uint64_t begin, int fd,
                          int access) {
  Device& device = device_of(domain);
  pin(device);
  const std::lock_guard lock(device.lock());
  if (!device.behavior().dma_buf) return refuse<ibv_mr>(EOPNOTSUPP);
  if (fcntl(fd, F_GETFD) < 0) return refuse<ibv_mr>(EBADF);
  if (const int error = device.call()) return refuse<ibv_mr>(error);
  return registered(device.regions().add_dma_buf(domain, fd, offset, length, begin, access));
}

int ibv_dereg_mr(ibv_mr* memory) {
  Device& device = Device::of(memory->context);
  pin(device);
  const std::lock_guard lock(device.lock());
  const int error = device.call();
  device.remove_region(*reinterpret_cast<Region*>(memory));
  return error;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  Device& device = Device::of(context);
  const std::lock_guard lock(device.lock());
  if (const int error = device.call()) return refuse<ibv_comp_channel>(error);
  auto* const channel = new CompletionChannel;
  channel->events.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  channel->verbs = {.context = context, .fd = channel->events.fd, .refcnt = 0};
  device.channels.insert(channel);
  return &channel->verbs;
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  Device& device = Device::of(channel->context);
  const std::lock_guard lock(device.lock());
  auto* const own_channel = reinterpret_cast<CompletionChannel*>(channel);
  device.channels.erase(own_channel);
  close(channel->fd);
  delete own_channel;
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** queue, void** user) {
  eventfd_t one = 0;
  if (eventfd_read(channel->fd, &one) != 0) return -1;
  Device& device = Device::of(channel->context);
  const std::lock_guard lock(device.lock());
  *queue = device.take_completion_event(*reinterpret_cast<CompletionChannel*>(channel));
  if (*queue == nullptr) return errno = EAGAIN, -1;
  device.events().count_taken(*queue);
  *user = (*queue)->cq_context;
  return 0;
}

void ibv_ack_cq_events(ibv_cq* queue, unsigned count) {
  Device& device = Device::of(queue->context);
  const std::lock_guard lock(device.lock());
  device.events().acknowledge(queue, count);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  eventfd_t one = 0;
  if (eventfd_read(context->async_fd, &one) != 0) return -1;
  Device& device = Device::of(context);
  const std::lock_guard lock(device.lock());
  const auto taken = device.events().take();
  if (!taken) return errno = EAGAIN, -1;
  *event = *taken;
  return 0;
}

void ibv_ack_async_event(ibv_async_event* event) {
  const EventSubject subject = subject_of(*event);
  if (subject.object == nullptr) return;
  Device& device = Device::of(subject.context);
  const std::lock_guard lock(device.lock());
  device.events().acknowledge(subject.object, 1);
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* user, ibv_comp_channel* channel,
                      int) {
  Device& device = Device::of(context);
  const std::lock_guard lock(device.lock());
  if (const int error = device.call()) return refuse<ibv_cq>(error);
  return device.create_completion_queue(entries, channel, user);
}

int ibv_destroy_cq(ibv_cq* queue) {
  Device& device = Device::of(queue->context);
  std::unique_lock lock(device.lock());
  const int error = device.call();
  const int refused = device.destroy_completion_queue(queue, lock);
  return refused != 0 ? refused : error;
}

ibv_srq* ibv_create_srq(ibv_pd* domain, ibv_srq_init_attr* attributes) {
  Device& device = device_of(domain);
  const std::lock_guard lock(device.lock());
  if (const int error = device.call()) return refuse<ibv_srq>(error);
  ibv_srq_attr& wanted = attributes->attr;
  const Behavior& behavior = device.behavior();
  const bool possible =
      wanted.max_wr <= behavior.max_shared_receives && wanted.max_sge <= behavior.max_pieces;
  if (!possible) return refuse<ibv_srq>(EINVAL);
  if (!device.shared_receives.empty()) return refuse<ibv_srq>(ENOMEM);
  wanted.max_wr =  // devices round up
      std::min(std::bit_ceil(wanted.max_wr + 1) - 1, behavior.max_shared_receives);
  auto* const queue = new SharedReceives;
  queue->verbs.context = domain->context;
  queue->verbs.pd = domain;
  queue->capacity = wanted.max_wr;
  device.shared_receives.insert(queue);
  return &queue->verbs;
}

int ibv_destroy_srq(ibv_srq* queue) {
  Device& device = Device::of(queue->context);
  std::unique_lock lock(device.lock());
  const int error = device.call();
  device.events().forget(queue, lock);
  auto* const shared = reinterpret_cast<SharedReceives*>(queue);
  if (shared->users > 0) return EBUSY;
  device.shared_receives.erase(shared);
  delete shared;
  return error;
}

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
  Device& device = device_of(domain);
  const std::lock_guard lock(device.lock());
  if (const int error = device.call()) return refuse<ibv_qp>(error);
  return device.create_queue_pair(domain, *wanted);
}

int ibv_modify_qp(ibv_qp* queue_pair, ibv_qp_attr* attributes, int mask) {
  Device& device = Device::of(queue_pair->context);
  const std::lock_guard lock(device.lock());
  if (const int error = device.call()) return error;
  return own(queue_pair).modify(*attributes, mask);
}

int ibv_destroy_qp(ibv_qp* queue_pair) {
  Device& device = Device::of(queue_pair->context);
  pause_for(device.behavior().destruction);
  std::unique_lock lock(device.lock());
  const int error = device.call();
  const int refused = device.destroy_queue_pair(queue_pair, lock);
  return refused != 0 ? refused : error;
}

}  // extern "C"

// Ids of librdmacm over the device: listener and callers in one process, with threads, and ids that
// are destroyed at any moment.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <thread>

namespace pacecar::ids_test {
namespace {

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

sockaddr* raw(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

// `data` outlives the result.
rdma_conn_param parameters(const char* data) {
  rdma_conn_param param{};
  param.private_data = data;
  param.private_data_len = static_cast<uint8_t>(std::strlen(data));
  param.responder_resources = param.initiator_depth = 4;
  param.retry_count = param.rnr_retry_count = 7;
  return param;
}

ibv_qp_init_attr queue_pair() {
  ibv_qp_init_attr attr{};
  attr.cap = {.max_send_wr = 4,
              .max_recv_wr = 4,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 64};
  attr.qp_type = IBV_QPT_RC;
  return attr;
}

// A listener on any free port.
rdma_cm_id* listening(rdma_event_channel* channel, int backlog = 8) {
  setenv("PACECAR_NICS", "soft:udp:lo", 1);
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in any = loopback(0);
  EXPECT_EQ(rdma_bind_addr(id, raw(any)), 0);
  EXPECT_EQ(rdma_listen(id, backlog), 0);
  return id;
}

uint16_t port_of(rdma_cm_id* listener) { return ntohs(rdma_get_src_port(listener)); }

// Answers on a thread: rejects private data that begins with "no", accepts and echoes all other
// data.
class Listener {
 public:
  Listener() {
    fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
    thread_ = std::thread([this] { serve(); });
  }
  ~Listener() {
    stop_ = true;
    thread_.join();
    for (rdma_cm_id* const id : accepted_) rdma_destroy_ep(id);
    EXPECT_EQ(rdma_destroy_id(id_), 0);
    rdma_destroy_event_channel(channel_);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  uint16_t port() const { return port_of(id_); }
  int disconnected() const { return disconnected_; }

 private:
  void serve() {
    while (!stop_) {
      pollfd readable{channel_->fd, POLLIN, 0};
      poll(&readable, 1, 5);
      rdma_cm_event* event = nullptr;
      while (rdma_get_cm_event(channel_, &event) == 0) on_event(event);
    }
  }
  void on_event(rdma_cm_event* event) {
    rdma_cm_id* const id = event->id;
    const auto type = event->event;
    std::string data;
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      data.assign(static_cast<const char*>(event->param.conn.private_data), 8);
    }
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) return on_request(id, data);
    if (type == RDMA_CM_EVENT_ESTABLISHED) return;
    disconnected_ += type == RDMA_CM_EVENT_DISCONNECTED ? 1 : 0;
    rdma_disconnect(id);
    accepted_.erase(id);
    rdma_destroy_ep(id);
  }
  void on_request(rdma_cm_id* id, const std::string& data) {
    if (data.substr(0, 2) == "no") {
      EXPECT_EQ(rdma_reject(id, "why", 3), 0);
      EXPECT_EQ(rdma_destroy_id(id), 0);
      return;
    }
    ibv_qp_init_attr attr = queue_pair();
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), 0);
    rdma_conn_param param = parameters(data.c_str());
    EXPECT_EQ(rdma_accept(id, &param), 0);
    accepted_.insert(id);
  }

  rdma_event_channel* const channel_ = rdma_create_event_channel();
  rdma_cm_id* const id_ = listening(channel_);
  std::set<rdma_cm_id*> accepted_;
  std::thread thread_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> disconnected_ = 0;
};

// An id with a route and a queue pair. Without a channel, its calls block until their events.
rdma_cm_id* caller(uint16_t port, rdma_event_channel* channel = nullptr) {
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in to = loopback(port);
  EXPECT_EQ(rdma_resolve_addr(id, nullptr, raw(to), 1000), 0);
  EXPECT_EQ(rdma_resolve_route(id, 1000), 0);
  ibv_qp_init_attr attr = queue_pair();
  EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), 0);
  return id;
}

// Requests to another address of its interface would go where nobody receives.
TEST(Ids, ListenersAreAtTheAddressAtWhichTheNicReceives) {
  rdma_event_channel* const channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  setenv("PACECAR_NICS", "soft:udp:lo", 1);
  ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in6 other{};
  other.sin6_family = AF_INET6;
  other.sin6_addr = in6addr_loopback;
  if (rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&other)) == 0) {
    EXPECT_EQ(rdma_listen(id, 8), -1);
    EXPECT_EQ(errno, EADDRNOTAVAIL);
  }
  EXPECT_EQ(rdma_destroy_id(id), 0);
  rdma_destroy_event_channel(channel);
}

// Programs that create queue pairs themselves exchange these options before they accept (pyverbs).
TEST(CmIds, EnhancedConnectionOptionsAreNotSupported) {
  rdma_event_channel* const channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  ibv_ece ece{.vendor_id = 7, .options = 7, .comp_mask = 0};
  EXPECT_EQ(rdma_set_local_ece(id, &ece), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(rdma_get_remote_ece(id, &ece), 0);
  EXPECT_EQ(ece.vendor_id, 0U);
  EXPECT_EQ(rdma_set_local_ece(id, &ece), 0);
  rdma_destroy_id(id);
  rdma_destroy_event_channel(channel);
}

// A thread of rping gets the next event while its main thread destroys the channel and returns.
TEST(CmIds, GettingAnEventOfADestroyedChannelBlocks) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // not in a forked child
  const auto returns_meanwhile = [] {
    rdma_event_channel* const channel = rdma_create_event_channel();
    rdma_destroy_event_channel(channel);
    std::thread([channel] {
      rdma_cm_event* event = nullptr;
      rdma_get_cm_event(channel, &event);
      std::_Exit(1);
    }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::_Exit(0);
  };
  EXPECT_EXIT(returns_meanwhile(), testing::ExitedWithCode(0), "");
}

TEST(CmIds, PrivateDataTravelsAndDisconnectEndsBothIds) {
  Listener listener;
  rdma_cm_id* const id = caller(listener.port());
  rdma_conn_param param = parameters("question");
  ASSERT_EQ(rdma_connect(id, &param), 0);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(std::memcmp(id->event->param.conn.private_data, "question", 8), 0);
  EXPECT_EQ(id->qp->state, IBV_QPS_RTS);
  EXPECT_EQ(rdma_disconnect(id), 0);
  EXPECT_EQ(id->qp->state, IBV_QPS_ERR);
  rdma_destroy_ep(id);
  while (listener.disconnected() == 0) std::this_thread::yield();
}

TEST(CmIds, RejectCarriesStatusAndPrivateData) {
  Listener listener;
  rdma_cm_id* const id = caller(listener.port());
  rdma_conn_param param = parameters("no thank");
  EXPECT_EQ(rdma_connect(id, &param), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(id->event->status, 28);
  EXPECT_EQ(std::memcmp(id->event->param.conn.private_data, "why", 3), 0);
  rdma_destroy_ep(id);
}

TEST(CmIds, PortBelongsToOneListener) {
  Listener listener;
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in taken = loopback(listener.port());
  EXPECT_EQ(rdma_bind_addr(id, raw(taken)), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  EXPECT_EQ(rdma_listen(id, 1), -1);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(CmIds, CallsOutOfOrderAreErrors) {
  rdma_event_channel* const channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  rdma_conn_param param = parameters("");
  ibv_qp_init_attr attr = queue_pair();
  EXPECT_EQ(rdma_connect(id, &param), -1);
  EXPECT_EQ(rdma_accept(id, &param), -1);
  EXPECT_EQ(rdma_reject(id, nullptr, 0), -1);
  EXPECT_EQ(rdma_disconnect(id), -1);
  EXPECT_EQ(rdma_establish(id), -1);
  EXPECT_EQ(rdma_resolve_route(id, 1), -1);
  EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), -1);
  EXPECT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_IB), -1);
  EXPECT_EQ(rdma_destroy_id(id), 0);
  rdma_destroy_event_channel(channel);
}

// Ids are destroyed while any event may be pending.
TEST(CmIds, IdsMayBeDestroyedWhileConnecting) {
  Listener listener;
  std::mt19937 random(7);
  rdma_event_channel* const channel = rdma_create_event_channel();
  for (int i = 0; i < 60; ++i) {
    rdma_cm_id* const id = caller(listener.port(), channel);
    rdma_conn_param param = parameters(random() % 4 == 0 ? "no thank" : "question");
    ASSERT_EQ(rdma_connect(id, &param), 0);
    for (auto left = random() % 4; left > 0; --left) {
      rdma_cm_event* event = nullptr;
      ASSERT_EQ(rdma_get_cm_event(channel, &event), 0);
      const bool last =
          event->event == RDMA_CM_EVENT_REJECTED || event->event == RDMA_CM_EVENT_ESTABLISHED;
      rdma_ack_cm_event(event);
      if (last) break;
    }
    rdma_destroy_ep(id);
  }
  rdma_destroy_event_channel(channel);
}

// The id of the next event of this type; other events are dropped.
rdma_cm_id* await(rdma_event_channel* channel, rdma_cm_event_type type) {
  for (;;) {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel, &event), 0);
    rdma_cm_id* const id = event->id;
    const bool found = event->event == type;
    rdma_ack_cm_event(event);
    if (found) return id;
  }
}

TEST(CmIds, ReadRequestOutlivesItsListener) {
  rdma_event_channel* const asked = rdma_create_event_channel();
  rdma_event_channel* const asking = rdma_create_event_channel();
  rdma_cm_id* const listener = listening(asked);
  rdma_cm_id* const id = caller(port_of(listener), asking);
  rdma_conn_param param = parameters("question");
  ASSERT_EQ(rdma_connect(id, &param), 0);
  rdma_cm_id* const request = await(asked, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(rdma_destroy_id(listener), 0);
  Listener next;  // may get the memory of the destroyed listener
  ibv_qp_init_attr attr = queue_pair();
  ASSERT_EQ(rdma_create_qp(request, nullptr, &attr), 0);
  EXPECT_EQ(rdma_accept(request, &param), 0);
  EXPECT_EQ(await(asking, RDMA_CM_EVENT_ESTABLISHED), id);
  rdma_cm_id* const other = caller(next.port());
  EXPECT_EQ(rdma_connect(other, &param), 0) << "the request does not belong to the other listener";
  for (rdma_cm_id* const end : {other, id, request}) rdma_destroy_ep(end);
  rdma_destroy_event_channel(asking);
  rdma_destroy_event_channel(asked);
}

// Ids without channels: the request must not keep the channel of its listener.
TEST(CmIds, AQueueOfTheProgramOutlivesItsQueuePair) {
  const Listener server;
  rdma_cm_id* const id = caller(server.port());
  rdma_destroy_qp(id);
  ibv_cq* const queue = ibv_create_cq(id->verbs, 8, nullptr, nullptr, 0);
  ibv_qp_init_attr attr = queue_pair();
  attr.recv_cq = queue;
  ASSERT_EQ(rdma_create_qp(id, nullptr, &attr), 0);
  rdma_destroy_qp(id);
  EXPECT_EQ(ibv_destroy_cq(queue), 0);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(CmIds, RequestOfABlockingListenerOutlivesIt) {
  rdma_cm_id* const listener = listening(nullptr);
  const uint16_t port = port_of(listener);
  std::thread calling([port] {
    rdma_cm_id* const id = caller(port);
    rdma_conn_param param = parameters("question");
    EXPECT_EQ(rdma_connect(id, &param), 0);
    rdma_destroy_ep(id);
  });
  rdma_cm_id* request = nullptr;
  ASSERT_EQ(rdma_get_request(listener, &request), 0);
  EXPECT_NE(request->channel, listener->channel);
  EXPECT_EQ(rdma_destroy_id(listener), 0);
  ASSERT_NE(request->event, nullptr);
  const auto* const asked = static_cast<const char*>(request->event->param.conn.private_data);
  EXPECT_STREQ(asked, "question");
  ibv_qp_init_attr attr = queue_pair();
  ASSERT_EQ(rdma_create_qp(request, nullptr, &attr), 0);
  rdma_conn_param param = parameters("answer");
  EXPECT_EQ(rdma_accept(request, &param), 0);
  calling.join();
  rdma_destroy_ep(request);
}

// As librdmacm: the domain of the id.
TEST(CmIds, ANullDomainMeansTheIdsOwn) {
  const Listener server;
  rdma_cm_id* const id = caller(server.port());
  rdma_destroy_qp(id);
  ibv_srq_init_attr_ex shared{};
  shared.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  shared.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  shared.srq_type = IBV_SRQT_BASIC;
  ASSERT_EQ(rdma_create_srq_ex(id, &shared), 0);
  EXPECT_EQ(id->srq->pd, id->pd);
  ibv_qp_init_attr_ex attr{};
  attr.cap = queue_pair().cap;
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  ASSERT_EQ(rdma_create_qp_ex(id, &attr), 0);
  EXPECT_EQ(id->qp->pd, id->pd);
  rdma_destroy_ep(id);
}

// The caller's process refuses the service, and the listener has no room for a second call.
TEST(Ids, AFullBacklogOfAnotherProcessIsNoRefusal) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  rdma_event_channel* const own = rdma_create_event_channel();
  rdma_cm_id* const other = listening(own);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    rdma_event_channel* const channel = rdma_create_event_channel();
    rdma_cm_id* const listener = listening(channel, 1);
    const uint16_t port = port_of(listener);
    EXPECT_EQ(write(pipe_ends[1], &port, sizeof port), ssize_t{sizeof port});
    for (int accepted = 0; accepted < 2;) {
      rdma_cm_event* event = nullptr;
      EXPECT_EQ(rdma_get_cm_event(channel, &event), 0);
      const bool asks = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
      rdma_cm_id* const id = event->id;
      accepted += event->event == RDMA_CM_EVENT_ESTABLISHED ? 1 : 0;
      rdma_ack_cm_event(event);
      if (!asks) continue;
      std::this_thread::sleep_for(std::chrono::seconds(1));
      ibv_qp_init_attr attr = queue_pair();
      EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), 0);
      rdma_conn_param param = parameters("answer");
      EXPECT_EQ(rdma_accept(id, &param), 0);
    }
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  uint16_t port = 0;
  ASSERT_EQ(read(pipe_ends[0], &port, sizeof port), ssize_t{sizeof port});
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i) {
    callers.emplace_back([port] {
      rdma_cm_id* const id = caller(port);
      rdma_conn_param param = parameters("question");
      EXPECT_EQ(rdma_connect(id, &param), 0) << std::strerror(errno);
      rdma_destroy_ep(id);
    });
  }
  for (std::thread& one : callers) one.join();
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(rdma_destroy_id(other), 0);
  rdma_destroy_event_channel(own);
}

// The caller's own process refuses the service first; the listener's takes its time.
TEST(Ids, ListenerOfAnotherProcessMayAcceptLate) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  rdma_event_channel* const own = rdma_create_event_channel();
  rdma_cm_id* const other = listening(own);  // takes the address's first slot
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    rdma_event_channel* const channel = rdma_create_event_channel();
    rdma_cm_id* const listener = listening(channel);
    const uint16_t port = port_of(listener);
    EXPECT_EQ(write(pipe_ends[1], &port, sizeof port), ssize_t{sizeof port});
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel, &event), 0);
    rdma_cm_id* const id = event->id;
    rdma_ack_cm_event(event);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ibv_qp_init_attr attr = queue_pair();
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), 0);
    rdma_conn_param param = parameters("answer");
    EXPECT_EQ(rdma_accept(id, &param), 0);
    EXPECT_EQ(rdma_get_cm_event(channel, &event), 0);
    EXPECT_EQ(event->event, RDMA_CM_EVENT_ESTABLISHED);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  uint16_t port = 0;
  ASSERT_EQ(read(pipe_ends[0], &port, sizeof port), ssize_t{sizeof port});
  rdma_cm_id* const id = caller(port);
  rdma_conn_param param = parameters("question");
  EXPECT_EQ(rdma_connect(id, &param), 0);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  rdma_destroy_ep(id);
  EXPECT_EQ(rdma_destroy_id(other), 0);
  rdma_destroy_event_channel(own);
}

// A call that waits for its event would wait for ever.
TEST(CmIds, AnEndedConnectionIsNotDisconnectedOnceMore) {
  Listener listener;
  rdma_cm_id* const rejected = caller(listener.port());
  rdma_conn_param param = parameters("no thank");
  EXPECT_EQ(rdma_connect(rejected, &param), -1);
  EXPECT_EQ(rdma_disconnect(rejected), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_destroy_ep(rejected);
  rdma_cm_id* const id = caller(listener.port());
  param = parameters("question");
  ASSERT_EQ(rdma_connect(id, &param), 0);
  EXPECT_EQ(rdma_disconnect(id), 0);
  EXPECT_EQ(rdma_disconnect(id), -1);
  rdma_destroy_ep(id);
}

TEST(Ids, ForkedChildTouchesNothingAndMayMakeItsOwn) {
  rdma_event_channel* const channel = rdma_create_event_channel();
  rdma_cm_id* const listener = listening(channel);
  const pid_t child = fork();
  if (child == 0) {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_listen(listener, 8), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(rdma_get_cm_event(channel, &event), -1);
    EXPECT_EQ(rdma_destroy_id(listener), 0);
    rdma_event_channel* const own = rdma_create_event_channel();
    EXPECT_EQ(rdma_destroy_id(listening(own)), 0);
    rdma_destroy_event_channel(own);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  pollfd readable{channel->fd, POLLIN, 0};
  EXPECT_EQ(poll(&readable, 1, 0), 0) << "the child raised an event here";
  EXPECT_EQ(rdma_destroy_id(listener), 0);
  rdma_destroy_event_channel(channel);
}

}  // namespace
}  // namespace pacecar::ids_test

// hello_server PORT: answers every HTTP/1.1 request on 127.0.0.1:PORT with the same small page and keeps connections.
// One thread and epoll: fast enough that the proxies in front of it are what is measured. It looks for the blank line
// at the end of a head and for nothing else; requests have no bodies.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const char kAnswer[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nhello, world\n";

enum { kMaxConnections = 4096, kMaxHead = 8192 };

static struct {
  char bytes[kMaxHead];
  size_t used;
} heads[kMaxConnections];

static void fail(const char* what) {
  perror(what);
  exit(1);
}

// 0: the connection goes on.
static int serve(int fd) {
  if (fd >= kMaxConnections) return -1;
  const ssize_t n = read(fd, heads[fd].bytes + heads[fd].used, kMaxHead - heads[fd].used);
  if (n < 0) return errno == EAGAIN ? 0 : -1;
  if (n == 0) return -1;
  heads[fd].used += (size_t)n;
  for (;;) {
    char* end = memmem(heads[fd].bytes, heads[fd].used, "\r\n\r\n", 4);
    if (end == NULL) return heads[fd].used == kMaxHead ? -1 : 0;
    const size_t head = (size_t)(end - heads[fd].bytes) + 4;
    memmove(heads[fd].bytes, heads[fd].bytes + head, heads[fd].used - head);
    heads[fd].used -= head;
    if (write(fd, kAnswer, sizeof kAnswer - 1) != (ssize_t)sizeof kAnswer - 1) return -1;
  }
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: hello_server PORT\n");
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
    fail("socket");
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[1]))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener, (struct sockaddr*)&address, sizeof address) != 0 || listen(listener, 1024) != 0)
    fail("listen");
  const int poller = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
  if (poller < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event) != 0) fail("epoll");
  for (;;) {
    struct epoll_event ready[64];
    const int count = epoll_wait(poller, ready, 64, -1);
    if (count < 0 && errno != EINTR) fail("epoll_wait");
    for (int i = 0; i < count; ++i) {
      const int fd = ready[i].data.fd;
      if (fd != listener) {
        if (serve(fd) != 0) close(fd);
        continue;
      }
      int accepted;
      while ((accepted = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct epoll_event one = {.events = EPOLLIN, .data.fd = accepted};
        setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (accepted < kMaxConnections) heads[accepted].used = 0;
        if (epoll_ctl(poller, EPOLL_CTL_ADD, accepted, &one) != 0) close(accepted);
      }
    }
  }
}

// Reaches a TCP port on a loopback or interface address that is not the sandbox's own.
// argv: connect ADDRESS PORT | listen ADDRESS PORT SECONDS (the other side, no attack)
#include <arpa/inet.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  const char* verb = need(argc, argv, 1);
  struct sockaddr_in address = {.sin_family = AF_INET};
  if (inet_pton(AF_INET, need(argc, argv, 2), &address.sin_addr) != 1) inconclusive("bad address");
  address.sin_port = htons((uint16_t)atoi(need(argc, argv, 3)));
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) inconclusive("socket: %s", strerror(errno));
  if (!strcmp(verb, "listen")) {
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr*)&address, sizeof address) || listen(fd, 8)) {
      inconclusive("bind: %s", strerror(errno));
    }
    alarm((unsigned)atoi(need(argc, argv, 4)));
    printf("LISTENING\n");
    fflush(stdout);
    for (;;) close(accept(fd, NULL, NULL));
  }
  struct timeval limit = {3, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (connect(fd, (struct sockaddr*)&address, sizeof address) == 0) succeeded("connected");
  if (errno == EINPROGRESS || errno == ETIMEDOUT) errno = EHOSTUNREACH;
  blocked(errno);
}

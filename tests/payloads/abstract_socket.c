// Talks to a Unix socket with an abstract name, which only a network namespace hides.
// argv: connect NAME SECRET | listen NAME SECRET SECONDS (the other side, no attack)
#include <stddef.h>
#include <sys/un.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  const char* verb = need(argc, argv, 1);
  const char* name = need(argc, argv, 2);
  const char* secret = need(argc, argv, 3);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t size = strlen(name);
  memcpy(address.sun_path + 1, name, size);
  socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + size);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0) inconclusive("socket: %s", strerror(errno));
  if (!strcmp(verb, "listen")) {
    if (bind(fd, (struct sockaddr*)&address, length) || listen(fd, 8)) {
      inconclusive("bind: %s", strerror(errno));
    }
    alarm((unsigned)atoi(need(argc, argv, 4)));
    printf("LISTENING\n");
    fflush(stdout);
    for (;;) {
      int peer = accept(fd, NULL, NULL);
      if (peer < 0) continue;
      if (write(peer, secret, strlen(secret)) < 0) _exit(1);
      close(peer);
    }
  }
  if (connect(fd, (struct sockaddr*)&address, length)) blocked(errno);
  if (fd_holds(fd, secret) == 1) succeeded("the socket told the secret");
  inconclusive("connected to something else");
}

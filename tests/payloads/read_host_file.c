// Reads a file of the host by its absolute path. argv: PATH SECRET
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* path = need(argc, argv, 1);
  const char* secret = need(argc, argv, 2);
  int r = path_holds(path, secret);
  if (r == 1) succeeded("read the secret of %s", path);
  if (r == 0) blocked_because("OTHERFILE %s is a file of the sandbox's own", path);
  blocked(errno);
}

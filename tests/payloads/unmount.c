// Takes a mount away, to see what lies below. argv: PATH
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* path = need(argc, argv, 1);
  verdict(umount2(path, MNT_DETACH), path);
}

// Asks to decide about other processes' file accesses.
#include <sys/fanotify.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  verdict(fanotify_init(FAN_CLASS_CONTENT, O_RDONLY), "got a permission listener");
}

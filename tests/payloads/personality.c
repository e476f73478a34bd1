// Takes a personality that maps page zero, which turns kernel null pointer bugs into code.
#include <sys/personality.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  verdict(personality(PER_SVR4), "took the personality of System V, page zero mapped");
}

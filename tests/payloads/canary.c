// Not an attack: the victim that attacks on processes aim at. Holds a secret in memory and an open
// file, counts SIGUSR1, and tells on stdout where: "PID ADDRESS FD". Answers a line on stdin with
// the count so far; ends with its stdin. argv: SECRET FILE MARKER...
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t signals;
static void count(int number) {
  (void)number;
  ++signals;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  char* secret = strdup(argv[1]);
  memset(argv[1], 'x', strlen(argv[1]));
  int fd = open(argv[2], O_RDONLY);
  if (fd < 0) return 2;
  struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
  sigaction(SIGUSR1, &action, NULL);
  printf("%d %p %d\n", getpid(), (void*)secret, fd);
  fflush(stdout);
  for (char c; read(STDIN_FILENO, &c, 1) == 1;) {
    if (c != '\n') continue;
    printf("%d\n", (int)signals);
    fflush(stdout);
  }
  return 0;
}

// Attaches a System V shared memory segment of somebody else. argv: read KEY SECRET |
// make KEY SECRET SECONDS (the other side, no attack)
#include <sys/ipc.h>
#include <sys/shm.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  const char* verb = need(argc, argv, 1);
  key_t key = (key_t)strtoul(need(argc, argv, 2), NULL, 0);
  const char* secret = need(argc, argv, 3);
  if (!strcmp(verb, "make")) {
    int id = shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0666);
    if (id < 0) inconclusive("shmget: %s", strerror(errno));
    char* memory = shmat(id, NULL, 0);
    strcpy(memory, secret);
    printf("MADE\n");
    fflush(stdout);
    int seconds = atoi(need(argc, argv, 4));
    // Ends early with its stdin, so that whoever started it can take it back.
    fd_set in;
    FD_ZERO(&in);
    FD_SET(0, &in);
    struct timeval limit = {seconds, 0};
    select(1, &in, NULL, NULL, &limit);
    shmctl(id, IPC_RMID, NULL);
    _exit(0);
  }
  int id = shmget(key, 0, 0);
  if (id < 0) blocked(errno);
  char* memory = shmat(id, NULL, SHM_RDONLY);
  if (memory == (void*)-1) blocked(errno);
  if (!strcmp(memory, secret)) succeeded("attached the segment and read the secret");
  inconclusive("the segment holds something else");
}

// Starts threads without end; holds what it got for SECONDS. argv: CAP SECONDS
#define PAYLOAD_KILLED_IS_BLOCKED
#include <pthread.h>

#include "payload.h"

static void* idle(void* unused) {
  for (;;) pause();
  return unused;
}

static void attack(int argc, char** argv) {
  int cap = atoi(need(argc, argv, 1)), seconds = atoi(need(argc, argv, 2));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 65536);
  printf("HOLDING\n");
  fflush(stdout);
  int count = 0, error = 0;
  while (count < cap) {
    pthread_t thread;
    error = pthread_create(&thread, &attributes, idle, NULL);
    if (error) break;
    ++count;
  }
  if (count >= cap) succeeded("%d threads", count);
  sleep((unsigned)seconds);
  blocked_because("%s stopped at %d threads", strerrorname_np(error), count);
}

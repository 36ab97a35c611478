/* A library that a program opens: storage of each thread's own, and a destructor of such storage. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static __thread int counted;
static __thread char large[64];
__thread int early __attribute__((tls_model("initial-exec"))) = 7;

int count(void) { memset(large, counted, sizeof large); return ++counted + large[9] * 0 + early * 0; }
int started_with(void) { return early; }
__attribute__((constructor)) static void loaded(void) { puts("library: loaded"); }
__attribute__((destructor)) static void unloaded(void) { puts("library: unloaded"); }

/* Set-user-id: who it runs for, whether the loader knows that it must be careful, and that it can still open things. */
#include <dlfcn.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

int main(void) {
  struct passwd *user = getpwuid(geteuid());
  printf("uid %d, as %d (%s), secure %lu, LD_PRELOAD %s, EUC-JP %d\n", (int)getuid(), (int)geteuid(),
         user ? user->pw_name : "nobody", getauxval(AT_SECURE), getenv("LD_PRELOAD") ? "kept" : "dropped",
         dlopen("/usr/lib/x86_64-linux-gnu/gconv/EUC-JP.so", RTLD_NOW) != NULL);
  return 0;
}

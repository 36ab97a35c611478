/* A 32-bit program: its C library, the driver's libraries, what glibc loads at run time. */
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <iconv.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>

static __thread int own = 1;
static void *work(void *nothing) { (void)nothing; return (void *)(long)++own; }

int main(void) {
  const char *names[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
  pthread_t thread;
  void *result;
  pthread_create(&thread, NULL, work, NULL);
  pthread_join(thread, &result);
  printf("%zu bits, thread %ld\n", 8 * sizeof result, (long)result);
  for (int i = 0; i < 2; i++) {
    void *library = dlopen(names[i], RTLD_NOW);
    int (*init)(int) = library ? (int (*)(int))dlsym(library, "cuInit") : NULL;
    printf("%s: %s\n", names[i], library ? "loads" : dlerror());
    if (init) printf("cuInit %d\n", init(0));
  }
  printf("%s %d\n", getpwuid(0)->pw_name, iconv_open("EUC-JP", "UTF-8") != (iconv_t)-1);
  printf("glibc %s\n", gnu_get_libc_version());
  return 0;
}

/* A program that brings its C library: alone, or ("names", "converter") asking for what glibc loads at run time. */
#define _GNU_SOURCE
#include <iconv.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

static __thread int own = 1;
static void *work(void *nothing) { (void)nothing; return (void *)(long)++own; }

int main(int count, char **words) {
  pthread_t thread;
  void *result;
  pthread_create(&thread, NULL, work, NULL);
  pthread_join(thread, &result);
  printf("static: %ld %d %.6f\n", (long)result, own, sin(count));
  if (count > 1 && !strcmp(words[1], "names")) printf("names: %s\n", getpwuid(0) ? getpwuid(0)->pw_name : "none");
  if (count > 1 && !strcmp(words[1], "converter")) {
    char in[] = "\xe6\x97\xa5", out[9] = "", *from = in, *to = out;
    size_t left = 3, room = 8;
    iconv_t converter = iconv_open("EUC-JP", "UTF-8");
    printf("converter: %d\n", converter == (iconv_t)-1 ? -1 : (int)iconv(converter, &from, &left, &to, &room));
  }
  return 0;
}

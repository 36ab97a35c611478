/* What programs ask of a C library, each answer on a line: the same with every glibc that is not older. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fenv.h>
#include <fnmatch.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <iconv.h>
#include <ifaddrs.h>
#include <langinfo.h>
#include <link.h>
#include <locale.h>
#include <math.h>
#include <mqueue.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <regex.h>
#include <search.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <wchar.h>
#include <wordexp.h>

extern char **environ;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static __thread int own = 5;
static int waiting, destroyed, cleaned, handled;
static int (*count)(void);
static ucontext_t here, there;

static void destroy(void *value) { (void)value; __sync_fetch_and_add(&destroyed, 1); }
static void make_key(void) { pthread_key_create(&key, destroy); }
static void clean(void *value) { (void)value; __sync_fetch_and_add(&cleaned, 1); }
static void handle(int number) { (void)number; handled++; }
static void leap(void) { puts("context: inside"); swapcontext(&there, &here); }
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void *work(void *number) {
  pthread_once(&once, make_key);
  pthread_setspecific(key, &own);
  own += (int)(long)number;
  for (int i = 0; i < 1000; i++) { pthread_mutex_lock(&lock); waiting += count() > 0; pthread_mutex_unlock(&lock); free(malloc(i)); }
  pthread_cond_signal(&changed);
  return (void *)(long)(own * 10000 + count());
}

static void *sleeper(void *nothing) {
  pthread_cleanup_push(clean, nothing);
  for (;;) pause();
  pthread_cleanup_pop(0);
}

static void threads(void) {
  pthread_t made[8], last;
  void *result;
  long sum = 0;
  for (long i = 0; i < 8; i++) pthread_create(&made[i], NULL, work, (void *)i);
  for (int i = 0; i < 8; i++) { pthread_join(made[i], &result); sum += (long)result; }
  printf("threads: %ld %d %d %d\n", sum, waiting, destroyed, own);
  pthread_create(&last, NULL, sleeper, NULL);
  pthread_cancel(last);  /* glibc opens libgcc_s for it */
  pthread_join(last, &result);
  printf("cancelled: %d %d\n", result == PTHREAD_CANCELED, cleaned);
}

static int object(struct dl_phdr_info *info, size_t size, void *found) {
  (void)size;
  if (strstr(info->dlpi_name, "library.so")) *(int *)found = info->dlpi_phnum > 3;
  return 0;
}

static void opened(void) {
  Dl_info about;
  int found = 0, (*started)(void);
  void *library = dlopen("/opt/c_library/library.so", RTLD_NOW);
  if (!library) { puts(dlerror()); exit(1); }
  count = (int (*)(void))dlsym(library, "count");
  started = (int (*)(void))dlsym(library, "started_with");
  dladdr((void *)count, &about);
  dl_iterate_phdr(object, &found);
  printf("opened: %d %d %s %s %d\n", count(), started(), about.dli_fname, about.dli_sname, found);
  printf("absent: %s\n", dlopen("libnothere.so", RTLD_NOW) ? "?" : dlerror());
  printf("versions: %d %d\n", dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.2.5") != NULL, dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_9") != NULL);
}

static void names(void) {
  struct addrinfo *list, hints = {.ai_flags = AI_NUMERICSERV, .ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
  char text[99];
  struct passwd *user = getpwuid(0);
  printf("names: %s %s %s\n", user ? user->pw_name : "none", getgrnam("root") ? "root" : "none", getpwnam("of-the-module") ? "of-the-module" : "none");
  printf("address: %s\n", getaddrinfo("127.0.0.1", "80", &hints, &list) ? "none" : inet_ntop(AF_INET, &((struct sockaddr_in *)list->ai_addr)->sin_addr, text, 99));
  printf("module: %d\n", dlopen("libnss_dns.so.2", RTLD_NOW) != NULL && dlopen("libresolv.so.2", RTLD_NOW) != NULL);
  printf("services: %d\n", getservbyname("nothing-such", "tcp") != NULL);
}

static void text(void) {
  char in[] = "\xe6\x97\xa5\xe6\x9c\xac", out[99] = "", *from = in, *to = out;
  size_t left = 6, room = 98;
  iconv_t converter = iconv_open("EUC-JP", "UTF-8");
  regex_t pattern;
  regmatch_t match[2];
  wordexp_t words;
  long rest = converter == (iconv_t)-1 ? -1 : (long)iconv(converter, &from, &left, &to, &room);
  printf("iconv: %ld %02x%02x%02x%02x\n", rest, out[0] & 255, out[1] & 255, out[2] & 255, out[3] & 255);
  printf("converter: %d\n", dlopen("/usr/lib/x86_64-linux-gnu/gconv/EUC-JP.so", RTLD_NOW) != NULL);
  setlocale(LC_ALL, "C.UTF-8");
  printf("locale: %s %d\n", nl_langinfo(CODESET), (int)mbstowcs(NULL, in, 0));
  printf("wide: %ls %d %d\n", L"\u00e9\u65e5", wcwidth(L'\u65e5'), wcscoll(L"a", L"b") < 0);
  regcomp(&pattern, "b(.)d", REG_EXTENDED);
  regexec(&pattern, "abcd", 2, match, 0);
  wordexp("a $((2 + 3))", &words, 0);
  printf("patterns: %d %s %s\n", (int)match[1].rm_so, words.we_wordv[0], words.we_wordv[1]);
  printf("numbers: %.17g %La %s %d\n", strtod("0.1", NULL), strtold("1e-4000", NULL), strerror(ENOENT), sscanf("12 ab", "%*d %*m[a-z]"));
  printf("fnmatch: %d %d\n", fnmatch("*.s[o]", "a.so", 0), strverscmp("a9", "a10") < 0);
}

static void processes(void) {
  char *arguments[] = {"sh", "-c", "exit 3", NULL};
  pid_t child;
  int status = 0;
  FILE *pipe = popen("echo piped", "r");
  char line[99] = "";
  posix_spawnp(&child, "sh", NULL, NULL, arguments, environ);
  waitpid(child, &status, 0);
  fgets(line, 99, pipe);
  printf("processes: %d %d %d %s", WEXITSTATUS(status), pclose(pipe), WEXITSTATUS(system("exit 4")), line);
}

static void more(void) {
  static char stack[65536];
  struct sigaction action = {.sa_handler = handle};
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
  struct itimerspec soon = {.it_value = {0, 1000000}};
  struct timespec longer = {2, 0};
  timer_t timer;
  sigset_t set;
  sem_t semaphore;
  void *frames[9];
  int sorted[] = {3, 1, 2};
  jmp_buf jump;
  sigaction(SIGUSR1, &action, NULL);
  sigemptyset(&set); sigaddset(&set, SIGUSR2); pthread_sigmask(SIG_BLOCK, &set, NULL);
  timer_create(CLOCK_MONOTONIC, &event, &timer); timer_settime(timer, 0, &soon, NULL);
  while (!handled && nanosleep(&longer, NULL) == 0) continue;
  raise(SIGUSR2);
  printf("signals: %d %d\n", handled, sigtimedwait(&set, NULL, &longer) == SIGUSR2);
  sem_init(&semaphore, 0, 1);
  sem_wait(&semaphore);
  printf("semaphore: %d\n", sem_trywait(&semaphore));
  getcontext(&there); there.uc_stack.ss_sp = stack; there.uc_stack.ss_size = sizeof stack; there.uc_link = &here;
  makecontext(&there, leap, 0); swapcontext(&here, &there);
  qsort(sorted, 3, sizeof *sorted, compare);
  printf("sorted: %d%d%d %d\n", sorted[0], sorted[1], sorted[2], backtrace(frames, 9) > 1);
  if (!setjmp(jump)) longjmp(jump, 1);
  srandom(1);
  printf("random: %ld %.6f\n", random(), erand48((unsigned short[]){1, 2, 3}));
  printf("maths: %.6f %.6f %.6f %d\n", sin(1), pow(2, 0.5), tgamma(4.5), fetestexcept(FE_DIVBYZERO));
  printf("time: %ld %d\n", (long)timegm(&(struct tm){.tm_year = 100, .tm_mday = 1}), getifaddrs(&(struct ifaddrs *){0}));
  printf("sizes: %zu %ld\n", sizeof(void *), sysconf(_SC_PAGESIZE));
}

int main(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  opened();
  threads();
  names();
  text();
  processes();
  more();
  return 0;
}

/* What programs may do wrong, or rarely, and what POSIX and users expect. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                             \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition);         \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

static volatile size_t much = SIZE_MAX;

static void sizes(void) {
  void *a = malloc(0), *b = malloc(0), *p = NULL;
  char *s;
  EXPECT(a != NULL && b != NULL && a != b);
  free(a);
  free(b);
  free(NULL);
  errno = 0;
  EXPECT(malloc(much) == NULL && errno == ENOMEM);
  EXPECT(malloc(much / 2) == NULL);
  errno = 0;
  EXPECT(calloc(much, 2) == NULL && errno == ENOMEM);
  errno = 0;
  EXPECT(reallocarray(NULL, much, 2) == NULL && errno == ENOMEM);
  EXPECT(realloc(NULL, much) == NULL);
  s = malloc(10);
  strcpy(s, "near");
  EXPECT(realloc(s, much) == NULL && strcmp(s, "near") == 0);
  s = realloc(s, 100000);
  EXPECT(strcmp(s, "near") == 0);
  s = realloc(s, 9 << 20);
  EXPECT(strcmp(s, "near") == 0);
  s = realloc(s, 90 << 20);
  EXPECT(strcmp(s, "near") == 0 && malloc_usable_size(s) >= 90 << 20);
  s = realloc(s, 5);
  EXPECT(strcmp(s, "near") == 0);
  EXPECT(realloc(s, 0) == NULL);
  EXPECT(posix_memalign(&p, 3, 10) == EINVAL);
  EXPECT(posix_memalign(&p, 4, 10) == EINVAL);
  EXPECT(posix_memalign(&p, 0, 10) == EINVAL);
  EXPECT(posix_memalign(&p, 64, much - 100) == ENOMEM && p == NULL);
  EXPECT(posix_memalign(&p, (size_t)1 << 62, 10) == ENOMEM && p == NULL);
  EXPECT(aligned_alloc(48, 10) == NULL);
  for (size_t align = 8; align <= 64 << 20; align *= 2) {
    EXPECT(posix_memalign(&p, align, 100) == 0 && (uintptr_t)p % align == 0);
    memset(p, 1, 100);
    free(p);
  }
  p = valloc(10);
  EXPECT((uintptr_t)p % 4096 == 0);
  free(p);
  p = pvalloc(4097);
  EXPECT((uintptr_t)p % 4096 == 0 && malloc_usable_size(p) >= 8192);
  free(p);
  for (size_t size = 1; size < 8 << 20; size = size * 3 / 2 + 1) {
    unsigned char *zeroes = calloc(1, size);
    for (size_t at = 0; at < size; at += 61) EXPECT(zeroes[at] == 0);
    memset(zeroes, 255, size);
    free(zeroes);
  }
  EXPECT(malloc_usable_size(NULL) == 0);
  EXPECT(mallinfo2().uordblks > 0);
}

static void *churns(void *argument) {
  unsigned seed = (unsigned)(uintptr_t)argument;
  char *live[64] = {0};
  for (int i = 0; i < 100000; i++) {
    int at = rand_r(&seed) % 64;
    if (live[at]) EXPECT(*live[at] == (char)at);
    errno = ECHILD;
    free(live[at]);
    EXPECT(errno == ECHILD);
    live[at] = malloc(1 + rand_r(&seed) % (i % 1000 == 0 ? 200000 : 700));
    *live[at] = (char)at;
  }
  for (int at = 0; at < 64; at++) free(live[at]);
  return NULL;
}

static void forks(int count) {
  for (int i = 0; i < count; i++) {
    int status;
    pid_t child = i % 2 ? fork() : vfork();
    if (child == 0) {
      if (i % 2) free(malloc(1000));
      _exit(0);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  }
}

/* A handler of another thread forks while threads allocate. */
static void on_signal(int number) {
  (void)number;
  int saved = errno;
  pid_t child = fork();
  if (child == 0) _exit(0);
  if (child > 0) waitpid(child, NULL, 0);
  errno = saved;
}

static void *sleeps(void *flag) {
  while (!__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE)) usleep(1000);
  return NULL;
}

static void threads(void) {
  pthread_t churning[4], sleeper;
  int is_over = 0;
  signal(SIGUSR1, on_signal);
  EXPECT(pthread_create(&sleeper, NULL, sleeps, &is_over) == 0);
  for (int i = 0; i < 4; i++) pthread_create(&churning[i], NULL, churns, (void *)(uintptr_t)(i + 1));
  for (int i = 0; i < 5; i++) pthread_kill(sleeper, SIGUSR1);
  forks(10);
  for (int i = 0; i < 4; i++) pthread_join(churning[i], NULL);
  __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
  pthread_join(sleeper, NULL);
  /* Many threads that end: their memory serves the next. */
  for (int i = 0; i < 200; i++) {
    pthread_t one;
    pthread_create(&one, NULL, (void *(*)(void *))malloc, (void *)(uintptr_t)1000);
    pthread_join(one, NULL);
  }
}

static long resident_kib(void) {
  long pages = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  EXPECT(file != NULL && fscanf(file, "%ld %ld", &pages, &resident) == 2);
  fclose(file);
  return resident * 4;
}

/* A program that shrinks is small soon after. */
static void shrinks(void) {
  enum { COUNT = 400000 };
  char **blocks = malloc(COUNT * sizeof *blocks);
  for (int i = 0; i < COUNT; i++) memset(blocks[i] = malloc(500), 1, 500);
  long most = resident_kib();
  EXPECT(most > 190000);
  for (int i = 0; i < COUNT; i++) free(blocks[i]);
  free(blocks);
  /* Two seconds where the CPUs are the program's own; here others may have them. */
  long left = most;
  for (int wait = 0; wait < 200 && left >= most / 2; wait++) {
    usleep(100000);
    for (int i = 0; i < 100000; i++) free(malloc(40 + i % 2 * 40000));
    left = resident_kib();
  }
  if (left > most / 2) fprintf(stderr, "%ld KiB of %ld are left\n", left, most);
  EXPECT(left < most / 2);
}

static void *exits(void *unused) {
  (void)unused;
  for (;;) free(malloc(300));
}

static void *frees(void *block) {
  free(block);
  return NULL;
}

int main(int count, char **arguments) {
  int keeps = count > 1 && !strcmp(arguments[1], "keeps");
  if (count > 1 && !keeps) {
    /* Wrong frees, by name. */
    pthread_t one;
    char *p = malloc(100);
    if (!strcmp(arguments[1], "double")) {
      free(p);
      free(p);
    } else if (!strcmp(arguments[1], "inner")) {
      free(p + 16);
    } else if (!strcmp(arguments[1], "foreign")) {
      free(&count);
    } else if (!strcmp(arguments[1], "away")) {
      /* Twice by another thread, while it is on its way home. */
      for (int i = 0; i < 2; i++) {
        pthread_create(&one, NULL, frees, p);
        pthread_join(one, NULL);
      }
    } else if (!strcmp(arguments[1], "home")) {
      /* By another thread, then by its own. */
      pthread_create(&one, NULL, frees, p);
      pthread_join(one, NULL);
      free(p);
    } else if (!strcmp(arguments[1], "odd")) {
      free(p + 3);
    } else if (!strcmp(arguments[1], "large")) {
      p = malloc(200000);
      free(p);
      free(p);
    } else if (!strcmp(arguments[1], "written")) {
      free(p);
      memset(p, 7, 100);
      for (int i = 0; i < 5000; i++) *(volatile char *)malloc(100) = 1;
    }
    return 0;
  }
  sizes();
  threads();
  /* Where nothing can go back to the kernel, the rest is as everywhere. */
  if (!keeps) shrinks();
  pthread_t one;
  for (int i = 0; i < 2; i++) pthread_create(&one, NULL, exits, NULL);
  puts("all calls as expected");
  return 0;
}

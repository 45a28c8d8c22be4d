/* A program that has begun and then may make few calls of the kernel, as the part of a server that reads what strangers send: any
 * other call ends it. It takes so many MiB in objects of 100 bytes to 2 MB, frees them, and takes them once more.
 *
 * sandboxed MIB */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int allowed[] = {SYS_brk,      SYS_clock_gettime,  SYS_close,   SYS_exit,         SYS_exit_group, SYS_futex,
                              SYS_getpid,   SYS_getrandom,      SYS_madvise, SYS_mmap,         SYS_mprotect,   SYS_mremap,
                              SYS_munmap,   SYS_nanosleep,      SYS_poll,    SYS_read,         SYS_write,      SYS_rt_sigprocmask,
                              SYS_shutdown, SYS_gettimeofday};

static void seal(void) {
  struct sock_filter filter[64];
  unsigned short length = 0;
  size_t at;
  struct sock_filter load = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_filter end = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  struct sock_fprog program;
  filter[length++] = load;
  for (at = 0; at < sizeof allowed / sizeof *allowed; at++) {
    struct sock_filter is = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[at], 0, 1);
    filter[length++] = is;
    filter[length++] = allow;
  }
  filter[length++] = end;
  program.len = length;
  program.filter = filter;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("seccomp");
    _exit(77);
  }
}

int main(int count, char **words) {
  static char *objects[1 << 20];
  size_t most = strtoul(words[count - 1], NULL, 10) << 20, taken, size, number;
  int round;
  /* Whatever begins with the first object begins now. */
  free(malloc(100));
  seal();
  if (most == 0) {
    syscall(SYS_getppid);
  }
  for (round = 0; round < 2; round++) {
    size = 100;
    for (number = 0, taken = 0; taken < most; number++, taken += size) {
      size = size < 2000000 ? size * 3 / 2 : 100;
      objects[number] = malloc(size);
      if (objects[number] == NULL) {
        _exit(3);
      }
      objects[number][0] = objects[number][size - 1] = 1;
    }
    while (number > 0) {
      free(objects[--number]);
    }
  }
  _exit(0);
}

/* Denies system calls, then becomes a program: denied NUMBER... -- PROGRAM ARGUMENTS */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **words) {
  struct sock_filter filter[64];
  unsigned short length = 0;
  int at = 1;
  struct sock_filter load = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_filter deny = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  struct sock_fprog program;
  filter[length++] = load;
  for (; at < count && strcmp(words[at], "--") != 0 && length < 60; at++) {
    struct sock_filter is = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(words[at]), 0, 1);
    filter[length++] = is;
    filter[length++] = deny;
  }
  filter[length++] = allow;
  program.len = length;
  program.filter = filter;
  if (at + 1 >= count || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("seccomp");
    return 77;
  }
  execvp(words[at + 1], words + at + 1);
  perror(words[at + 1]);
  return 78;
}

/* Closes all descriptors, as programs do that become another user, and has files of its own at their numbers by the end. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **arguments) {
  int i, own;
  for (i = 0; i < 100; i++) free(malloc(100));
  for (i = 3; i < 1000; i++) close(i);
  own = open(arguments[count - 1], O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (own < 0) return 1;
  for (i = 3; i < 1000; i++)
    if (i != own && dup2(own, i) != i) break;
  return write(own, "own\n", 4) == 4 ? 0 : 3;
}

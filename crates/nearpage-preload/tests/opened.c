/* Opens the library as a plugin does, closes it, and still has memory of it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments) {
  void *(*its_malloc)(size_t);
  void (*its_free)(void *);
  char *block;
  void *handle = dlopen(arguments[count - 1], RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  *(void **)&its_malloc = dlsym(handle, "malloc");
  *(void **)&its_free = dlsym(handle, "free");
  block = its_malloc(100);
  memset(block, 1, 100);
  if (dlclose(handle) != 0) return 2;
  its_free(block);
  its_free(its_malloc(100));
  puts("opened and closed");
  return 0;
}

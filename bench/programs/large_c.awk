# A large file in C.
BEGIN {
  print "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>"
  for (i = 0; i < 60; i++) {
    printf "struct s%d { int a; long b[%d]; char c[%d]; };\n", i, i % 9 + 1, i % 17 + 1
    printf "int f%d(int x, struct s%d *s) {\n  int sum = x;\n", i, i
    for (j = 0; j < 4; j++)
      printf "  for (int i%d = 0; i%d < x; i%d++) { s->b[i%d %% %d] += (long)(i%d * %d) ^ s->a; if (s->c[i%d %% %d] == %d) sum -= i%d; switch (sum & 7) { case 0: sum += %d; break; case 3: sum ^= x; break; default: sum++; } }\n", j, j, j, j, i % 9 + 1, j, i + j, j, i % 17 + 1, j, j, i
    printf "  return sum + (int)strlen(s->c)%s;\n}\n", i ? sprintf(" + f%d(x / 2, (struct s%d *)s)", i - 1, i - 1) : ""
  }
  print "int main(void) { struct s59 s; memset(&s, 0, sizeof s); printf(\"%d\\n\", f59(3, &s)); return 0; }"
}

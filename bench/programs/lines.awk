# Lines to sort and to compress.
BEGIN {
  x = 1
  for (i = 0; i < 300000; i++) { x = (x * 48271) % 2147483647; printf "%d near %d%s\n", x, i % 1000, substr("abcdefghijklmnopqrstuvwxyz", x % 20 + 1) } }

# Commands for redis.
BEGIN { for (i = 0; i < 20000; i++) { printf "SET fixed:%d %s\r\nLPUSH list:%d %d\r\nHSET hash:%d f%d %d\r\n", i, substr("abcdefghijklmnopqrstuvwxyz0123456789", i % 30 + 1), i % 50, i, i % 300, i, i } }

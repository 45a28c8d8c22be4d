# Three hundred commits for git fast-import.
BEGIN {
  for (i = 1; i <= 300; i++) {
    text = ""
    for (j = 0; j < 120; j++) text = text sprintf("line %d of %d: %d near %d\n", j, i % 40, (i * 7919 + j * 104729) % 99991, j < i % 100 ? i : 7)
    printf "commit refs/heads/main\ncommitter nearpage <none@example.org> %d +0000\ndata 7\nstep %02d\n", 1000000000 + i * 60, i % 100
    for (f = 0; f < 4; f++) printf "M 644 inline d%d/f%d\ndata %d\n%s\n", i % 13, (i * 3 + f) % 40, length(text), text
  }
}
